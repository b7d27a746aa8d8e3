// Compare: several bundles on one text, and language models with one seed.

import { bars } from "./bars.js";
import { classesOf } from "./classify.js";
import { area, button, el, latest, notice, section, settled } from "./dom.js";
import { lines } from "./lines.js";
import { largest } from "./numbers.js";
import { classifies, writes, type Opened } from "./opened.js";
import { piece, prompt } from "./reading.js";
import { mostScored, scoresOf } from "./scores.js";
import { settings } from "./settings.js";
import { stateChart } from "./what_it_is.js";
import { speed, writeOn, type Written } from "./write.js";

const CHOICES = 5;
/** The most points of a line, each the median of several steps. */
const POINTS = 20;

export function compareView(all: readonly Opened[], text: string): HTMLElement {
  const [writers, readers] = [all.filter(writes), all.filter(classifies)];
  const views = [
    ...(writers.length > 1 ? [writing(writers, text)] : []),
    ...(readers.length > 1 ? [classifying(readers, text)] : []),
  ];
  if (views.length) return el("div", {}, ...views);
  const why =
    "Only models that continue a text, or that classify one, are compared here, and this page has fewer than two of either.";
  return section("Compare", el("p", { class: "note" }, why));
}

/** Classifies one text with each model, as the text is typed. */
function classifying(readers: readonly Opened[], text: string): HTMLElement {
  const given = area("Text to classify", text, 3);
  const columns = el("div", { class: "columns", id: "classified" });
  const line = notice();
  const run = latest(line);

  async function compare(wanted: () => boolean): Promise<void> {
    const typed = given.input.value;
    if (!typed.trim()) return void (columns.replaceChildren(), line.say("Type a text."));
    const shown = [];
    for (const opened of readers) {
      const found = await classesOf(opened, typed);
      if (!wanted()) return;
      shown.push(
        el("article", {}, el("h3", {}, opened.about.name), found.shown, el("p", { class: "note" }, found.note)),
      );
    }
    columns.replaceChildren(...shown);
    line.say("");
  }

  given.input.addEventListener(
    "input",
    settled(() => void run(compare)),
  );
  void run(compare);
  return section("Classes side by side", given.label, line, columns);
}

function writing(writers: readonly Opened[], text: string): HTMLElement {
  const given = area("Text to continue", text || "The ");
  const chosen = settings("100");
  const columns = el("div", { class: "columns", id: "compared" });
  const charts = el("div", { class: "columns" });
  const line = notice();
  const start = button("Write with each", () => void compare(), { class: "main", id: "compare" });

  async function compare(): Promise<void> {
    start.disabled = true;
    const found: Written[] = [];
    try {
      const options = chosen.read();
      columns.replaceChildren();
      for (const opened of writers) {
        line.say(`Writing with ${opened.about.name} …`);
        const { ids } = prompt(opened, given.input.value, mostScored(opened));
        const next = (await scoresOf(opened, ids)).at(-1)!;
        const likely = largest(next, CHOICES).map((id) => ({
          name: piece(opened, ids, id),
          share: Math.exp(next[id]),
        }));
        const fresh = el("mark", {});
        const written = el(
          "div",
          { class: "written" },
          el("span", { class: "given" }, given.input.value.slice(-2000)),
          fresh,
        );
        columns.append(
          el(
            "article",
            {},
            el("h3", {}, opened.about.name),
            el("h4", {}, "Next token"),
            bars(likely),
            el("h4", {}, "Written"),
            written,
          ),
        );
        const done = await writeOn(opened, given.input.value, options, (now) => ((fresh.textContent = now), true));
        fresh.textContent = done.text;
        columns.lastElementChild!.append(el("p", { class: "note" }, `${speed(done)} ${done.note}`));
        found.push(done);
      }
      const times = writers.map(({ about }, place) => ({
        name: about.name,
        points: medians(found[place].milliseconds.slice(1)),
      }));
      charts.replaceChildren(lines(times, "token", "Milliseconds a token"), stateChart(writers));
      line.say("Done.");
    } catch (error) {
      line.fail(error);
    }
    start.disabled = false;
  }

  return section(
    "Side by side",
    given.label,
    chosen.fields,
    el("p", { class: "buttons" }, start),
    line,
    columns,
    charts,
  );
}

/** Medians of consecutive steps, since single steps are noisy. */
function medians(milliseconds: readonly number[]): [number, number][] {
  const size = Math.max(1, Math.ceil(milliseconds.length / POINTS));
  const starts = Array.from({ length: Math.ceil(milliseconds.length / size) }, (_, place) => place * size);
  return starts.map((begin) => {
    const some = milliseconds.slice(begin, begin + size).sort((a, b) => a - b);
    return [begin + 2, some[Math.floor(some.length / 2)]];
  });
}
