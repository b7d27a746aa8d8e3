// Look inside: what each layer attends to, how large its hidden states are, and a state's size over time.

import { numbersOf, type Tensor } from "../src/index.js";
import { area, choice, el, notice, section, settled } from "./dom.js";
import { drawing } from "./drawing.js";
import { lines } from "./lines.js";
import { matrix } from "./matrix.js";
import { norm } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning, BOS, pieces, prompt, seen } from "./reading.js";
import { targetOf } from "./scores.js";

/** More squares than these a side are not to be seen. */
const MOST = 64;

/** What a model was given, by the names of its taps' inputs, and the names of its positions. */
interface Given {
  inputs: Map<string, Tensor>;
  tokens: string[];
  source: string[];
  ids: number[];
  sourceIds: number[];
}

export function lookInsideView(opened: Opened, text: string): HTMLElement {
  const features = opened.kind === "features";
  const translates = opened.kind === "translator";
  const given = area(translates ? "Source" : "Text", text || (opened.kind === "speller" ? "1 2 3" : ""), 2);
  const soon = settled(() => void read());
  const pad = features ? drawing(opened, soon) : null;
  const line = notice();
  const out = el("div", { id: "inside" });
  let asked = 0;

  async function read(): Promise<void> {
    const number = ++asked;
    if (!pad && !given.input.value.trim()) return line.say("Type a text.");
    try {
      const of = pad ? ofFeatures(pad.read()) : await ofTokens();
      const found = opened.manifest.taps ? await opened.model.tap(of.inputs) : new Map<string, Tensor>();
      const over = opened.manifest.model ? await normsOfState(opened, of) : null;
      if (number === asked) out.replaceChildren(...attention(found, of), ...hidden(found, of), ...(over ? [over] : []));
    } catch (error) {
      line.fail(error);
    }
  }

  function ofFeatures(batch: ReturnType<NonNullable<typeof pad>["read"]>): Given {
    const [input, mask] = opened.manifest.encoder!.inputs;
    const { length } = batch;
    const size = Number(input.dims[2]);
    const values: Tensor = { dtype: "float32", dims: [1, length, size], data: Float32Array.from(batch.features!) };
    const inputs = new Map([[input.name, values], [mask.name, maskOf(length)]]);
    const names = Array.from({ length }, (_, place) => String(place + 1));
    return { inputs, tokens: names, source: names, ids: [], sourceIds: [] };
  }

  async function ofTokens(): Promise<Given> {
    const reads = opened.manifest.model && !translates ? prompt : beginning;
    const { ids, note } = reads(opened, given.input.value, MOST);
    line.say(note);
    const target = translates ? (await targetOf(opened, ids)).slice(0, MOST) : ids;
    const pairs: [string, Tensor][] = translates ? pair("source", "source_mask", ids) : [];
    const inputs = new Map([...pairs, ...pair("tokens", "pad_mask", target)]);
    const names = pieces(opened, target);
    return { inputs, tokens: names, source: translates ? sourceNames(opened, ids, given.input.value) : names, ids: target, sourceIds: ids };
  }

  given.input.addEventListener("input", soon);
  void read();
  const none = el("p", { class: "note" }, "This bundle has no taps. Exported with --taps attention,state it shows attention and hidden states here.");
  return section("Inside the model", pad?.element ?? given.label, line, ...(opened.manifest.taps ? [] : [none]), out);
}

function pair(name: string, mask: string, ids: readonly number[]): [string, Tensor][] {
  const tensor: Tensor = { dtype: "int64", dims: [1, ids.length], data: BigInt64Array.from(ids, BigInt) };
  return [[name, tensor], [mask, maskOf(ids.length)]];
}

function maskOf(length: number): Tensor {
  return { dtype: "bool", dims: [1, length], data: new Uint8Array(length).fill(1) };
}

/** A source's tokens may be another tokenizer's: then they are named where they are its characters or words. */
function sourceNames(opened: Opened, ids: readonly number[], text: string): string[] {
  if (opened.manifest.source_tokenizer === null) return pieces(opened, ids);
  const parts = [[...text], text.trim().split(/\s+/)].find((some) => some.length === ids.length - 1);
  return parts ? [...parts.map(seen), "(end)"] : ids.map((_, place) => String(place + 1));
}

