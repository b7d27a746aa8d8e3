// A bundle as a decoder: it holds the state of a batch, which the graphs read and update.

import type { Bundle, Rows } from "./bundle.js";
import { padded } from "./bundle.js";
import { refuse } from "./error.js";
import type { Graph } from "./graph.js";
import type { StateInfo } from "./manifest.js";
import { checkDims, filled, numbersOf, takeRows, tensorOf, type Tensor } from "./tensors.js";

/** Logits (V,) after each of some tokens of a text, and guesses of the tokens after those that the logits are of. */
export interface Guessed {
  logits: Float64Array[];
  guesses: number[][];
}

export class Decoder {
  readonly model: Graph;
  readonly step: Graph;
  readonly vocabSize: number;
  /** Tensors by their names in the manifest; empty before the first prompt. */
  state: ReadonlyMap<string, Tensor> = new Map();
  private next: ReadonlyMap<string, Tensor> = new Map();
  private source: ReadonlyMap<string, Tensor> | null = null;
  private rows = 0;
  private read = 0;

  /** Throws SeqlabError if the bundle has no decoder. */
  constructor(readonly bundle: Bundle) {
    if (bundle.model === null || bundle.step === null || bundle.manifest.vocabSize === null) {
      refuse("this is the bundle of an encoder, which writes nothing; classify with it");
    }
    this.model = bundle.model;
    this.step = bundle.step;
    this.vocabSize = bundle.manifest.vocabSize;
  }

  /** Encodes sources (B, M) or (B, M, F) with their mask (B, M); every later `start` begins from them. */
  async readSource(source: Tensor, mask: Tensor): Promise<void> {
    const outputs = await this.bundle.encode(source, mask);
    this.source = new Map(this.bundle.manifest.state.map(({ name }) => [name, outputs.get(`state_${name}`)!]));
    this.rows = source.dims[0];
    this.state = new Map();
  }

  /** Resets to the state before the first token, with this number of rows. */
  start(rows: number): void {
    if (this.bundle.encoder === null) {
      this.state = new Map(this.bundle.manifest.state.map((entry) => [entry.name, this.first(entry, rows)]));
    } else {
      if (this.source === null) refuse("this model writes what a source says; read one first");
      const sources = [...this.source.values()][0]?.dims[0] ?? rows;
      if (sources !== rows) refuse(`there are ${rows} prompts and ${sources} sources; give one prompt for each`);
      this.state = this.source;
    }
    this.rows = rows;
    this.read = 0;
  }

  /** Reads tokens (B, T) and returns the logits (B, K, V) at K of its positions. `graph` is `model`, or `step` if T = 1. */
  async run(
    graph: Graph,
    rows: Rows,
    positions: readonly number[] = Array.from({ length: rows.tokens.dims[1] }, (_, place) => place),
  ): Promise<Tensor> {
    const { logits, state } = await this.compute(graph, rows, positions);
    this.state = state;
    this.read += rows.tokens.dims[1];
    return logits;
  }

  /** Runs a graph: its logits, the state that it leaves, and the guesses of one that guesses. */
  private async compute(
    graph: Graph,
    { tokens, mask }: Rows,
    positions: readonly number[],
  ): Promise<{ logits: Tensor; guesses: Tensor | undefined; state: ReadonlyMap<string, Tensor> }> {
    const named = new Map([
      ["tokens", tokens],
      ["pad_mask", mask],
      ["scored", tensorOf("int64", [positions.length], positions)],
    ]);
    const given = graph.info.inputs.map(({ name }): [string, Tensor] => [
      name,
      named.get(name) ?? this.entry(graph, name, "state_"),
    ]);
    const outputs = await graph.run(new Map(given));
    const logits = outputs.get("logits")!;
    const guesses = outputs.get("guesses");
    outputs.delete("logits");
    outputs.delete("guesses");
    checkDims(logits, [this.rows, positions.length, this.vocabSize]);
    const state = new Map(this.state);
    for (const [name, tensor] of outputs) {
      this.entry(graph, name, "new_state_");
      state.set(name.slice("new_state_".length), tensor);
    }
    return { logits, guesses, state };
  }

  /** Starts, reads prompts and returns the logits (B, V) after each. */
  async prefill(prompts: readonly (readonly number[])[]): Promise<Tensor> {
    const rows = padded(prompts, "prompt", "left");
    const [count, length] = rows.tokens.dims;
    prompts.forEach((prompt) => this.checkReadable(prompt, length));
    this.start(count);
    // Prompts are padded on the left, so each ends at the last position.
    const logits = await this.run(this.model, rows, [length - 1]);
    return { ...logits, dims: [count, this.vocabSize] };
  }

