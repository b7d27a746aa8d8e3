// The state of a recurrence over a text, and the share of it that each token keeps. The share is not read from the
// weights but measured, by running each step again with a part of the state set to zero. N channels.

import { numbersOf, type Manifest, type Session, type Tensor } from "../src/index.js";
import { sizeOf } from "../src/tensors.js";
import { norm } from "./numbers.js";

/** An entry of the state whose size is fixed, and its numbers after each token. */
export interface Entry {
  name: string;
  /** Dimensions without the batch. */
  dims: number[];
  values: Float64Array[];
}

/**
 * A part of the state that is set to zero at once. Channel c is number `first` + c of each entry. Complex channels have
 * two entries.
 */
export interface Part {
  name: string;
  entries: string[];
  first: number;
  size: number;
  dims: number[];
}

/** The share of a part that each token from the second on keeps. */
export interface Kept {
  part: Part;
  /** The norm of what is left of the part, relative to its norm before. */
  shares: number[];
  /** The same for each channel (T, N); null if channels mix. */
  channels: number[][] | null;
}

/** The largest first dimension of two that is taken for the layers of one cell. */
const MOST_LAYERS = 8;
/** Differences up to this part of the largest are attributed to rounding. */
const ROUNDING = 0.01;
/** Names of running maxima of exponents (xLSTM), which scale other entries and hold no memory. */
const EXPONENT = /(^|_)m$/;

/** The most numbers held of a state over a text. */
const MOST_NUMBERS = 2 ** 23;

/** A text to read. `start` makes a session that has read no token. */
export interface Reading {
  ids: readonly number[];
  start: () => Promise<Session>;
  /** False once the result is no longer needed, which is then empty. */
  wanted: () => boolean;
}

/** Records the entries over a text, except for windows of the last tokens. */
export async function statesOf(manifest: Manifest, { ids, start, wanted }: Reading): Promise<Entry[]> {
  const renewed = new Set(manifest.step!.outputs.map(({ name }) => name));
  const entries = manifest.state.flatMap(({ name, dtype, dims: [, ...dims] }): Entry[] => {
    const fixed = dims.every((dim) => typeof dim === "number") && dims.length > 0;
    return fixed && dtype.startsWith("float") && renewed.has(`new_state_${name}`) ? [{ name, dims, values: [] }] : [];
  });
  if (!entries.length) return [];
  const most = Math.floor(MOST_NUMBERS / entries.reduce((sum, { dims }) => sum + sizeOf(dims), 0));
  if (ids.length > most) {
    throw new Error(`this model's state is large: give a text of at most ${most} tokens to see it over time`);
  }
  const session = await start();
  for (const [place, id] of ids.entries()) {
    if (!wanted()) return [];
    await (place ? session.step([id]) : session.prefill([[id]]));
    for (const { name, values } of entries) values.push(numbersOf(session.state.get(name)!));
  }
  return entries.filter((entry) => !isWindow(entry));
}

/** True if each token shifts the rows (..., W, K) by one, as in the window of a convolution. */
function isWindow({ dims, values }: Entry): boolean {
  const [rows, columns] = dims.length > 1 ? dims.slice(-2) : [1, dims[0]];
  const moved = (place: number) =>
    values[place].every(
      (value, at) => at % (rows * columns) >= (rows - 1) * columns || value === values[place - 1][at + columns],
    );
  return rows > 1 && values.length > 1 && values.every((_, place) => place === 0 || moved(place));
}

/** The parts to measure; `h_real` and `h_imag` are one part. */
export function partsOf(entries: readonly Entry[]): Part[] {
  return entries.flatMap(({ name, dims }): Part[] => {
    if (EXPONENT.test(name) || name.endsWith("_imag")) return [];
    const whole = name.replace(/_real$/, "");
    const names = whole === name ? [name] : [name, `${whole}_imag`];
    const layers = dims.length === 2 && dims[0] <= MOST_LAYERS ? dims[0] : 1;
    const of = layers > 1 ? dims.slice(1) : dims;
    const size = sizeOf(of);
    const named = (layer: number) => (layers > 1 ? `${whole}, ${layer + 1} of ${layers}` : whole);
    return Array.from({ length: layers }, (_, layer) => ({
      name: named(layer),
      entries: names,
      first: layer * size,
      size,
      dims: of,
    }));
  });
}

