// Names of the positions that a model reads.

import type { Dim } from "../src/index.js";

/** Names of the positions that are drawn, which are the first of those that are read. */
export interface Names {
  tokens: readonly string[];
  source: readonly string[];
}

/** Names along a dimension of a tap; numbers if there are no names. */
export function namesAlong(dim: Dim, length: number, { tokens, source }: Names): string[] {
  const known = { T: tokens, "T+1": ["(class)", ...tokens], M: source }[dim as string];
  return known?.length && known.length <= length ? [...known] : Array.from({ length }, (_, place) => String(place + 1));
}