  /** Reads one more token per row and returns logits (B, V). */
  async readToken(tokens: readonly number[]): Promise<Tensor> {
    if (this.state.size === 0) refuse("a step continues a text; read a prompt first");
    if (tokens.length !== this.rows) {
      refuse(`there are ${tokens.length} tokens for ${this.rows} rows; give one for each`);
    }
    this.checkReadable(tokens, this.read + 1);
    const dims = [this.rows, 1];
    const rows = { tokens: tensorOf("int64", dims, tokens), mask: filled("bool", dims, 1) };
    const logits = await this.run(this.step, rows);
    return { ...logits, dims: [this.rows, this.vocabSize] };
  }

  /** The number of tokens that the model guesses beyond the next one. */
  get numAhead(): number {
    return Number(this.bundle.manifest.guess?.outputs.at(-1)!.dims[2] ?? 0);
  }

  /**
   * Reads tokens of a single text: the logits (V,) after each from position `first` on, and the guesses of the tokens
   * after that one. The state stays until `keep`.
   */
  async guess(tokens: readonly number[], first: number): Promise<Guessed> {
    const graph = await this.bundle.guess();
    const rows = padded([tokens], "text", "left");
    const positions = tokens.map((_, place) => place).slice(first);
    const { logits, guesses, state } = await this.compute(graph, rows, positions);
    checkDims(guesses!, [1, positions.length, this.numAhead]);
    this.next = state;
    const places = positions.map((_, place) => place);
    const { numAhead, vocabSize } = this;
    return {
      logits: places.map((place) => numbersOf(logits, place * vocabSize, (place + 1) * vocabSize)),
      guesses: places.map((place) => [...numbersOf(guesses!, place * numAhead, (place + 1) * numAhead)]),
    };
  }

  /** Goes on to the state that the last `guess` has read. */
  keep(): void {
    this.state = this.next;
  }

  /** Throws SeqlabError if an id is outside the vocabulary, or a text of `read` tokens is too long for the model. */
  checkReadable(tokens: readonly number[], read: number): void {
    const outside = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < this.vocabSize));
    if (outside !== undefined) refuse(`token ${outside} is outside the vocabulary 0..${this.vocabSize - 1}`);
    const most = this.bundle.manifest.maxSeqLen;
    if (most !== null && read > most) {
      refuse(`a text of ${read} tokens is longer than the model reads, which is ${most}`);
    }
  }

  /** Replaces the rows of the state by these of them. Consecutive rows of one source share its encoding. */
  select(rows: readonly number[]): void {
    const shared = this.sharedRows(rows);
    const take = (entry: StateInfo, tensor: Tensor) => takeRows(tensor, entry.dims[0] === "N" ? shared : rows);
    const { state } = this.bundle.manifest;
    this.state = new Map(state.map((entry) => [entry.name, take(entry, this.state.get(entry.name)!)]));
    this.rows = rows.length;
  }

  /** The rows to take from entries with one row per source (dimension N), which its consecutive rows share. */
  private sharedRows(rows: readonly number[]): number[] {
    const entry = this.bundle.manifest.state.find(({ dims }) => dims[0] === "N");
    if (entry === undefined) return [];
    const before = this.state.get(entry.name)!.dims[0];
    const each = this.rows / before;
    if (!Number.isInteger(each)) {
      refuse(`state entry ${entry.name} has ${before} rows, for ${this.rows} of the batch`, "damaged bundle");
    }
    const sources = rows.map((row) => Math.floor(row / each));
    const changes = sources.flatMap((source, place) => (place > 0 && source !== sources[place - 1] ? [place] : []));
    const beams = changes.reduce(greatestCommonDivisor, rows.length);
    return sources.filter((_, place) => place % beams === 0);
  }

  private first(entry: StateInfo, rows: number): Tensor {
    const sizes: Partial<Record<string, number>> = { B: rows, S: 0, C: this.bundle.manifest.maxSeqLen ?? 0 };
    const dims = entry.dims.map(
      (dim) =>
        (typeof dim === "number" ? dim : sizes[dim]) ??
        refuse(`state entry ${entry.name} cannot begin with ${dim}`, "damaged bundle"),
    );
    return filled(entry.dtype, dims, entry.initial!);
  }

  private entry(graph: Graph, name: string, prefix: string): Tensor {
    const found = name.startsWith(prefix) ? this.state.get(name.slice(prefix.length)) : undefined;
    return found ?? refuse(`${graph.info.file} has "${name}", which is no entry of the state`, "damaged bundle");
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
