// Try it, for a model of features: a drawn image or typed numbers get a class, or a label at each position.

import { numbersOf } from "../src/index.js";
import { labelled, ranked } from "./classify.js";
import { el, latest, notice, section } from "./dom.js";
import { drawing } from "./drawing.js";
import { logProbabilities } from "./numbers.js";
import type { Opened } from "./opened.js";

export function drawView(opened: Opened): HTMLElement {
  const { labels } = opened.manifest;
  const out = el("div", { id: "classes" });
  const line = notice();
  const run = latest(line);
  const pad = drawing(opened, () => void run(classify));

  async function classify(wanted: () => boolean): Promise<void> {
    const logits = await opened.model.run(pad.read());
    if (!wanted()) return;
    const classes = logits.dims.at(-1)!;
    const rows = Array.from({ length: logits.data.length / classes }, (_, row) =>
      numbersOf(logits, row * classes, (row + 1) * classes),
    );
    out.replaceChildren(...(labels.length ? [named(rows, logits.dims.length > 2)] : rows.map(plain)));
    line.say("");
  }

  function named(rows: readonly Float64Array[], each: boolean): HTMLElement {
    const probabilities = rows.flatMap((logits) => Array.from(logProbabilities(logits), Math.exp));
    return each
      ? labelled(
          rows.map((_, place) => String(place + 1)),
          probabilities,
          labels,
        )
      : ranked(probabilities, labels);
  }

  void run(classify);
  return section(
    opened.about.images ? "Draw" : "Give it numbers",
    el("div", { class: "beside" }, pad.element, el("div", {}, line, out)),
  );
}

function plain(numbers: Float64Array): HTMLElement {
  return el("p", { class: "output" }, Array.from(numbers, (value) => value.toPrecision(5)).join(", "));
}
