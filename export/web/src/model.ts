// The caller's view of a bundle: a model, and sessions, which hold the decoder's state.

import { beamSearch, type BeamOptions, type Hypothesis } from "./beam.js";
import { Bundle, padded, type Batch } from "./bundle.js";
import { Decoder } from "./decoder.js";
import { refuse } from "./error.js";
import type { Files } from "./files.js";
import { generate, write, type GenerateOptions, type OnText, type OnToken } from "./generate.js";
import type { Manifest } from "./manifest.js";
import { wordsOf } from "./plain_tokenizers.js";
import type { Repetition } from "./repetition.js";
import { checkDims, mostReal, numbersOf, type Ort, type Tensor } from "./tensors.js";
import type { Tokenizer } from "./tokenizer.js";
import { stepWithout, type Places } from "./without.js";

/** Options of a translation, whose targets are at most as long as the longest in training. */
export interface TranslateOptions {
  /** beams per source, 1 (greedy) by default */
  beams?: number;
  /** the exponent of the length that a score is divided by, 1 by default; 0 prefers short texts */
  lengthPenalty?: number;
  repetition?: Repetition;
  /** the beginning of every target */
  prefix?: string;
}

/** A target that was found, with the prefix. The hypothesis excludes it. */
export interface Translation {
  text: string;
  hypothesis: Hypothesis;
}

/** Probabilities (rows, C) of the manifest's labels, for a text or for each of its words. */
export interface Classes {
  /** empty if the probabilities are the whole text's */
  words: string[];
  rows: number;
  probabilities: number[];
}

/** Checks a bundle's manifest and the sha256 of each file, then loads its graphs. */
export async function open(files: Files, ort: Ort): Promise<Model> {
  return new Model(await Bundle.open(files, ort));
}

export class Model {
  constructor(private readonly bundle: Bundle) {}

  get manifest(): Manifest {
    return this.bundle.manifest;
  }

  /** The tokenizer of the output. Throws SeqlabError if the bundle has none. */
  get tokenizer(): Tokenizer {
    return this.bundle.tokenizer;
  }

  /** The tokenizer of the input. Throws SeqlabError if the bundle has none. */
  get sourceTokenizer(): Tokenizer {
    return this.bundle.sourceTokenizer;
  }

  encode(text: string): number[] {
    return this.bundle.tokenizer.encode(text);
  }

  encodeSource(text: string): number[] {
    return this.bundle.sourceTokenizer.encode(text);
  }

  decode(ids: readonly number[]): string {
    return this.bundle.tokenizer.decode(ids);
  }

  /** Logits (B, C) or (B, T, C) of an encoder, (B, T, V) of a language model. */
  async run(batch: Batch): Promise<Tensor> {
    const { bundle } = this;
    if (bundle.model !== null && bundle.encoder !== null) refuse("this model writes what a source says; use a session");
    const rows = bundle.read(batch);
    if (bundle.encoder !== null) return (await bundle.encode(rows.tokens, rows.mask)).values().next().value!;
    const decoder = new Decoder(bundle);
    decoder.checkReadable(Array.from(numbersOf(rows.tokens)), mostReal(rows.mask));
    decoder.start(batch.rows);
    return decoder.run(decoder.model, rows);
  }

  session(): Session {
    return new Session(this.bundle);
  }

  /** Attention weights and hidden states by name, for a text or for inputs by the names in the manifest's `taps`. */
  async tap(given: string | ReadonlyMap<string, Tensor>): Promise<Map<string, Tensor>> {
    if (typeof given !== "string") return this.bundle.tap(given);
    const names = this.manifest.taps?.inputs.map((input) => input.name) ?? [];
    if (names.length > 2) refuse(`the taps of this bundle take ${names.join(", ")}; give them as tensors`);
    const { tokens, mask } = padded([this.encode(given)], "text", "right");
    return this.bundle.tap(new Map(names.map((name, place) => [name, [tokens, mask][place]])));
  }
}

/** One user's use of a model, with the state of its decoder. It takes one call at a time. */
export class Session {
  private made: Decoder | null = null;

  constructor(private readonly bundle: Bundle) {}

  /** The decoder's state by names in the manifest. */
  get state(): ReadonlyMap<string, Tensor> {
    return this.decoder.state;
  }

