// The state of a recurrence over a text, and how much of it each token keeps. The latter is not read from weights but
// measured: each step is run again with a part of the state set to zero. N channels.

import { numbersOf, type Manifest, type Session, type Tensor } from "../src/index.js";
import { norm } from "./numbers.js";

/** An entry of the state that is as large whatever was read, and its numbers after each token. */
export interface Entry {
  name: string;
  /** Those after the batch. */
  dims: number[];
  values: Float64Array[];
}

/** What is set to zero at once. Its channel c is the number `first` + c of each of its entries, of two a complex one. */
export interface Part {
  name: string;
  entries: string[];
  first: number;
  size: number;
  dims: number[];
}

/** What the tokens from the second on keep of a part. */
export interface Kept {
  part: Part;
  /** How large what is left of the part is, to what it was. */
  shares: number[];
  /** The same of each channel (T, N); null where what a channel becomes depends on others. */
  channels: number[][] | null;
}

/** Layers of one cell that are told apart: the first of two dimensions, where it is no larger. */
const MOST_LAYERS = 8;
/** The part of the largest difference that rounding explains. */
const ROUNDING = 0.01;
/** The running maximum of exponents (xLSTM), to which other entries are relative: it is no memory. */
const EXPONENT = /(^|_)m$/;

/** More numbers of a state over a text are not held. */
const MOST_NUMBERS = 2 ** 23;

/** What is to be read: `start` gives a session before its first token. */
export interface Reading {
  ids: readonly number[];
  start: () => Promise<Session>;
  /** Nothing is found where it is no longer. */
  wanted: () => boolean;
}

/** The entries over a text; windows of the last tokens are none of them. */
export async function statesOf(manifest: Manifest, { ids, start, wanted }: Reading): Promise<Entry[]> {
  const renewed = new Set(manifest.step!.outputs.map(({ name }) => name));
  const entries = manifest.state.flatMap(({ name, dtype, dims: [, ...dims] }): Entry[] => {
    const fixed = dims.every((dim) => typeof dim === "number") && dims.length > 0;
    return fixed && dtype.startsWith("float") && renewed.has(`new_state_${name}`) ? [{ name, dims, values: [] }] : [];
  });
  if (!entries.length) return [];
  const most = Math.floor(MOST_NUMBERS / entries.reduce((sum, { dims }) => sum + productOf(dims), 0));
  if (ids.length > most)
    throw new Error(`this model's state is large: give a text of at most ${most} tokens to see it over time`);
  const session = await start();
  for (const [place, id] of ids.entries()) {
    if (!wanted()) return [];
    await (place ? session.step([id]) : session.prefill([[id]]));
    for (const { name, values } of entries) values.push(numbersOf(session.state.get(name)!));
  }
  return entries.filter((entry) => !isWindow(entry));
}

/** Whether each token moves all rows (..., W, K) by one, as it does those of a convolution. */
function isWindow({ dims, values }: Entry): boolean {
  const [rows, columns] = dims.length > 1 ? dims.slice(-2) : [1, dims[0]];
  const moved = (place: number) =>
    values[place].every(
      (value, at) => at % (rows * columns) >= (rows - 1) * columns || value === values[place - 1][at + columns],
    );
  return rows > 1 && values.length > 1 && values.every((_, place) => place === 0 || moved(place));
}

/** The parts that are measured; `h_real` and `h_imag` are one. */
export function partsOf(entries: readonly Entry[]): Part[] {
  return entries.flatMap(({ name, dims }): Part[] => {
    if (EXPONENT.test(name) || name.endsWith("_imag")) return [];
    const whole = name.replace(/_real$/, "");
    const names = whole === name ? [name] : [name, `${whole}_imag`];
    const layers = dims.length === 2 && dims[0] <= MOST_LAYERS ? dims[0] : 1;
    const of = layers > 1 ? dims.slice(1) : dims;
    const size = productOf(of);
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
 * What each token but the first keeps of each part. Of a linear recurrence that is a channel's decay, of an LSTM's c its
 * forget gate. Parts of which no token keeps anything are left out.
 */
export async function keptOf({ ids, start, wanted }: Reading, parts: readonly Part[]): Promise<Kept[]> {
  const found = parts.map((part) => ({ part, shares: [] as number[], channels: [] as number[][], apart: true }));
  const session = await start();
  await session.prefill([ids.slice(0, 1)]);
  // All channels of each part, and then half of each: what that leaves of the others tells whether they mix.
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

/** Of half of the channels, in no step that a matrix has: multiples of the golden ratio modulo 1. */
function inHalf(channel: number): boolean {
  return (channel * 0.6180339887498949) % 1 < 0.5;
}

function placesOf({ entries, first, size }: Part, some: (channel: number) => boolean): Map<string, number[]> {
  const channels = Array.from({ length: size }, (_, channel) => channel);
  const places = channels.filter(some).map((channel) => first + channel);
  return new Map(entries.map((name) => [name, places]));
}

/** The numbers (N) of each entry of a part in a row of the state. */
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

/** How large each channel is. */
function sizes({ size }: Part, numbers: Float64Array[]): number[] {
  return Array.from({ length: size }, (_, channel) => Math.hypot(...numbers.map((of) => of[channel])));
}

export function productOf(dims: readonly number[]): number {
  return dims.reduce((product, dim) => product * dim, 1);
}

/** The mean of what is a number; of nothing NaN. */
export function mean(numbers: readonly number[]): number {
  const some = numbers.filter(Number.isFinite);
  return some.reduce((sum, one) => sum + one, 0) / some.length;
}

/** Of each channel, the share that a token keeps on average. */
export function meansOf(channels: readonly number[][]): number[] {
  return channels[0].map((_, channel) => mean(channels.map((shares) => shares[channel])));
}

/** How many tokens back something reaches of which each token keeps a share: the sum of 1, share, share^2 and so on. */
export function reach(share: number): number {
  return 1 / (1 - share);
}
