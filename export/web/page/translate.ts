// Try it, for a translator: it reads a source and writes its target.

import { area, button, choice, el, field, notice, section } from "./dom.js";
import { percent } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning } from "./reading.js";
import { numberOf } from "./settings.js";

const BEAMS = ["1 (greedy)", "2", "4", "8"];

export function translateView(opened: Opened, text: string): HTMLElement {
  const given = area("Source", text, 3);
  const beams = choice("Beams", BEAMS, () => undefined);
  beams.input.selectedIndex = 2;
  const penalty = { label: "Length penalty (0 prefers short)", min: 0, max: 10, whole: false };
  const favour = el("input", { type: "number", min: 0, max: 10, step: "any", value: "1" });
  const out = el("ol", { class: "targets", id: "targets" });
  const line = notice();
  const start = button("Write the target", () => void translate(), { class: "main", id: "translate" });

  async function translate(): Promise<void> {
    start.disabled = true;
    line.say("Writing …");
    try {
      const begun = performance.now();
      const { bosId } = opened.model.tokenizer;
      const { ids, note } = beginning(opened, given.input.value);
      const options = {
        beams: Number.parseInt(BEAMS[beams.input.selectedIndex]),
        lengthPenalty: numberOf(favour, penalty),
        maxNewTokens: opened.manifest.seqLen,
        stopIds: opened.manifest.stopIds,
      };
      const session = opened.model.session();
      await session.readSource([ids]);
      const [found] = await session.beamSearch([[bosId]], options);
      const best = found.map(({ tokens, score }) => {
        const target = el("span", { class: "target" }, opened.model.decode(tokens) || "(empty)");
        return el("li", {}, target, el("span", { class: "number" }, percent(Math.exp(score))));
      });
      out.replaceChildren(...best);
      const each = options.lengthPenalty === 1 ? "a token's mean probability" : "the exponential of its score";
      line.say(`${(performance.now() - begun).toFixed(0)} ms; the number is ${each}. ${note}`);
    } catch (error) {
      line.fail(error);
    }
    start.disabled = false;
  }

  given.input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void translate();
  });
  const fields = el("div", { class: "fields" }, beams.label, field(penalty.label, favour));
  return section("Source to target", given.label, fields, el("p", { class: "buttons" }, start), line, out);
}