/** One layer's weights at a time, of one head or their mean. */
function attention(found: ReadonlyMap<string, Tensor>, { tokens, source }: Given): HTMLElement[] {
  const layers = [...found].filter(([name]) => name.startsWith("attention."));
  if (!layers.length) return [];
  const place = el("div", {});
  const heads = el("select", { onchange: show });
  const layer = choice("Layer", layers.map(([name]) => name.slice("attention.".length)), fill);

  function fill(): void {
    const [, weights] = layers[layer.input.selectedIndex];
    const names = Array.from({ length: weights.dims[1] }, (_, head) => `head ${head + 1}`);
    heads.replaceChildren(...["mean of all heads", ...names].map((name) => el("option", {}, name)));
    show();
  }

  function show(): void {
    const [name, weights] = layers[layer.input.selectedIndex];
    const [, count, rows, columns] = weights.dims;
    const numbers = numbersOf(weights);
    const chosen = heads.selectedIndex > 0 ? [heads.selectedIndex - 1] : Array.from({ length: count }, (_, head) => head);
    const value = (row: number, column: number) =>
      chosen.reduce((sum, head) => sum + numbers[(head * rows + row) * columns + column], 0) / chosen.length;
    const [from, to] = [named(tokens, source, rows), columns === rows ? named(tokens, source, rows) : named(source, tokens, columns)];
    place.replaceChildren(matrix({ rows: from, columns: to, label: `${name}, ${heads.value}`, value, most: 1 }));
  }

  fill();
  const label = el("label", {}, el("span", {}, "Head"), heads);
  return [el("h3", {}, "Attention: each row's token looks at the columns'"), el("div", { class: "fields" }, layer.label, label), place];
}

/** The names of so many positions: the first of two lists that has as many, else numbers. */
function named(first: readonly string[], second: readonly string[], count: number): string[] {
  const names = [first, second].find((some) => some.length === count);
  return names ? [...names] : Array.from({ length: count }, (_, place) => String(place + 1));
}

function hidden(found: ReadonlyMap<string, Tensor>, { tokens, source }: Given): HTMLElement[] {
  const states = [...found].filter(([name]) => name.startsWith("state."));
  const lengths = [...new Set(states.map(([, state]) => state.dims[1]))];
  return lengths.flatMap((length) => {
    const rows = states.filter(([, state]) => state.dims[1] === length).map(([name, state]) => {
      const [size, numbers] = [state.dims[2], numbersOf(state)];
      return { name: name.slice("state.".length), norms: Array.from({ length }, (_, at) => norm(numbers, at * size, (at + 1) * size)) };
    });
    const value = (row: number, column: number) => rows[row].norms[column];
    const columns = named(tokens, source, length);
    const drawn = matrix({ rows: rows.map(({ name }) => name), columns, label: "norm of the hidden state", value });
    return [el("h3", {}, "Norms of the hidden states after each layer"), drawn];
  });
}

/** The norm of each entry of the state after each token, entries that only grow in length left out. */
async function normsOfState(opened: Opened, { ids, sourceIds }: Given): Promise<HTMLElement | null> {
  const kept = opened.manifest.state.filter(({ dims, dtype, initial }) => !dims.some((dim) => dim === "S" || dim === "C" || dim === "M") && dtype.startsWith("float") && (initial !== null || dims[0] === "B"));
  if (!kept.length) return null;
  const session = opened.model.session();
  if (opened.kind === "translator") await session.readSource([sourceIds]);
  const points = kept.map(() => [] as [number, number][]);
  for (const [place, id] of (ids.length ? ids : [BOS]).entries()) {
    await (place ? session.step([id]) : session.prefill([[id]]));
    kept.forEach(({ name }, entry) => points[entry].push([place + 1, norm(numbersOf(session.state.get(name)!))]));
  }
  const chart = lines(kept.map(({ name }, entry) => ({ name, points: points[entry] })), "tokens read", "Norm of the state");
  return el("div", {}, el("h3", {}, "The state over time"), chart);
}
