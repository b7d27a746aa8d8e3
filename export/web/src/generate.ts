// The decoding loop: prefill, then one step a token.

import type { Decoder } from "./decoder.js";
import { refuse } from "./error.js";
import { wordsOf } from "./plain_tokenizers.js";
import { applyRules, withDefaultRules, type Repetition } from "./repetition.js";
import { choose, withDefaults, type Sampling } from "./sampling.js";
import { numbersOf } from "./tensors.js";
import { beginOf, TextStream } from "./tokenizer.js";

/** How a text is continued. */
export interface GenerateOptions {
  /** where nothing ends it before; 200 where it is not given */
  maxNewTokens?: number;
  sampling?: Sampling;
  repetition?: Repetition;
  /** a row ends with any of these, which it keeps */
  stopIds?: readonly number[];
}

/** What a callback says: false cancels what was asked, which then throws a SeqlabError "cancelled". */
type GoesOn = boolean | void;
/** Called with the row and the token as each is chosen. */
export type OnToken = (row: number, token: number) => GoesOn | Promise<GoesOn>;
/** Called with each piece of new text as it is complete; the pieces join to the text. */
export type OnText = (piece: string) => GoesOn | Promise<GoesOn>;

const MOST_NEW_TOKENS = 200;

/** Throws SeqlabError where so many tokens cannot be written after these prompts; else how many. */
export function checkLengths(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  given: number | undefined,
): number {
  const most = given ?? MOST_NEW_TOKENS, longest = Math.max(0, ...prompts.map((prompt) => prompt.length));
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

/** Continues prompts: the new tokens of each. */
export async function generate(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
  onToken?: OnToken,
): Promise<number[][]> {
  const sampling = withDefaults(options.sampling ?? {}), rules = withDefaultRules(options.repetition);
  const most = checkLengths(decoder, prompts, options.maxNewTokens), stops = new Set(options.stopIds);
  const chosen: number[][] = prompts.map(() => []);
  let running = prompts.map((_, row) => row);
  let logits = await decoder.prefill(prompts);
  for (let step = 0; ; ++step) {
    for (const row of running) {
      const scores = numbersOf(logits, row * decoder.vocabSize, (row + 1) * decoder.vocabSize);
      applyRules(rules, [...prompts[row], ...chosen[row]], scores);
      const token = choose(scores, sampling, step, row);
      chosen[row].push(token);
      if ((await onToken?.(row, token)) === false) refuseCancelled();
    }
    running = running.filter((row) => !stops.has(chosen[row][step]));
    if (running.length === 0 || step + 1 === most) return chosen;
    // A row that has ended is fed token 0 until the others end; nothing reads what it gives.
    logits = await decoder.readToken(prompts.map((_, row) => (running.includes(row) ? chosen[row][step] : 0)));
  }
}

/** What a model writes after a prompt, until it ends the text; without a tokenizer both are ids, such as "5 6 7". */
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
  const stream = new TextStream(tokenizer), ids = tokenizer.encode(prompt);
  const begun = ids.length > 0 ? ids : [beginOf(tokenizer)];
  await generate(decoder, [begun], { ...options, stopIds }, (_, token) => show(stream.push(token)));
  if ((await show(stream.finish())) === false) refuseCancelled();
  return text;
}

function refuseCancelled(): never {
  refuse("the callback has cancelled what was being written", "cancelled");
}

/** The ids that a text writes, separated by spaces. */
function readIds(text: string): number[] {
  const words = wordsOf(text), wrong = words.find((word) => !/^[0-9]{1,9}$/.test(word));
  if (words.length === 0 || wrong !== undefined) {
    const got = wrong === undefined ? "none" : `"${wrong.slice(0, 60)}"`;
    refuse(`this model has no tokenizer, and a prompt is ids, such as "5 6 7"; got ${got}`);
  }
  return words.map(Number);
}
