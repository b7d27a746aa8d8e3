// One step from a state and, side by side, from the same state with some of its numbers set to zero.

import type { Decoder } from "./decoder.js";
import type { Tensor } from "./tensors.js";

/** Places within a row of the state, by the name of the entry. */
export type Places = ReadonlyMap<string, readonly number[]>;

/**
 * Reads one more token of the only row. The returned state has one row more than `zeroed`: the new state, then the new
 * state if the places in each element of `zeroed` had been zero. The decoder keeps the first row.
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
