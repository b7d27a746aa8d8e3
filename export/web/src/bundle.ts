// An open bundle: its manifest, graphs and tokenizers.

import { refuse, sentenceOf } from "./error.js";
import { checkedManifest, type Files } from "./files.js";
import { Graph } from "./graph.js";
import { isFloat, type GraphInfo, type Manifest } from "./manifest.js";
import { versionOf } from "./manifest_checks.js";
import { loadTokenizer } from "./stored_tokenizer.js";
import { filled, mostReal, sizeOf, tensorOf, type Ort, type Tensor } from "./tensors.js";
import type { Tokenizer } from "./tokenizer.js";

/** Rows of equal length. A bundle reads either tokens or features. */
export interface Batch {
  /** B */
  rows: number;
  /** T */
  length: number;
  /** (B, T) */
  tokens?: ArrayLike<number>;
  /** (B, T, F) */
  features?: ArrayLike<number>;
  /** (B, T), 1 = real, 0 = padding; all real by default. The real tokens of a row are contiguous. */
  padMask?: ArrayLike<number>;
}

/** Tokens (B, T) and their mask. */
export interface Rows {
  tokens: Tensor;
  mask: Tensor;
}

/** A tokenizer, or the reason why there is none. */
type MaybeTokenizer = Tokenizer | string;

export class Bundle {
  private taps: Promise<Graph> | null = null;
  private guesser: Promise<Graph> | null = null;

  private constructor(
    private readonly ort: Ort,
    private readonly files: Files,
    readonly manifest: Manifest,
    readonly encoder: Graph | null,
    readonly model: Graph | null,
    readonly step: Graph | null,
    private readonly target: MaybeTokenizer,
    private readonly source: MaybeTokenizer,
  ) {}

  static async open(files: Files, ort: Ort): Promise<Bundle> {
    const manifest = await checkedManifest(files);
    const here = ort.env.versions.web ?? ort.env.versions.common;
    const needed = manifest.minOnnxruntime;
    const [[major, minor], [least, leastMinor]] = [versionOf(here), versionOf(needed)];
    if (major < least || (major === least && minor < leastMinor)) {
      refuse(`this bundle needs onnxruntime ${needed}, here is onnxruntime-web ${here}`, "unsupported");
    }
    const opened = (info: GraphInfo | null) => (info === null ? null : Graph.open(ort, files, info, manifest.target));
    const encoder = await opened(manifest.encoder);
    const model = await opened(manifest.model);
    const step = await opened(manifest.step);
    const target = await loaded(files, manifest.tokenizer);
    const source = manifest.sourceTokenizer === null ? target : await loaded(files, manifest.sourceTokenizer);
    return new Bundle(ort, files, manifest, encoder, model, step, target, source);
  }

  get tokenizer(): Tokenizer {
    return present(this.target);
  }

  get sourceTokenizer(): Tokenizer {
    return present(this.source);
  }

  /** The encoder's outputs by name. */
  async encode(inputs: Tensor, mask: Tensor): Promise<Map<string, Tensor>> {
    if (this.encoder === null) refuse("this is the bundle of a language model, which reads prompts");
    const longest = this.manifest.maxSourceLen;
    const tokens = mostReal(mask);
    if (longest !== null && tokens > longest) {
      refuse(`an input has ${tokens} tokens, this bundle reads at most ${longest}`);
    }
    const [input, inputMask] = this.encoder.info.inputs;
    return this.encoder.run(
      new Map([
        [input.name, inputs],
        [inputMask.name, mask],
      ]),
    );
  }

  /** The graph that guesses tokens, loaded when first used. */
  guess(): Promise<Graph> {
    this.guesser ??= Graph.open(this.ort, this.files, this.manifest.guess!, this.manifest.target);
    return this.guesser;
  }

