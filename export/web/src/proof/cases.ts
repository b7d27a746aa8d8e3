// The inputs of the proof, and the calls in which they are read: the same cases as seqlab_export.runner.cases, which
// explains the constants of the table.
//
// R rows, T positions.

import table from "../../../seqlab_export/runner/proof_constants.json";

import { isFloat, type GraphInfo, type TensorInfo } from "../manifest.js";

/** Rows of one length, and a mask of their real positions. */
export interface Case {
  name: string;
  rows: number;
  length: number;
  /** (R, T), 1 = real */
  mask: Uint8Array;
}

export type Form = keyof typeof table.form_parts;

/** The range from `first` up to, not including, `end`. */
export interface Span {
  first: number;
  end: number;
}

/** The mask of some of a case's rows and positions. */
export function partOf(some: Case, rows: readonly number[], positions: Span): Uint8Array {
  const width = positions.end - positions.first;
  const part = new Uint8Array(rows.length * width);
  rows.forEach((row, place) => {
    const begin = row * some.length;
    part.set(some.mask.subarray(begin + positions.first, begin + positions.end), place * width);
  });
  return part;
}

/** The indices of a number of rows. */
export function allRows(rows: number): number[] {
  return Array.from({ length: rows }, (_, row) => row);
}

function tracedLength(longest: number | null): number {
  const part = Math.floor((longest ?? Infinity) / table.traced_parts);
  return Math.min(Math.max(part, table.traced_least), table.traced_most);
}

/** The lengths of `casesOf` for a model that reads any length, in order. */
function caseLengths(longest: number | null): number[] {
  const lengths = table.case_lengths.map(([factor, more]) => factor * tracedLength(longest) + more);
  return [...new Set(lengths)].sort((a, b) => a - b);
}

/** Cases of each length, up to the maximum of the model, unpadded and padded; in a reduced proof, only padded. */
export function casesOf(longest: number | null, reduced: boolean, rows = rowsOf(reduced), least = 0): Case[] {
  const readable = caseLengths(longest).filter((length) => longest === null || length <= longest);
  return readable.flatMap((length) => {
    const whole = { name: `length ${length}`, rows, length, mask: new Uint8Array(rows * length).fill(1) };
    if (length === 1) return [whole];
    const padded = paddedCase(rows, length, least);
    return reduced ? [padded] : [whole, padded];
  });
}

function rowsOf(reduced: boolean): number {
  return reduced ? table.reduced_rows : table.rows;
}

function paddedCase(rows: number, length: number, least: number): Case {
  const bounds: Record<string, number> = { begin: 0, half: length >> 1, least, last: length - 1, end: length };
  const mask = new Uint8Array(rows * length);
  for (let row = 0; row < rows; ++row) {
    const [first, end] = table.spans[row % table.spans.length];
    mask.fill(1, row * length + bounds[first], row * length + bounds[end]);
  }
  return { name: `length ${length}, padded`, rows, length, mask };
}

/** Two texts of the maximum length, if that is longer than `casesOf`; one has pads on its left, and is the only one of a
 * reduced proof.
 */
export function longCases(longest: number | null, reduced: boolean): Case[] {
  const length = Math.min(longest ?? table.longest, table.longest);
  if (length <= caseLengths(longest).at(-1)!) return [];
  const mask = new Uint8Array(2 * length).fill(1);
  mask.fill(0, length, length + Math.floor(length / table.long_pads));
  const name = `length ${length}`;
  return reduced ? [{ name, rows: 1, length, mask: mask.slice(length) }] : [{ name, rows: 2, length, mask }];
}

/** Lengths of texts that are read in one call: around powers of two, in a reduced proof only above them, and around the
 * maximum. Each is at least the first call of a prefix-causal model.
 */
export function oneCallLengths(longest: number | null, firstCall: number, reduced: boolean): number[] {
  const end = Math.min(longest ?? table.longest, table.longest);
  const around = new Set(table.around_longest.map((offset) => end + offset));
  for (let power = table.first_power; power <= 2 * end; power *= 2) {
    table.around_powers.slice(reduced ? -1 : 0).forEach((offset) => around.add(power + offset));
  }
  return [...around].filter((length) => Math.max(firstCall, 1) <= length && length <= end).sort((a, b) => a - b);
}

