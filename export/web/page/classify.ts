// Try it, for a model that classifies a text or labels its words: it answers as the text is typed.

import { bars } from "./bars.js";
import { area, el, latest, notice, section, settled } from "./dom.js";
import { largest, percent } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning, lineOf, wellFormed } from "./reading.js";

const COLOURS = 8;

export function classifyView(opened: Opened, text: string): HTMLElement {
  const given = area("Text", text, 3);
  const out = el("div", { id: "classes" });
  const line = notice();
  const run = latest(line);

  async function classify(wanted: () => boolean): Promise<void> {
    if (!given.input.value.trim()) return void (out.replaceChildren(), line.say("Type a text."));
    const { shown, note } = await classesOf(opened, given.input.value);
    if (!wanted()) return;
    out.replaceChildren(shown);
    line.say(note);
  }

  given.input.addEventListener(
    "input",
    settled(() => void run(classify)),
  );
  void run(classify);
  return section(opened.kind === "tagger" ? "Label each word" : "Name the class", given.label, line, out);
}

/** Classifies a text or labels its words; the note says if a part of the text was not read. */
export async function classesOf(opened: Opened, text: string): Promise<{ shown: HTMLElement; note: string }> {
  const { ids, note } = beginning(opened, text);
  const { words, probabilities } = await opened.model
    .session()
    .classify(note ? opened.model.decode(ids) : wellFormed(lineOf(text)));
  const { labels } = opened.manifest;
  return { shown: words.length ? labelled(words, probabilities, labels) : ranked(probabilities, labels), note };
}

/** Bars of the likeliest classes. */
export function ranked(probabilities: readonly number[], labels: readonly string[]): HTMLElement {
  return bars(
    largest(probabilities, 20).map((place) => ({ name: labels[place] ?? String(place), share: probabilities[place] })),
  );
}

/** Each word above its likeliest label and the label's probability. */
export function labelled(
  words: readonly string[],
  probabilities: readonly number[],
  labels: readonly string[],
): HTMLElement {
  const shown = words.map((word, row) => {
    const chances = probabilities.slice(row * labels.length, (row + 1) * labels.length);
    const [best] = largest(chances, 1);
    const others = largest(chances, 3).map((place) => `${labels[place]} ${percent(chances[place])}`);
    const kind = labels[best] === "O" ? "tag plain" : `tag tag-${kindOf(labels, best) % COLOURS}`;
    const under = el(
      "span",
      { class: "label" },
      labels[best],
      " ",
      el("span", { class: "number" }, percent(chances[best])),
    );
    return el("span", { class: kind, title: others.join(", ") }, el("span", { class: "word" }, word), under);
  });
  return el("p", { class: "words" }, ...shown);
}

/** The number of a label's kind; labels that differ only in their prefix, such as B-PER and I-PER, are of one kind. */
function kindOf(labels: readonly string[], place: number): number {
  const kinds = [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[BIES]-/, "")))];
  return kinds.indexOf(labels[place].replace(/^[BIES]-/, ""));
}
