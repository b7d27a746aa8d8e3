// Try it, of a model that says a class of a text, or a label of each of its words, as it is typed.

import type { Classes } from "../src/index.js";
import { bars } from "./bars.js";
import { area, el, notice, section, settled } from "./dom.js";
import { largest, percent } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning, wellFormed } from "./reading.js";

const COLOURS = 8;

export function classifyView(opened: Opened, text: string): HTMLElement {
  const given = area("Text", text, 3);
  const out = el("div", { id: "classes" });
  const line = notice();
  let number = 0;

  async function classify(): Promise<void> {
    const asked = ++number;
    try {
      if (!given.input.value.trim()) return void (out.replaceChildren(), line.say("Type a text."));
      const { ids, note } = beginning(opened, given.input.value);
      const read = note ? opened.model.decode(ids) : wellFormed(given.input.value);
      const classes = await opened.model.session().classify(read);
      if (asked !== number) return;
      const { labels } = opened.manifest;
      out.replaceChildren(classes.words.length ? words(classes, labels) : ofText(classes, labels));
      line.say(note);
    } catch (error) {
      line.fail(error);
    }
  }

  given.input.addEventListener("input", settled(() => void classify()));
  void classify();
  return section(opened.kind === "tagger" ? "Label each word" : "Name the class", given.label, line, out);
}

function ofText({ probabilities }: Classes, labels: readonly string[]): HTMLElement {
  return bars(largest(probabilities, 20).map((place) => ({ name: labels[place] ?? String(place), share: probabilities[place] })));
}

/** Each word above its likeliest label; the shade says how sure that is. */
function words({ words, probabilities }: Classes, labels: readonly string[]): HTMLElement {
  const shown = words.map((word, row) => {
    const chances = probabilities.slice(row * labels.length, (row + 1) * labels.length);
    const [best] = largest(chances, 1);
    const others = largest(chances, 3).map((place) => `${labels[place]} ${percent(chances[place])}`);
    const kind = labels[best] === "O" ? "tag plain" : `tag tag-${kindOf(labels, best) % COLOURS}`;
    const under = el("span", { class: "label" }, labels[best], " ", el("span", { class: "number" }, percent(chances[best])));
    return el("span", { class: kind, title: others.join(", ") }, el("span", { class: "word" }, word), under);
  });
  return el("p", { class: "words" }, ...shown);
}

/** Labels that differ only in how they begin, such as B-PER and I-PER, have one colour. */
function kindOf(labels: readonly string[], place: number): number {
  const kinds = [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[BIES]-/, "")))];
  return kinds.indexOf(labels[place].replace(/^[BIES]-/, ""));
}
