// The inputs of the proof, and how they are read: seqlab_export.runner.cases, case for case.
//
// R rows, T positions.

import { isFloat, type GraphInfo, type TensorInfo } from "../manifest.js";

/** Rows of each case of a decoder, and at least so many of an encoder. */
const ROWS = 10;
/** Batches in which every case is read. */
export const BATCH_SIZES = [1, 2, 9];
/** Batches in which `caseOfMoreBatches` is read; where one has more rows than the case, its rows come again. */
export const MORE_BATCH_SIZES = [3, 4, 5, 8, 10, 16, 33];
/** Positions that are read, where the model reads as many. */
const LONGEST = 1024;
/** Of each position of an encoder's outputs so many numbers are compared at least. */
const ENCODER_NUMBERS = 400;

/** Rows of one length, and which of their positions are real. */
export interface Case {
  name: string;
  rows: number;
  length: number;
  /** (R, T), 1 = real */
  mask: Uint8Array;
}

export type Form = "prefill" | "chunks" | "step" | "long";

/** From `first` to before `end`. */
export interface Span {
  first: number;
  end: number;
}

/** The mask of some of a case's rows and positions. */
export function partOf(some: Case, rows: readonly number[], positions: Span): Uint8Array {
  const width = positions.end - positions.first, part = new Uint8Array(rows.length * width);
  rows.forEach((row, place) => {
    const begin = row * some.length;
    part.set(some.mask.subarray(begin + positions.first, begin + positions.end), place * width);
  });
  return part;
}

/** So many rows, from the first on. */
export function allRows(rows: number): number[] {
  return Array.from({ length: rows }, (_, row) => row);
}

function tracedLength(longest: number | null): number {
  return longest === null ? 16 : Math.min(Math.max(Math.floor(longest / 4), 2), 16);
}

/** Lengths 1, 2, as captured, one more and four times it, as far as the model reads, unpadded and padded. */
export function casesOf(longest: number | null, rows = ROWS, least = 0): Case[] {
  const traced = tracedLength(longest), lengths = new Set([1, 2, traced, traced + 1, 4 * traced]);
  const readable = [...lengths].filter((length) => longest === null || length <= longest).sort((a, b) => a - b);
  return readable.flatMap((length) => {
    const whole = { name: `length ${length}`, rows, length, mask: new Uint8Array(rows * length).fill(1) };
    return length === 1 ? [whole] : [whole, paddedCase(rows, length, least)];
  });
}

function paddedCase(rows: number, length: number, least: number): Case {
  const half = Math.floor(length / 2), mask = new Uint8Array(rows * length);
  const spans = [[half, length], [0, half], [0, least], [length - 1, length], [0, length]];
  for (let row = 0; row < rows; ++row) {
    const [first, end] = spans[row % spans.length];
    mask.fill(1, row * length + first, row * length + end);
  }
  return { name: `length ${length}, padded`, rows, length, mask };
}

/** Two texts of the longest length, where that is longer than `casesOf`; one has a third of pads on its left. */
export function longCases(longest: number | null): Case[] {
  const length = Math.min(longest ?? LONGEST, LONGEST);
  if (length <= 4 * tracedLength(longest)) return [];
  const mask = new Uint8Array(2 * length).fill(1);
  mask.fill(0, length, length + Math.floor(length / 3));
  return [{ name: `length ${length}`, rows: 2, length, mask }];
}

/** Lengths of texts that are read in one call: around every power of two from 16 on, the longest, and one below it. Each
 * holds the first call of a prefix-causal model.
 */
export function oneCallLengths(longest: number | null, firstCall = 1): number[] {
  const end = Math.min(longest ?? LONGEST, LONGEST), around = new Set([end - 1, end]);
  for (let power = 16; power <= 2 * end; power *= 2) [power - 1, power, power + 1].forEach((length) => around.add(length));
  return [...around].filter((length) => Math.max(firstCall, 1) <= length && length <= end).sort((a, b) => a - b);
}

/** The last case that is no longer than one position over the length of the capture. */
export function caseOfMoreBatches(cases: readonly Case[], longest: number | null): Case {
  return cases.findLast(({ length }) => length <= tracedLength(longest) + 1)!;
}

/** The rows of each batch of this size; in one of more than there are, they come again. */
export function batchesOf(rows: number, size: number): number[][] {
  if (size > rows) return [allRows(size).map((place) => place % rows)];
  const firsts = Array.from({ length: Math.ceil(rows / size) }, (_, batch) => batch * size);
  return firsts.map((first) => allRows(rows).slice(first, first + size));
}

/** Where each row stands in `batchesOf` end to end: once, or more often, so that every place is looked at. */
export function passesOf(rows: number, size: number): number[][] {
  const places = Math.max(size, rows), last = (row: number) => Math.floor((places - 1 - row) / rows);
  const again = Array.from({ length: last(0) + 1 }, (_, pass) => pass);
  return again.map((pass) => allRows(rows).map((row) => row + rows * Math.min(last(row), pass)));
}

/** `casesOf` of an encoder. A source has a token at least: a decoder has nothing else to look at. */
export function encoderCases(info: GraphInfo, longest: number | null): Case[] {
  const judged = info.outputs.filter((output) => isFloat(output) && !output.dims.includes(0));
  const numbers = judged.reduce((least, output) => Math.min(least, fixedSize(output)), ENCODER_NUMBERS);
  const rows = ROWS * Math.ceil(ENCODER_NUMBERS / (ROWS * numbers));
  const cases = casesOf(longest, rows, info.inputs[0].name === "source" ? 1 : 0);
  return cases.map((some) => ({ ...some, name: `encoder/${some.name}` }));
}

/** The numbers of a position. */
function fixedSize(info: TensorInfo): number {
  return info.dims.reduce<number>((size, dim) => (typeof dim === "number" ? size * dim : size), 1);
}

/** How a case is read: at once, in calls of half of it, by the token, or in eighths with two steps at the end of each. */
export function callsOf(form: Form, some: Case, firstCall: number): Span[] {
  const { length } = some;
  const widths = { prefill: length, chunks: Math.max(length >> 1, 1), step: 1, long: Math.max(length >> 3, 4) };
  const width = widths[form], first = firstCall > 1 ? Math.max(width, firstLength(some, firstCall)) : width;
  const ends: number[] = [];
  for (let end = first; end < length; end += width) ends.push(end);
  const singles = form === "long" ? [...ends.slice(1), length].flatMap((end) => [end - 1, end - 2]) : [];
  const bounds = new Set([0, ...ends, length, ...singles.filter((place) => place > first)]);
  const ordered = [...bounds].sort((a, b) => a - b);
  return ordered.slice(1).map((end, place) => ({ first: ordered[place], end }));
}

/** The positions after which each row has so many real tokens, or all of its own. */
function firstLength(some: Case, firstCall: number): number {
  let longest = 1;
  for (let row = 0; row < some.rows; ++row) {
    const mask = some.mask.subarray(row * some.length, (row + 1) * some.length);
    const wanted = Math.min(firstCall, mask.reduce((sum, one) => sum + one, 0));
    let real = 0, needed = 0;
    while (real < wanted) real += mask[needed++];
    longest = Math.max(longest, needed);
  }
  return longest;
}
