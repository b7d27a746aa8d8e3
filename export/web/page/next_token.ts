// Next token: the model's surprise at each token of a text, and the likeliest tokens at each place.

import { bars } from "./bars.js";
import { area, el, latest, notice, section, settled } from "./dom.js";
import { largest, percent } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning, piece, pieces, prompt, textOf } from "./reading.js";
import { mostScored, scoresOf, scoresOfTarget, targetOf } from "./scores.js";

const CHOICES = 10;
/** The most tokens written after a changed one. */
const GOES_ON = 40;
/** The surprise with the darkest shade, in nats: a probability of 1 in 400. */
const DARKEST = 6;

export function nextTokenView(opened: Opened, text: string): HTMLElement {
  const translates = opened.kind === "translator";
  const masked = opened.kind === "masked";
  const source = area("Source", translates ? text : "", 2);
  const given = area(
    translates ? "Target (empty: as the model writes it)" : "Text",
    translates ? "" : text || "1 2 3",
    3,
  );
  const line = notice();
  const summary = el("p", { class: "summary", id: "surprise" });
  const heat = el("div", { class: "heat", id: "heat" });
  const beside = el("div", { id: "choices" });
  let ids: number[] = [];
  let scores: Float64Array[] = [];
  const run = latest(line);

  /** Log-probabilities at a place. A language model has none for its first token. */
  const at = (place: number) => scores[masked ? place : place - 1];

  async function read(wanted: () => boolean): Promise<void> {
    if (opened.kind !== "writer" && !(translates ? source : given).input.value.trim()) {
      [summary, heat, beside].forEach((shown) => shown.replaceChildren());
      return line.say("Type a text.");
    }
    const { ids: found, note } = masked
      ? beginning(opened, given.input.value, mostScored(opened))
      : prompt(opened, given.input.value, mostScored(opened));
    await score(wanted, translates ? [opened.model.tokenizer.bosId, ...(given.input.value ? found : [])] : found, note);
  }

  async function score(wanted: () => boolean, now: number[], note = ""): Promise<void> {
    const of = translates ? beginning(opened, source.input.value).ids : [];
    if (translates && now.length === 1) now = await targetOf(opened, of);
    const found = await (translates ? scoresOfTarget(opened, of, now) : scoresOf(opened, now));
    if (!wanted()) return;
    [ids, scores] = [now, found];
    line.say(note);
    show();
    choose(masked ? 0 : ids.length);
  }

  function show(): void {
    const surprises = ids.flatMap((id, place) => (at(place) ? [-at(place)[id]] : []));
    const mean = surprises.reduce((sum, one) => sum + one, 0) / surprises.length;
    summary.textContent = surprises.length
      ? `${surprises.length} tokens, ${mean.toFixed(3)} nats each: perplexity ${Math.exp(mean).toPrecision(4)}. The stronger its shade, the more surprising a token is.`
      : "";
    const shown = pieces(opened, ids).map((name, place) => {
      const nats = at(place) ? -at(place)[ids[place]] : NaN;
      const shade = Number.isNaN(nats) ? 0 : Math.min(1, nats / DARKEST);
      const under = el("span", { class: "number" }, Number.isNaN(nats) ? "–" : nats.toFixed(1));
      const style = `--share:${(80 * shade).toFixed(0)}%`;
      const title = Number.isNaN(nats) ? "nothing before it" : `${nats.toFixed(3)} nats, ${percent(Math.exp(-nats))}`;
      const token = el(
        "button",
        { type: "button", class: "token", style, title, onclick: () => choose(place) },
        el("span", {}, name),
        under,
      );
      return name.includes("↵") ? [token, el("br")] : [token];
    });
    const after = el(
      "button",
      { type: "button", class: "token after", onclick: () => choose(ids.length) },
      el("span", {}, "?"),
      el("span", { class: "number" }, "next"),
    );
    heat.replaceChildren(...shown.flat(), ...(masked ? [] : [after]));
  }

  /** Shows the likeliest tokens at a place, each a button that puts it there. */
  function choose(place: number): void {
    [...heat.querySelectorAll(".token")].forEach((token, other) =>
      token.setAttribute("aria-pressed", String(other === place)),
    );
    const here = at(place);
    if (!here) {
      return void beside.replaceChildren(
        el("p", { class: "note" }, "Nothing stands before the first token: the model says nothing of it."),
      );
    }
    // The last token of a masked model is the mask, which no text contains.
    const names = largest(masked ? here.subarray(0, -1) : here, CHOICES).map((id) => ({
      name: piece(opened, ids.slice(0, place), id),
      share: Math.exp(here[id]),
      choose: () => void run((wanted) => change(wanted, place, id)),
    }));
    const title = place < ids.length ? `What could stand at place ${place + 1}` : "What could come next";
    const does = masked ? "Choose one to put it there." : "Choose one to put it there and let the model go on from it.";
    beside.replaceChildren(el("h3", {}, title), bars(names), el("p", { class: "note" }, does));
  }

  async function change(wanted: () => boolean, place: number, id: number): Promise<void> {
    line.say("Writing …");
    const now = masked ? ids.with(place, id) : await goneOn([...ids.slice(0, place), id]);
    if (!wanted()) return;
    const fits = now.slice(-mostScored(opened));
    given.input.value = textOf(opened, translates ? fits.slice(1) : fits);
    await score(wanted, fits);
  }

  /** Continues a text greedily. */
  async function goneOn(begun: number[]): Promise<number[]> {
    const limit = opened.manifest.maxSeqLen ?? Infinity;
    const most = Math.min(GOES_ON, limit - begun.length + 1);
    const stopIds = opened.manifest.stopIds;
    if (stopIds.includes(begun.at(-1)!) || most < 1) return begun;
    const session = opened.model.session();
    if (translates) await session.readSource([beginning(opened, source.input.value).ids]);
    const [written] = await session.generate([begun], { maxNewTokens: most, sampling: { temperature: 0 }, stopIds });
    return [...begun, ...written];
  }

  const soon = settled(() => void run(read));
  given.input.addEventListener("input", soon);
  source.input.addEventListener("input", soon);
  void run(read);
  const fields = translates ? [source.label, given.label] : [given.label];
  return section("Surprise and choices", ...fields, line, summary, heat, beside);
}
