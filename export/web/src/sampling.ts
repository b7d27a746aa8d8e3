// The choice of a token from logits: the rule in docs/bundle.md, step for step, in float64.

import { refuse } from "./error.js";

/** Options of sampling. */
export interface Sampling {
  /** divisor of the logits, 1 by default; 0 = greedy */
  temperature?: number;
  /** number of the likeliest tokens to choose from; null = all */
  topK?: number | null;
  /** probability that the likeliest tokens to choose from add up to; 1 = all */
  topP?: number;
  /** least probability of a token, relative to the likeliest; 0 = all */
  minP?: number;
  /** seed of the random numbers, from 0 to 2^64 - 1; from 2^53 on a bigint */
  seed?: number | bigint;
}

/** Throws SeqlabError if an option is outside its range. */
export function withDefaults(given: Sampling): Required<Sampling> {
  const sampling = { temperature: 1, topK: null, topP: 1, minP: 0, seed: 0, ...given };
  const { temperature, topK, topP, minP, seed } = sampling;
  if (!(Number.isFinite(temperature) && temperature >= 0)) {
    refuse(`temperature must be at least 0 and finite, got ${temperature}`);
  }
  if (topK !== null && !(Number.isInteger(topK) && topK >= 1)) refuse(`topK must be at least 1, got ${topK}`);
  if (!(topP > 0 && topP <= 1)) refuse(`topP must be above 0 and at most 1, got ${topP}`);
  if (!(minP >= 0 && minP <= 1)) refuse(`minP must be from 0 to 1, got ${minP}`);
  const whole = typeof seed === "bigint" ? seed < 2n ** 64n : Number.isSafeInteger(seed);
  if (!whole || seed < 0) refuse(`seed must be a whole number from 0 to 2^64 - 1, from 2^53 on a bigint, got ${seed}`);
  return sampling;
}

/** The token of the largest logit, ties by id; NaN counts as the largest. Throws SeqlabError if it is not finite. */
export function chooseLargest(logits: Float32Array | Float64Array): number {
  let best = 0;
  for (let place = 0; place < logits.length && !Number.isNaN(logits[best]); ++place) {
    if (!(logits[place] <= logits[best])) best = place;
  }
  if (!Number.isFinite(logits[best])) {
    refuse(`cannot choose a token: the model's largest logit is ${logits[best]}`, "internal");
  }
  return best;
}

/** Chooses from logits (V,) the token at generated position `step` of batch row `row`. */
export function choose(logits: Float64Array, sampling: Required<Sampling>, step: number, row: number): number {
  const best = chooseLargest(logits);
  if (sampling.temperature === 0) return best;
  const cumulative: number[] = [];
  const order = ordered(logits, sampling.topK);
  let sum = 0;
  for (const token of order) {
    const weight = Math.exp((logits[token] - logits[best]) / sampling.temperature);
    if (weight < sampling.minP) break;
    sum += weight;
    cumulative.push(sum);
  }
  const last = cumulative.findIndex((total) => total >= sampling.topP * sum);
  const point = uniform(BigInt(sampling.seed), step, row) * cumulative[last];
  return order[cumulative.findIndex((total) => total > point)];
}

/** The `count` best tokens, the best first, ties by id. */
function ordered(logits: Float64Array, count: number | null): Uint32Array {
  const all = Uint32Array.from(logits, (_, token) => token);
  const least = count === null || count >= logits.length ? -Infinity : Float64Array.from(logits).sort().at(-count)!;
  const kept = all.filter((token) => logits[token] >= least);
  kept.sort((a, b) => logits[b] - logits[a] || a - b);
  return kept.subarray(0, count ?? kept.length);
}

/** The random number in [0, 1), of 53 bits, for the token at `step` of `row`. */
export function uniform(seed: bigint, step: number, row: number): number {
  const [first, second] = philox([BigInt(step), BigInt(row), 0n, 0n], [seed & WORD, seed >> 32n]);
  return (Number(first >> 5n) * 2 ** 26 + Number(second >> 6n)) / 2 ** 53;
}

const WORD = 0xffffffffn;

/** Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). */
export function philox(counter: bigint[], key: bigint[]): bigint[] {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; ++round) {
    const low = 0xd2511f53n * c0;
    const high = 0xcd9e8d57n * c2;
    [c0, c1, c2, c3] = [(high >> 32n) ^ c1 ^ k0, high & WORD, (low >> 32n) ^ c3 ^ k1, low & WORD];
    [k0, k1] = [(k0 + 0x9e3779b9n) & WORD, (k1 + 0xbb67ae85n) & WORD];
  }
  return [c0, c1, c2, c3];
}
