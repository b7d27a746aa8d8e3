// Rules against repetition, applied to the logits before a token is chosen.

import { refuse } from "./error.js";

/** Treatment of tokens that a text, including its prompt, already has. */
export interface Repetition {
  /** divisor of their positive logits and factor of the others; 1 = off */
  penalty?: number;
  /** length of the sequences that may not be written twice, in tokens; null = off */
  ngram?: number | null;
}

/** Throws SeqlabError if an option is outside its range. */
export function withDefaultRules(given: Repetition | undefined): Required<Repetition> {
  const rules = { penalty: 1, ngram: null, ...given };
  if (!(rules.penalty > 0 && rules.penalty < Infinity)) {
    refuse(`the repetition penalty must be above 0 and finite, got ${rules.penalty}`);
  }
  if (rules.ngram !== null && !(Number.isInteger(rules.ngram) && rules.ngram >= 1)) {
    refuse(`the n of blocked n-grams must be at least 1, got ${rules.ngram}`);
  }
  return rules;
}

/** Changes the logits (V,) that follow the tokens of `text`, each from 0 to V - 1. */
export function applyRules(rules: Required<Repetition>, text: readonly number[], logits: Float64Array): void {
  if (rules.penalty !== 1) {
    for (const token of new Set(text)) logits[token] = penalised(logits[token], rules.penalty);
  }
  if (rules.ngram === null) return;
  const blocked = wouldRepeat(text, rules.ngram);
  if (blocked.size < logits.length) blocked.forEach((token) => (logits[token] = -Infinity));
}

function penalised(logit: number, penalty: number): number {
  return logit > 0 ? logit / penalty : logit * penalty;
}

/** The tokens that followed earlier occurrences of the last n - 1 tokens. */
function wouldRepeat(text: readonly number[], ngram: number): Set<number> {
  const before = ngram - 1;
  const found = new Set<number>();
  for (let end = before; end < text.length; ++end) {
    let same = true;
    for (let back = 1; same && back <= before; ++back) same = text[end - back] === text[text.length - back];
    if (same) found.add(text[end]);
  }
  return found;
}