  /** Tensors of a batch: the encoder's input, or else tokens, and the mask. */
  read(batch: Batch): Rows {
    const { rows, length } = batch;
    if (!(rows >= 1 && length >= 1 && rows * length <= 2 ** 31)) {
      refuse("a batch has at least one row and one token, and at most 2^31 tokens");
    }
    const given = this.encoder?.info.inputs[0];
    const dims = [rows, length];
    const features = given !== undefined && isFloat(given);
    if (features) dims.push(Number(given.dims.at(-1)));
    const numbers = (features ? batch.features : batch.tokens) ?? [];
    const mask = batch.padMask ?? new Uint8Array(rows * length).fill(1);
    if (mask.length !== rows * length || numbers.length !== sizeOf(dims)) {
      refuse(`a batch of ${rows} rows of ${length} must have ${sizeOf(dims)} numbers and ${rows * length} in its mask`);
    }
    checkPadding(mask, rows, length);
    if (!features) checkIds(Array.from(numbers), "the batch");
    const dtype = features ? given.dtype : "int64";
    return { tokens: tensorOf(dtype, dims, numbers), mask: tensorOf("bool", [rows, length], mask) };
  }

  /** Attention weights and hidden states by name, for inputs by the names in the manifest's `taps`. */
  async tap(inputs: ReadonlyMap<string, Tensor>): Promise<Map<string, Tensor>> {
    const info = this.manifest.taps;
    if (info === null) refuse("this bundle has no taps; export it with --taps attention,state");
    const names = info.inputs.map((input) => input.name);
    if (names.join() !== [...inputs.keys()].join()) {
      refuse(`the taps of this bundle take ${names.join(", ")}; got ${[...inputs.keys()].join(", ") || "nothing"}`);
    }
    this.taps ??= Graph.open(this.ort, this.files, info, this.manifest.target);
    return (await this.taps).run(inputs);
  }
}

/** Pads rows of any lengths to one tensor. */
export function padded(rows: readonly (readonly number[])[], what: string, side: "left" | "right"): Rows {
  if (rows.length === 0) refuse(`there is no ${what}; give at least one`);
  rows.forEach((row, number) => {
    if (row.length === 0) refuse(`${what} ${number} is empty; it needs at least one token`);
    checkIds(row, `${what} ${number}`);
  });
  const width = Math.max(...rows.map((row) => row.length));
  const dims = [rows.length, width];
  const tokens = filled("int64", dims, 0);
  const mask = filled("bool", dims, 0);
  rows.forEach((row, number) => {
    const first = number * width + (side === "left" ? width - row.length : 0);
    tokens.data.set(row.map(BigInt) as never, first);
    mask.data.fill(1 as never, first, first + row.length);
  });
  return { tokens, mask };
}

function checkIds(ids: readonly number[], what: string): void {
  const wrong = ids.find((id) => !Number.isSafeInteger(id) || id < 0);
  if (wrong !== undefined) refuse(`${what} has token ${wrong}, ids are whole numbers from 0`);
}

function checkPadding(mask: ArrayLike<number>, rows: number, length: number): void {
  for (let row = 0; row < rows; ++row) {
    const real = Array.from({ length }, (_, place) => mask[row * length + place]);
    if (real.some((one) => one !== 0 && one !== 1)) refuse("padMask must be of 0 and 1");
    if (real.filter((one, place) => one === 1 && real[place - 1] !== 1).length > 1) {
      refuse(`row ${row} of padMask has padding between real tokens; it may only stand before and after them`);
    }
  }
}

async function loaded(files: Files, folder: string | null): Promise<MaybeTokenizer> {
  if (folder === null) return "this bundle has no tokenizer; give it ids";
  try {
    return await loadTokenizer(files, folder);
  } catch (error) {
    return `${folder}: ${sentenceOf(error)}`;
  }
}

function present(tokenizer: MaybeTokenizer): Tokenizer {
  if (typeof tokenizer === "string") refuse(tokenizer, "unsupported");
  return tokenizer;
}
