// One step from a state, and from the same state with some of its numbers set to zero: what the step makes of these.

import type { Decoder } from "./decoder.js";
import type { Tensor } from "./tensors.js";

/** Places in a row of entries of the state, by the entries' names. */
export type Places = ReadonlyMap<string, readonly number[]>;

/**
 * Reads one more token of the only row. The new state has a row of what it is, and then one for each of `zeroed`: what
 * it would be had these numbers been zero before. The decoder goes on from what it is.
 */
export async function stepWithout(
  decoder: Decoder,
  token: number,
  zeroed: readonly Places[],
): Promise<ReadonlyMap<string, Tensor>> {
  const rows = [null, ...zeroed];
  decoder.select(rows.map(() => 0));
  rows.forEach((places, row) => {
    for (const [name, some] of places ?? []) {
      const { data, dims } = decoder.state.get(name)!;
      const first = (row * data.length) / dims[0];
      for (const place of some) data.fill(0 as never, first + place, first + place + 1);
    }
  });
  await decoder.readToken(rows.map(() => token));
  const found = decoder.state;
  decoder.select([0]);
  return found;
}
