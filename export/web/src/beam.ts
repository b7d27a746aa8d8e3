// Beam search: the best texts that a model writes. It is seqlab.decoding's search, in float64.

import type { Decoder } from "./decoder.js";
import { refuse } from "./error.js";
import { checkLengths } from "./generate.js";
import { applyRules, withDefaultRules, type Repetition } from "./repetition.js";
import { numbersOf, takeRows, type Tensor } from "./tensors.js";

/** Options of a beam search. */
export interface BeamOptions {
  /** beams per prompt, 1 (greedy) by default */
  beams?: number;
  /** the most tokens to write, 200 by default */
  maxNewTokens?: number;
  /** the exponent of the length that a score is divided by, 1 by default; 0 prefers short texts */
  lengthPenalty?: number;
  repetition?: Repetition;
  /** tokens that end a text, which keeps them */
  stopIds?: readonly number[];
}

/** A text that was found: its new tokens, and their log-probability divided by length^lengthPenalty. */
export interface Hypothesis {
  tokens: number[];
  score: number;
}

/** A beam continued by one token, and the sum of its log-probabilities. */
interface Candidate {
  total: number;
  beam: number;
  token: number;
}

const MOST_BEAMS = 10000;

/** Returns the best continuations of each prompt, the best first. */
export async function beamSearch(
  decoder: Decoder,
  prompts: readonly (readonly number[])[],
  options: BeamOptions,
): Promise<Hypothesis[][]> {
  const settings = { beams: 1, lengthPenalty: 1, ...options };
  const { beams } = settings;
  if (!(Number.isInteger(beams) && beams >= 1 && beams <= MOST_BEAMS)) {
    refuse(`beams must be from 1 to ${MOST_BEAMS}, got ${beams}`);
  }
  if (!Number.isFinite(settings.lengthPenalty)) refuse(`lengthPenalty must be finite, got ${settings.lengthPenalty}`);
  const rules = withDefaultRules(options.repetition);
  const most = checkLengths(decoder, prompts, options.maxNewTokens);
  const stops = new Set(options.stopIds);
  // All beams of a prompt begin with its logits and its state: (B, V) to (B x K, V).
  const first = await decoder.prefill(prompts);
  const repeated = prompts.flatMap((_, row) => Array<number>(beams).fill(row));
  decoder.select(repeated);
  let logits = takeRows(first, repeated);
  const searches = prompts.map((prompt) => new Search(prompt, beams, settings.lengthPenalty, rules, stops));
  let going = searches;
  for (let step = 0; step < most; ++step) {
    going.forEach((search, place) => search.extend(logits, place * beams, step + 1 === most));
    const rest = [...going.keys()].filter((place) => !going[place].done);
    if (rest.length === 0 || step + 1 === most) break;
    decoder.select(rest.flatMap((place) => going[place].going.map(({ beam }) => place * beams + beam)));
    going = rest.map((place) => going[place]);
    logits = await decoder.readToken(going.flatMap((search) => search.going.map(({ token }) => token)));
  }
  return searches.map((search) => search.found);
}

/** The beams of one prompt, K of them. */
class Search {
  /** The old beam that each new beam continues, and the token that it adds. */
  going: { beam: number; token: number }[] = [];
  private finished: Hypothesis[] = [];
  private tokens: number[][];
  private scores: number[];

  constructor(
    private readonly prompt: readonly number[],
    private readonly beams: number,
    private readonly lengthPenalty: number,
    private readonly rules: Required<Repetition>,
    private readonly stops: ReadonlySet<number>,
  ) {
    this.tokens = Array.from({ length: beams }, () => []);
    // All beams are alike at first, so only one of them counts.
    this.scores = this.tokens.map((_, beam) => (beam === 0 ? 0 : -Infinity));
  }

  /** True once K texts are finished and no running beam scores better than the best of them. */
  get done(): boolean {
    if (this.finished.length < this.beams) return false;
    const going = Math.max(...this.scores) / this.tokens[0].length ** this.lengthPenalty;
    return this.finished.some((found) => going <= found.score);
  }

  get found(): Hypothesis[] {
    return this.finished.toSorted((a, b) => b.score - a.score).slice(0, this.beams);
  }

  /** Extends the beams by one token, given the logits (K, V) from `firstRow` on. */
  extend(logits: Tensor, firstRow: number, last: boolean): void {
    const going: Candidate[] = [];
    for (const [rank, candidate] of this.best(logits, firstRow).entries()) {
      if (going.length === this.beams) break;
      if (!this.stops.has(candidate.token) && !last) {
        going.push(candidate);
      } else if (rank < this.beams) {
        const tokens = [...this.tokens[candidate.beam], candidate.token];
        this.finished.push({ tokens, score: candidate.total / tokens.length ** this.lengthPenalty });
      }
    }
    // A small vocabulary may offer fewer continuations than there are beams: the spare beams can never win.
    while (going.length < this.beams) going.push({ total: -Infinity, beam: 0, token: 0 });
    this.going = going;
    this.tokens = going.map(({ beam, token }) => [...this.tokens[beam], token]);
    this.scores = going.map(({ total }) => total);
  }

  /** The continuations that can matter, the best first; ties go to the earlier beam, then to the lower token. */
  private best(logits: Tensor, firstRow: number): Candidate[] {
    const most = this.beams * (1 + this.stops.size);
    const vocabSize = logits.dims[1];
    const best: Candidate[] = [];
    this.scores.forEach((score, beam) => {
      if (score === -Infinity) return;
      const row = numbersOf(logits, (firstRow + beam) * vocabSize, (firstRow + beam + 1) * vocabSize);
      applyRules(this.rules, [...this.prompt, ...this.tokens[beam]], row);
      logSoftmax(row).forEach((chance, token) => {
        const total = score + chance;
        if (!(total > (best.length < most ? -Infinity : best[most - 1].total))) return;
        let place = best.length;
        while (place > 0 && best[place - 1].total < total) --place;
        best.splice(place, 0, { total, beam, token });
        best.length = Math.min(best.length, most);
      });
    });
    return best;
  }
}

/** Log-probabilities from logits (V,). */
export function logSoftmax(logits: Float64Array): Float64Array {
  const largest = logits.reduce((most, logit) => Math.max(most, logit), -Infinity);
  const whole = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
  return logits.map((logit) => logit - largest - whole);
}