  /** Reads one source per row, each ending with eos; later calls write their targets. */
  async readSource(sources: readonly (readonly number[])[]): Promise<void> {
    const { tokens, mask } = padded(sources, "source", "right");
    await this.decoder.readSource(tokens, mask);
  }

  /** Starts, reads one prompt per row, of any lengths, and returns the logits (B, V) after each. */
  async prefill(prompts: readonly (readonly number[])[]): Promise<Tensor> {
    return this.decoder.prefill(prompts);
  }

  /** Reads one more token per row and returns logits (B, V). */
  async step(tokens: readonly number[]): Promise<Tensor> {
    return this.decoder.readToken(tokens);
  }

  /**
   * Reads one more token of the only row. The returned state has one row more than `zeroed`: the new state, then the
   * new state if the places in each element of `zeroed` had been zero.
   */
  async stepWithout(token: number, zeroed: readonly Places[]): Promise<ReadonlyMap<string, Tensor>> {
    return stepWithout(this.decoder, token, zeroed);
  }

  /** Continues prompts and returns the new tokens of each. */
  async generate(
    prompts: readonly (readonly number[])[],
    options: GenerateOptions = {},
    onToken?: OnToken,
  ): Promise<number[][]> {
    return generate(this.decoder, prompts, options, onToken);
  }

  /** Returns the best continuations of each prompt, the best first. */
  async beamSearch(prompts: readonly (readonly number[])[], options: BeamOptions = {}): Promise<Hypothesis[][]> {
    return beamSearch(this.decoder, prompts, options);
  }

  /** Continues a prompt until the model ends the text, with the manifest's stop_ids in place of `options.stopIds`. */
  async write(prompt: string, options: GenerateOptions = {}, onText?: OnText): Promise<string> {
    return write(this.decoder, prompt, options, onText);
  }

  /** Translates source texts as one batch: at most `beams` targets for each, the best first. */
  async translate(texts: readonly string[], options: TranslateOptions = {}): Promise<Translation[][]> {
    const { tokenizer, sourceTokenizer, manifest } = this.bundle;
    const { prefix = "", ...search } = options;
    const sources = texts.map((text) => [...sourceTokenizer.encode(text), sourceTokenizer.eosId]);
    const forced = tokenizer.encode(prefix);
    const most = manifest.seqLen;
    if (forced.length >= most) refuse(`the prefix has ${forced.length} tokens, a target at most ${most}; shorten it`);
    await this.readSource(sources);
    const prompt = [tokenizer.bosId, ...forced];
    const found = await this.beamSearch(
      texts.map(() => prompt),
      {
        ...search,
        maxNewTokens: most - forced.length,
        stopIds: manifest.stopIds,
      },
    );
    const read = (hypothesis: Hypothesis) => tokenizer.decode([...forced, ...hypothesis.tokens]);
    return found.map((some) => some.map((hypothesis) => ({ text: read(hypothesis), hypothesis })));
  }

  /** Probabilities of the classes of a text, or of each of its words. */
  async classify(text: string): Promise<Classes> {
    const { bundle } = this;
    const { length: classes } = bundle.manifest.labels;
    if (bundle.model !== null || classes === 0) refuse("classify reads texts: it needs a bundle with classes");
    const words = wordsOf(text);
    if (words.length === 0) refuse("the text is empty; give one with a word at least");
    const { tokens, mask } = padded([bundle.tokenizer.encode(text)], "text", "right");
    const logits: Tensor = (await bundle.encode(tokens, mask)).values().next().value!;
    const [, length] = tokens.dims;
    const tags = logits.dims.length === 3;
    if (tags && length !== words.length) {
      refuse(`the text has ${words.length} words and ${length} tokens; tags are of words`);
    }
    checkDims(logits, tags ? [1, length, classes] : [1, classes]);
    const rows = tags ? length : 1;
    const ofRow = (row: number) => softmax(numbersOf(logits, row * classes, (row + 1) * classes));
    const probabilities = Array.from({ length: rows }, (_, row) => ofRow(row)).flat();
    return { words: tags ? words : [], rows, probabilities };
  }

  /** Throws SeqlabError if the bundle has none. */
  private get decoder(): Decoder {
    this.made ??= new Decoder(this.bundle);
    return this.made;
  }
}

function softmax(logits: Float64Array): number[] {
  const powers = Array.from(logits, (logit) => Math.exp(logit - Math.max(...logits)));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}