/** Pairs of a batch size and a case that is read in it: each case in the batch sizes of all, and the last case whose
 * length is at most the traced length plus one in more. A reduced proof reads each case in one batch, and the last case
 * of at most two tokens in all of these sizes.
 */
export function cellsOf(cases: readonly Case[], longest: number | null, reduced: boolean): [number, Case][] {
  const most = reduced ? table.reduced_batches_most : tracedLength(longest) + 1;
  const ofAllSizes = cases.findLast(({ length }) => length <= most)!;
  const whole = cases.map((some): [number, Case] => [some.rows, some]);
  const all = table.batch_sizes.flatMap((batch) =>
    (reduced ? [ofAllSizes] : cases).map((some): [number, Case] => [batch, some]),
  );
  const more = table.more_batch_sizes.map((batch): [number, Case] => [batch, ofAllSizes]);
  return [...(reduced ? whole : []), ...all, ...more];
}

/** The rows of each batch of this size; rows repeat if the batch is larger than their number. */
export function batchesOf(rows: number, size: number): number[][] {
  if (size > rows) return [allRows(size).map((place) => place % rows)];
  const firsts = Array.from({ length: Math.ceil(rows / size) }, (_, batch) => batch * size);
  return firsts.map((first) => allRows(rows).slice(first, first + size));
}

/** Positions of the rows in the concatenated `batchesOf`, a list per pass: a repeated row has several positions. */
export function passesOf(rows: number, size: number): number[][] {
  const places = Math.max(size, rows);
  const last = (row: number) => Math.floor((places - 1 - row) / rows);
  const again = Array.from({ length: last(0) + 1 }, (_, pass) => pass);
  return again.map((pass) => allRows(rows).map((row) => row + rows * Math.min(last(row), pass)));
}

/** `casesOf` of an encoder. A source has at least one token, since a decoder attends to nothing else. */
export function encoderCases(info: GraphInfo, longest: number | null, reduced: boolean): Case[] {
  const judged = info.outputs.filter((output) => isFloat(output) && !output.dims.includes(0));
  const numbers = judged.reduce((least, output) => Math.min(least, fixedSize(output)), table.encoder_numbers);
  const rows = rowsOf(reduced) * Math.ceil(table.encoder_numbers / (rowsOf(reduced) * numbers));
  const cases = casesOf(longest, reduced, rows, info.inputs[0].name === "source" ? 1 : 0);
  return cases.map((some) => ({ ...some, name: `encoder/${some.name}` }));
}

/** The number of values of a position. */
function fixedSize(info: TensorInfo): number {
  return info.dims.reduce<number>((size, dim) => (typeof dim === "number" ? size * dim : size), 1);
}

/** The positions of each call in which a form reads a case; "long" ends each call but the first with single tokens. */
export function callsOf(form: Form, some: Case, firstCall: number): Span[] {
  const { length } = some;
  const width = Math.max(Math.floor(length / table.form_parts[form]), table.form_least[form]);
  const first = firstCall > 1 ? Math.max(width, firstLength(some, firstCall)) : width;
  const ends: number[] = [];
  for (let end = first; end < length; end += width) ends.push(end);
  const singles =
    form === "long" ? [...ends.slice(1), length].flatMap((end) => table.steps_in_long.map((back) => end - back)) : [];
  const bounds = new Set([0, ...ends, length, ...singles.filter((place) => place > first)]);
  const ordered = [...bounds].sort((a, b) => a - b);
  return ordered.slice(1).map((end, place) => ({ first: ordered[place], end }));
}

/** The number of positions after which each row has `firstCall` real tokens, or all of its own. */
function firstLength(some: Case, firstCall: number): number {
  let longest = 1;
  for (let row = 0; row < some.rows; ++row) {
    const mask = some.mask.subarray(row * some.length, (row + 1) * some.length);
    const wanted = Math.min(
      firstCall,
      mask.reduce((sum, one) => sum + one, 0),
    );
    let real = 0;
    let needed = 0;
    while (real < wanted) real += mask[needed++];
    longest = Math.max(longest, needed);
  }
  return longest;
}
