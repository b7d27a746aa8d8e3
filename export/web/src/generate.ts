// The decoding loop: prefill, then one step per token.

import type { Decoder } from "./decoder.js";
import { refuse } from "./error.js";
import { wordsOf } from "./plain_tokenizers.js";
import { applyRules, withDefaultRules, type Repetition } from "./repetition.js";
import { choose, withDefaults, type Sampling } from "./sampling.js";
import { speculate } from "./speculate.js";
import { numbersOf } from "./tensors.js";
import { beginOf, TextStream } from "./tokenizer.js";

/** Options of generation. */
export interface GenerateOptions {
  /** the most tokens to write, 200 by default */
  maxNewTokens?: number;
  sampling?: Sampling;
  repetition?: Repetition;
  /** tokens that end a row, which keeps them */
  stopIds?: readonly number[];
}

/** A callback's answer: false cancels the call, which then throws a SeqlabError "cancelled". */
type Answer = boolean | void;
/** Receives the row and the token as soon as each is chosen. */
export type OnToken = (row: number, token: number) => Answer | Promise<Answer>;
/** Receives each piece of new text as soon as it is complete; the pieces join to the text. */
export type OnText = (piece: string) => Answer | Promise<Answer>;

const MOST_NEW_TOKENS = 200;

/** The most tokens to write. Throws SeqlabError if the model has too few positions for them after these prompts. */
export function checkLengths(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  given: number | undefined,
): number {
  const most = given ?? MOST_NEW_TOKENS;
  const longest = Math.max(0, ...prompts.map((prompt) => prompt.length));
  if (!(Number.isInteger(most) && most >= 1)) refuse(`maxNewTokens must be at least 1, got ${most}`);
  const positions = decoder.bundle.manifest.maxSeqLen;
  // The last new token is never read.
  if (positions !== null && longest + most - 1 > positions) {
    refuse(
      `a prompt of ${longest} tokens and ${most} new ones need more positions than the model has, ${positions}; ` +
        "shorten the prompt or ask for fewer tokens",
    );
  }
  return most;
}

/** Chooses the token at place `step` of a row from logits (V,) that follow a text; it may change them. */
export type Chooses = (logits: Float64Array, text: readonly number[], step: number, row: number) => number;

/** The choice that options make. Throws SeqlabError if one is out of range. */
export function choosesOf(options: GenerateOptions): Chooses {
  const sampling = withDefaults(options.sampling ?? {});
  const rules = withDefaultRules(options.repetition);
  return (logits, text, step, row) => {
    applyRules(rules, text, logits);
    return choose(logits, sampling, step, row);
  };
}

/** Continues prompts and returns the new tokens of each. */
export async function generate(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
  onToken?: OnToken,
): Promise<number[][]> {
  const choose = choosesOf(options);
  const most = checkLengths(decoder, prompts, options.maxNewTokens);
  if (prompts.length === 1 && prompts[0].length > 0 && decoder.numAhead > 0) {
    return [await speculate(decoder, prompts[0], most, options, onToken)];
  }
  const stops = new Set(options.stopIds);
  const chosen: number[][] = prompts.map(() => []);
  let running = prompts.map((_, row) => row);
  let logits = await decoder.prefill(prompts);
  for (let step = 0; ; ++step) {
    for (const row of running) {
      const scores = numbersOf(logits, row * decoder.vocabSize, (row + 1) * decoder.vocabSize);
      const token = choose(scores, [...prompts[row], ...chosen[row]], step, row);
      chosen[row].push(token);
      if ((await onToken?.(row, token)) === false) refuseCancelled();
    }
    running = running.filter((row) => !stops.has(chosen[row][step]));
    if (running.length === 0 || step + 1 === most) return chosen;
    // A row that has ended is fed token 0 until the others end; its logits are ignored.
    logits = await decoder.readToken(prompts.map((_, row) => (running.includes(row) ? chosen[row][step] : 0)));
  }
}

/** Continues a prompt until the model ends the text. Without a tokenizer prompt and text are ids, such as "5 6 7". */
export async function write(
  decoder: Decoder,
  prompt: string,
  options: GenerateOptions,
  onText?: OnText,
): Promise<string> {
  let text = "";
  const show = async (piece: string) => {
    text += piece;
    return piece === "" ? undefined : onText?.(piece);
  };
  const { stopIds } = decoder.bundle.manifest;
  if (decoder.bundle.manifest.tokenizer === null) {
    await generate(decoder, [readIds(prompt)], { ...options, stopIds }, (_, token) =>
      show(text === "" ? String(token) : ` ${token}`),
    );
    return text;
  }
  const { tokenizer } = decoder.bundle;
  const stream = new TextStream(tokenizer);
  const ids = tokenizer.encode(prompt);
  const begun = ids.length > 0 ? ids : [beginOf(tokenizer)];
  await generate(decoder, [begun], { ...options, stopIds }, (_, token) => show(stream.push(token)));
  if ((await show(stream.finish())) === false) refuseCancelled();
  return text;
}

export function refuseCancelled(): never {
  refuse("the callback has cancelled what was being written", "cancelled");
}

/** Parses ids that are separated by spaces. */
function readIds(text: string): number[] {
  const words = wordsOf(text);
  const wrong = words.find((word) => !/^[0-9]{1,9}$/.test(word));
  if (words.length === 0 || wrong !== undefined) {
    const got = wrong === undefined ? "none" : `"${wrong.slice(0, 60)}"`;
    refuse(`this model has no tokenizer, and a prompt is ids, such as "5 6 7"; got ${got}`);
  }
  return words.map(Number);
}
