// Log-probabilities of every token at each place of a text.

import { numbersOf } from "../src/index.js";
import { logProbabilities } from "./numbers.js";
import type { Opened } from "./opened.js";
import { MOST_TOKENS } from "./reading.js";

/** The most logits held at once. */
const MOST_LOGITS = 2 ** 24;

/** The most tokens of a text that can be scored. */
export function mostScored({ manifest }: Opened): number {
  const each = manifest.vocabSize ?? Number(manifest.encoder!.outputs[0].dims.at(-1));
  return Math.max(1, Math.min(MOST_TOKENS, Math.floor(MOST_LOGITS / each)));
}

/** Log-probabilities (V) after each token for a language model, at each token for a masked one. */
export async function scoresOf({ model }: Opened, ids: readonly number[]): Promise<Float64Array[]> {
  const logits = await model.run({ rows: 1, length: ids.length, tokens: ids });
  const size = logits.dims.at(-1)!;
  return ids.map((_, place) => logProbabilities(numbersOf(logits, place * size, (place + 1) * size)));
}

/** Log-probabilities (V) after each token of a target, which begins with bos. */
export async function scoresOfTarget(
  { model }: Opened,
  source: number[],
  target: readonly number[],
): Promise<Float64Array[]> {
  const session = model.session();
  await session.readSource([source]);
  const logits = [await session.prefill([target.slice(0, 1)])];
  for (const token of target.slice(1)) logits.push(await session.step([token]));
  return logits.map((some) => logProbabilities(numbersOf(some)));
}

/** The greedy target of a source, with bos and without eos. */
export async function targetOf({ model, manifest }: Opened, source: number[]): Promise<number[]> {
  const { bosId } = model.tokenizer;
  const { stopIds } = manifest;
  const session = model.session();
  await session.readSource([source]);
  const options = { maxNewTokens: manifest.seqLen, sampling: { temperature: 0 }, stopIds };
  const [written] = await session.generate([[bosId]], options);
  return [bosId, ...written.filter((id) => !stopIds.includes(id))];
}
