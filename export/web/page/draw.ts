// Try it, of a model that reads features: an image that is drawn, or numbers.

import { bars } from "./bars.js";
import { el, notice, section } from "./dom.js";
import { drawing } from "./drawing.js";
import { logProbabilities, largest } from "./numbers.js";
import type { Opened } from "./opened.js";

export function drawView(opened: Opened): HTMLElement {
  const { labels } = opened.manifest;
  const out = el("div", { id: "classes" });
  const line = notice();
  const pad = drawing(opened, () => void classify());

  async function classify(): Promise<void> {
    try {
      const logits = await opened.model.run(pad.read());
      const classes = logits.dims.at(-1)!;
      const last = Array.from(logits.data.slice(-classes), Number);
      out.replaceChildren(labels.length ? named(last) : el("p", { class: "output" }, last.map((value) => value.toPrecision(5)).join(", ")));
      line.say("");
    } catch (error) {
      line.fail(error);
    }
  }

  function named(logits: number[]): HTMLElement {
    const logs = logProbabilities(logits);
    return bars(largest(logs, 20).map((place) => ({ name: labels[place] ?? String(place), share: Math.exp(logs[place]) })));
  }

  void classify();
  return section(opened.about.images ? "Draw" : "Give it numbers", el("div", { class: "beside" }, pad.element, el("div", {}, line, out)));
}
