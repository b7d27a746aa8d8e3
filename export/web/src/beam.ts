// Beam search: the best texts of a model, not one greedy one. The same search as seqlab.decoding's, in float64.

import type { Decoder } from "./decoder.js";
import { refuse } from "./error.js";
import { checkLengths } from "./generate.js";
import { applyRules, withDefaultRules, type Repetition } from "./repetition.js";
import { numbersOf, takeRows, type Tensor } from "./tensors.js";

/** How the best texts are searched for. */
export interface BeamOptions {
  /** 1, which is greedy, where it is not given */
  beams?: number;
  /** where nothing ends a text before; 200 where it is not given */
  maxNewTokens?: number;
  /** 0 prefers short texts; 1 where it is not given */
  lengthPenalty?: number;
  repetition?: Repetition;
  /** a text ends with any of these, which it keeps */
  stopIds?: readonly number[];
}

/** A text that was found: its new tokens, and their log-probability over (their number)^lengthPenalty. */
export interface Hypothesis {
  tokens: number[];
  score: number;
}

/** A continuation: the sum of its log-probabilities, the beam that it continues, and its token. */
interface Candidate {
  total: number;
  beam: number;
  token: number;
}

const MOST_BEAMS = 10000;

/** Continues each prompt in the best ways that are found, the best first. */
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
  // All beams of a prompt begin with its logits and state: (B, V) to (B x K, V).
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

/** The beams of one prompt. */
class Search {
  /** Of each new beam the old one that it continues, and its token. */
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
    // At first all beams are one.
    this.scores = this.tokens.map((_, beam) => (beam === 0 ? 0 : -Infinity));
  }

  /** Whether K are finished and no beam that goes on has a better score so far than the best of them. */
  get done(): boolean {
    if (this.finished.length < this.beams) return false;
    const going = Math.max(...this.scores) / this.tokens[0].length ** this.lengthPenalty;
    return this.finished.some((found) => going <= found.score);
  }

  get found(): Hypothesis[] {
    return this.finished.toSorted((a, b) => b.score - a.score).slice(0, this.beams);
  }

  /** Goes one token on, from the logits (K, V) at `firstRow`. */
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
    // A model of few tokens may have fewer ways to go on than beams: the rest can win nothing.
    while (going.length < this.beams) going.push({ total: -Infinity, beam: 0, token: 0 });
    this.going = going;
    this.tokens = going.map(({ beam, token }) => [...this.tokens[beam], token]);
    this.scores = going.map(({ total }) => total);
  }

  /** As many continuations as can matter, the best first; of equal ones the earlier beam's, then the lower token's. */
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

/** The log-probabilities of logits (V,). */
export function logSoftmax(logits: Float64Array): Float64Array {
  const largest = logits.reduce((most, logit) => Math.max(most, logit), -Infinity);
  const whole = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
  return logits.map((logit) => logit - largest - whole);
}