/**
 * Measures the share of each part that each token but the first keeps. It is the decay of a channel in a linear
 * recurrence, and the forget gate for an LSTM's c. Parts that no token keeps are left out.
 */
export async function keptOf({ ids, start, wanted }: Reading, parts: readonly Part[]): Promise<Kept[]> {
  const found = parts.map((part) => ({ part, shares: [] as number[], channels: [] as number[][], apart: true }));
  const session = await start();
  await session.prefill([ids.slice(0, 1)]);
  // All channels of each part are zeroed, and then half of them: if that changes the other half, channels mix.
  const zeroed = [() => true, inHalf].flatMap((some) => parts.map((part) => placesOf(part, some)));
  for (const id of ids.slice(1)) {
    if (!wanted()) return [];
    const before = session.state;
    const after = await session.stepWithout(id, zeroed);
    found.forEach((kept, number) => {
      const { part } = kept;
      const old = channelsOf(part, before, 0);
      const [now, without, half] = [0, 1 + number, 1 + parts.length + number].map((row) =>
        channelsOf(part, after, row),
      );
      const [left, had] = [sizes(part, differences(now, without)), sizes(part, old)];
      const others = half.flatMap((some, entry) =>
        Array.from(some, (value, at) => value - (inHalf(at) ? without : now)[entry][at]),
      );
      const most = left.reduce((one, other) => Math.max(one, other), 0);
      kept.apart &&= others.every((value) => Math.abs(value) <= ROUNDING * most);
      kept.channels.push(left.map((size, channel) => size / had[channel]));
      kept.shares.push(norm(left) / norm(had));
    });
  }
  const some = found.filter(({ shares }) => shares.some((share) => share > 0));
  return some.map(({ part, shares, channels, apart }) => ({ part, shares, channels: apart ? channels : null }));
}

/** True for half of the channels, at no regular step: multiples of the golden ratio modulo 1. */
function inHalf(channel: number): boolean {
  return (channel * 0.6180339887498949) % 1 < 0.5;
}

function placesOf({ entries, first, size }: Part, some: (channel: number) => boolean): Map<string, number[]> {
  const channels = Array.from({ length: size }, (_, channel) => channel);
  const places = channels.filter(some).map((channel) => first + channel);
  return new Map(entries.map((name) => [name, places]));
}

/** Numbers (N) of each entry of a part, in one row of the state. */
function channelsOf({ entries, first, size }: Part, state: ReadonlyMap<string, Tensor>, row: number): Float64Array[] {
  return entries.map((name) => {
    const tensor = state.get(name)!;
    const begin = (row * tensor.data.length) / tensor.dims[0] + first;
    return numbersOf(tensor, begin, begin + size);
  });
}

function differences(some: Float64Array[], others: Float64Array[]): Float64Array[] {
  return some.map((one, entry) => one.map((value, at) => value - others[entry][at]));
}

/** The absolute value of each channel. */
function sizes({ size }: Part, numbers: Float64Array[]): number[] {
  return Array.from({ length: size }, (_, channel) => Math.hypot(...numbers.map((of) => of[channel])));
}

/** The mean of the finite numbers; NaN if there are none. */
export function mean(numbers: readonly number[]): number {
  const some = numbers.filter(Number.isFinite);
  return some.reduce((sum, one) => sum + one, 0) / some.length;
}

/** The mean share that a token keeps of each channel. */
export function meansOf(channels: readonly number[][]): number[] {
  return channels[0].map((_, channel) => mean(channels.map((shares) => shares[channel])));
}

/** The number of tokens that the state reaches back if each keeps this share: 1 + share + share^2 + ... */
export function reach(share: number): number {
  return 1 / (1 - share);
}
