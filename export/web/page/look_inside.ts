// Look inside: the attention of each layer, the norms of its hidden states, and the state that a recurrence keeps.

import { numbersOf, type Session, type Tensor, type TensorInfo } from "../src/index.js";
import { attentionView } from "./attention.js";
import { area, el, figures, latest, notice, section, settled, type Chosen } from "./dom.js";
import { drawing } from "./drawing.js";
import { keptOf, partsOf, statesOf } from "./kept.js";
import { matrix } from "./matrix.js";
import { namesAlong, type Names } from "./names.js";
import { norm } from "./numbers.js";
import type { Opened } from "./opened.js";
import { beginning, pieces, prompt, seen } from "./reading.js";
import { targetOf } from "./scores.js";
import { keptView, statesView } from "./states.js";

/** The most positions that can be made out in a drawing. */
const MOST = 64;

/** Inputs by the names of the taps' inputs, and the names of their positions. */
interface Given extends Names {
  inputs: Map<string, Tensor>;
  ids: number[];
  sourceIds: number[];
}

export function lookInsideView(opened: Opened, text: string): HTMLElement {
  const features = opened.kind === "features";
  const translates = opened.kind === "translator";
  const { taps } = opened.manifest;
  const infos = taps?.outputs ?? [];
  const given = area(translates ? "Source" : "Text", text || (opened.kind === "speller" ? "1 2 3" : ""), 2);
  const soon = settled(() => void run(read));
  const pad = features ? drawing(opened, soon) : null;
  const line = notice();
  const out = el("div", { id: "inside" });
  const chosen: Chosen = new Map();
  const run = latest(line);

  async function read(wanted: () => boolean): Promise<void> {
    if (!pad && !given.input.value.trim()) return void (out.replaceChildren(), line.say("Type a text."));
    line.say("");
    const of = pad ? ofFeatures(pad.read()) : await ofTokens();
    const found = taps ? await opened.model.tap(of.inputs) : new Map<string, Tensor>();
    if (!wanted()) return;
    out.replaceChildren(...attentionView(found, infos, of, chosen), hidden(found, infos, of));
    if (opened.manifest.model) await addState(of, wanted);
  }

  /** Appends the views of the state, which take a step per token. */
  async function addState({ ids, sourceIds, tokens }: Given, wanted: () => boolean): Promise<void> {
    const start = async (): Promise<Session> => {
      const session = opened.model.session();
      if (translates) await session.readSource([sourceIds]);
      return session;
    };
    const reading = { ids, start, wanted };
    const entries = await statesOf(opened.manifest, reading);
    if (!entries.length || !wanted()) return;
    const wait = el("p", { class: "note" }, "Measuring what each token keeps of it …");
    out.append(...statesView(entries, tokens, chosen), wait);
    const kept = ids.length > 1 ? await keptOf(reading, partsOf(entries)) : [];
    wait.replaceWith(...(kept.length ? keptView(kept, tokens, chosen) : []));
  }

  function ofFeatures(batch: ReturnType<NonNullable<typeof pad>["read"]>): Given {
    const [input, mask] = opened.manifest.encoder!.inputs;
    const { length } = batch;
    const size = Number(input.dims[2]);
    const values: Tensor = { dtype: "float32", dims: [1, length, size], data: Float32Array.from(batch.features!) };
    const inputs = new Map([
      [input.name, values],
      [mask.name, maskOf(length)],
    ]);
    const { images } = opened.about;
    const across = images ? images.width / images.patch : 1;
    const name = (place: number) =>
      images ? `${Math.floor(place / across) + 1}·${(place % across) + 1}` : String(place + 1);
    const patches = images ? "2·3 is the patch in row 2 and column 3." : "";
    const cut = length > MOST ? `Only the first ${MOST} positions are drawn; the model reads all ${length}.` : "";
    line.say(`${patches} ${cut}`.trim());
    return {
      inputs,
      tokens: Array.from({ length: Math.min(MOST, length) }, (_, place) => name(place)),
      source: [],
      ids: [],
      sourceIds: [],
    };
  }

  async function ofTokens(): Promise<Given> {
    const reads = opened.manifest.model && !translates ? prompt : beginning;
    const { ids, note } = reads(opened, given.input.value, MOST);
    line.say(note);
    const target = translates ? (await targetOf(opened, ids)).slice(0, MOST) : ids;
    const pairs: [string, Tensor][] = translates ? pair("source", "source_mask", ids) : [];
    const inputs = new Map([...pairs, ...pair("tokens", "pad_mask", target)]);
    const source = translates ? sourceNames(opened, ids, given.input.value) : [];
    return { inputs, tokens: pieces(opened, target), source, ids: target, sourceIds: ids };
  }

  given.input.addEventListener("input", soon);
  void run(read);
  const none = el(
    "p",
    { class: "note" },
    "This bundle has no taps. Exported with --taps attention,state it shows attention and hidden states here.",
  );
  return section("Inside the model", pad?.element ?? given.label, line, ...(taps ? [] : [none]), out);
}

function pair(name: string, mask: string, ids: readonly number[]): [string, Tensor][] {
  const tensor: Tensor = { dtype: "int64", dims: [1, ids.length], data: BigInt64Array.from(ids, BigInt) };
  return [
    [name, tensor],
    [mask, maskOf(ids.length)],
  ];
}

function maskOf(length: number): Tensor {
  return { dtype: "bool", dims: [1, length], data: new Uint8Array(length).fill(1) };
}

/** Names of a source's tokens. With a tokenizer of its own they are the characters or words if the numbers agree. */
function sourceNames(opened: Opened, ids: readonly number[], text: string): string[] {
  if (opened.manifest.sourceTokenizer === null) return pieces(opened, ids);
  const parts = [[...text], text.trim().split(/\s+/)].find((some) => some.length === ids.length - 1);
  return parts ? [...parts.map(seen), "(end)"] : ids.map((_, place) => String(place + 1));
}

/** Draws the norms of the hidden states, an encoder's apart from a decoder's. */
function hidden(found: ReadonlyMap<string, Tensor>, infos: readonly TensorInfo[], names: Names): HTMLElement {
  const states = infos.filter(({ name }) => name.startsWith("state."));
  const drawings = [...new Set(states.map(({ dims }) => dims[1]))].map((along) => {
    const some = states.filter(({ dims }) => dims[1] === along).map(({ name }) => name);
    const norms = some.map((name) => {
      const [state, numbers] = [found.get(name)!, numbersOf(found.get(name)!)];
      const [, length, size] = state.dims;
      return Array.from({ length }, (_, at) => norm(numbers, at * size, (at + 1) * size));
    });
    const rows = some.map((name) => name.slice("state.".length));
    const columns = namesAlong(along, norms[0].length, names);
    const drawn = matrix({
      rows,
      columns,
      label: "norm of the hidden state",
      value: (row, column) => norms[row][column],
    });
    const of = along === "M" ? " over the source" : "";
    return el("div", {}, el("h3", {}, `Norms of the hidden states after each layer${of}`), drawn);
  });
  return figures(...drawings);
}
