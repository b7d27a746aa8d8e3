// Try it, for a language model: it continues a text until a button stops it.

import type { GenerateOptions } from "../src/index.js";
import { area, button, el, notice, section } from "./dom.js";
import type { Opened } from "./opened.js";
import { prompt, textOf } from "./reading.js";
import { settings } from "./settings.js";

/** The longest prompt, in tokens. */
const LONGEST = 2048;
/** The time between two updates of the text, in milliseconds. */
const BETWEEN = 50;

/** A written text, its speed, and a note on its prompt. */
export interface Written {
  text: string;
  /** Time for each token, in milliseconds; the first includes the prompt. */
  milliseconds: number[];
  note: string;
}

/** Continues a text. `onText` receives all that is written so far, and stops the model by returning false. */
export async function writeOn(
  opened: Opened,
  text: string,
  options: GenerateOptions,
  onText: (text: string) => boolean,
): Promise<Written> {
  const { ids, note } = prompt(opened, text, LONGEST);
  const [written, milliseconds]: [number[], number[]] = [[], []];
  let last = performance.now();
  let shown = last;
  let going = true;
  const onToken = (_: number, token: number) => {
    const now = performance.now();
    milliseconds.push(now - last);
    last = now;
    written.push(token);
    if (now - shown > BETWEEN || written.length === 1) {
      shown = now;
      going = onText(textOf(opened, written));
    }
    return going;
  };
  try {
    await opened.model.session().generate([ids], { ...options, stopIds: opened.manifest.stopIds }, onToken);
  } catch (error) {
    if (going) throw error;
  }
  return { text: textOf(opened, written), milliseconds, note };
}

/** The speed, in words. */
export function speed({ milliseconds: [first, ...others] }: Written): string {
  const rest = others.reduce((sum, one) => sum + one, 0);
  const then = rest ? `, then ${((1000 * others.length) / rest).toFixed(0)} tokens a second` : "";
  return `${others.length + 1} tokens: the first after ${first.toFixed(0)} ms${then}.`;
}

export function writeView(opened: Opened, text: string): HTMLElement {
  const ids = opened.kind === "speller";
  const given = area(ids ? "Ids, separated by spaces" : "Text to continue", text || (ids ? "1 2 3" : "The "));
  const chosen = settings();
  const out = el("div", { class: "written", "aria-live": "off", id: "written" });
  const line = notice();
  const start = button("Write", () => void write(), { class: "main", id: "write" });
  const stop = button("Stop", () => (going = false), { id: "stop", disabled: true });
  let going = false;

  async function write(): Promise<void> {
    if (going) return;
    going = true;
    start.disabled = true;
    stop.disabled = false;
    const fresh = el("mark", {});
    out.replaceChildren(el("span", { class: "given" }, `${given.input.value.slice(-2000)}${ids ? " " : ""}`), fresh);
    line.say("Writing …");
    try {
      const onText = (text: string) => {
        fresh.textContent = text;
        return going;
      };
      const written = await writeOn(opened, given.input.value, chosen.read(), onText);
      fresh.textContent = written.text;
      line.say(`${going ? "Done" : "Stopped"}. ${speed(written)} ${written.note}`);
    } catch (error) {
      line.fail(error);
    }
    going = false;
    start.disabled = false;
    stop.disabled = true;
  }

  given.input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void write();
  });
  const hint = el(
    "p",
    { class: "note" },
    "Ctrl + Enter writes. The same seed writes the same text in every runtime of this bundle.",
  );
  return section(
    "Continue a text",
    given.label,
    chosen.fields,
    el("p", { class: "buttons" }, start, stop),
    line,
    out,
    hint,
  );
}
