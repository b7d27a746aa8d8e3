// What of a runtime's outputs is compared, and what an error is: seqlab_export.runner.cases, number for number.

import table from "../../../seqlab_export/runner/proof_constants.json";

import { logSoftmax } from "../beam.js";
import { refuse } from "../error.js";
import { isFloat, type GraphInfo, type TensorInfo } from "../manifest.js";
import { numbersOf, sizeOf, type Tensor } from "../tensors.js";
import type { Case } from "./cases.js";
import type { Check, Divergence } from "./report.js";

/** Outputs that are judged together. */
export interface Group {
  name: "logits" | "state" | "counters";
  outputs: TensorInfo[];
}

/** The groups of a graph's outputs. What is empty at the start is not judged. */
export function groupsOf(info: GraphInfo): Group[] {
  const nameOf = (output: TensorInfo) => (output.name === "logits" ? "logits" : isFloat(output) ? "state" : "counters");
  const judged = info.outputs.filter((output) => !output.dims.includes(0));
  const names = ["logits", "state", "counters"] as const;
  const groups = names.map((name): Group => ({ name, outputs: judged.filter((output) => nameOf(output) === name) }));
  return groups.filter(({ outputs }) => outputs.length > 0);
}

/** How many numbers of an output are compared at most. */
export function mostNumbers(info: GraphInfo, output: TensorInfo): number {
  const together = groupsOf(info).find(({ outputs }) => outputs.includes(output))?.outputs.length ?? 1;
  return Math.max(Math.floor(table.most_numbers / together), table.least_numbers);
}

/** What counts of an output, in one row: real positions, spread-out numbers. What is no float is compared whole. */
export function selected(tensor: Tensor, info: TensorInfo, some: Case, most: number): Float64Array {
  if (tensor.dims.length !== info.dims.length) {
    refuse(`${info.name} has ${tensor.dims.length} dimensions, its manifest says ${info.dims.length}`);
  }
  const numbers = numbersOf(tensor);
  if (!isFloat(info)) return numbers;
  const axis = info.dims.findIndex((dim) => typeof dim === "string" && ["T", "K", "S+T", "M", "C"].includes(dim));
  return spread(axis < 0 ? numbers : realNumbers(numbers, tensor.dims, axis, info, some), most);
}

/** So many numbers of a row, or all. */
export function spread(row: Float64Array, most: number): Float64Array {
  return row.length <= most ? row : Float64Array.from(spreadPlaces(row.length, most), (place) => row[place]);
}

/** The places of the numbers that are compared, of `size`: all of them, or `most`. */
export function spreadPlaces(size: number, most: number): number[] {
  if (size <= most) return Array.from({ length: size }, (_, place) => place);
  // Multiples of the golden ratio modulo 1 leave no gap and, unlike equal steps, favour no column.
  return Array.from({ length: most }, (_, place) => Math.floor(((place * table.golden_ratio) % 1) * size));
}

/** How many numbers of each part of an output are compared at most, of texts of so many lengths. */
export function numbersOfCall(lengths: number, outputs = 1): number {
  return Math.max(Math.floor(table.most_numbers / (table.call_parts * lengths * outputs)), table.call_numbers);
}

/** (B, outer, T, inner), of which the real positions come as (B x T, outer, inner). */
function realNumbers(
  numbers: Float64Array,
  dims: readonly number[],
  axis: number,
  info: TensorInfo,
  some: Case,
): Float64Array {
  const length = dims[axis];
  const outer = sizeOf(dims.slice(1, axis));
  const inner = sizeOf(dims.slice(axis + 1));
  const mask = info.dims[axis] === "C" ? filledPlaces(some, length) : some.mask;
  if (mask.length !== dims[0] * length) {
    refuse(`${info.name} has ${dims[0]} rows of ${length} positions, and should have ${mask.length} in all`);
  }
  const real = mask.reduce((sum, one) => sum + one, 0);
  const row = new Float64Array(real * outer * inner);
  let end = 0;
  mask.forEach((one, position) => {
    for (let part = 0; one === 1 && part < outer; ++part) {
      const first = ((Math.floor(position / length) * outer + part) * length + (position % length)) * inner;
      row.set(numbers.subarray(first, first + inner), end);
      end += inner;
    }
  });
  return row;
}

/** Of a cache with room for so many keys, in which real tokens stand first, without gaps. */
function filledPlaces(some: Case, capacity: number): Uint8Array {
  const filled = new Uint8Array(some.rows * capacity);
  for (let row = 0; row < some.rows; ++row) {
    const real = some.mask.subarray(row * some.length, (row + 1) * some.length).reduce((sum, one) => sum + one, 0);
    filled.fill(1, row * capacity, row * capacity + real);
  }
  return filled;
}

/** The differences, in units of the RMS of what is expected: all of it, or what stands there from `begin` on. */
export function errorsOf(actual: Float64Array, expected: Float64Array, begin?: number): Float64Array {
  const part = begin === undefined ? expected : expected.subarray(begin, begin + actual.length);
  if (actual.length !== part.length) refuse(`there are ${actual.length} numbers, and should be ${part.length}`);
  const unit = rms(expected) || 1;
  return actual.map((number, place) => (number - part[place]) / unit);
}

/** What a runtime's RMS error may be, where PyTorch's own is `torch`. */
export function limitOf(torch: number, precision: string): number {
  const epsilon = 2 ** -table.epsilon_bits[precision === "fp16" ? "fp16" : "fp32"];
  return Math.max(table.torch_errors * torch, table.epsilons * epsilon);
}

/** Whether the RMS of relative errors is at most `limit`. */
export function judged(kind: string, subject: string, errors: Float64Array, torch: number, limit: number): Check {
  const found = rms(errors);
  const ok = Number.isFinite(limit) && found <= limit;
  const largest = errors.reduce((most, error) => Math.max(most, Math.abs(error)), 0);
  const why = Number.isFinite(limit)
    ? `RMS error ${found.toExponential(2)}, more than ${limit.toExponential(2)}`
    : "PyTorch's own error is not finite";
  const note = ok ? "" : why;
  return { kind, subject, ok, note, errors: { rms: found, torch, limit, largest } };
}

/** How far the distributions of logits are from those of the reference, of so many tokens or classes each. */
export function divergenceOf(reference: Float64Array, logits: Float64Array, size: number): Divergence {
  if (reference.length !== logits.length || reference.length === 0) {
    refuse(`there are ${logits.length} logits, and should be ${reference.length}`);
  }
  const kl: number[] = [];
  let same = 0;
  for (let first = 0; first < reference.length; first += size) {
    const theirs = logSoftmax(reference.subarray(first, first + size));
    const ours = logSoftmax(logits.subarray(first, first + size));
    kl.push(theirs.reduce((sum, chance, place) => sum + Math.exp(chance) * (chance - ours[place]), 0));
    same += theirs.indexOf(Math.max(...theirs)) === ours.indexOf(Math.max(...ours)) ? 1 : 0;
  }
  const mean = kl.reduce((sum, one) => sum + one, 0) / kl.length;
  return { kl: mean, kl_p99: quantile(kl, 0.99), top1: same / kl.length };
}

function rms(values: Float64Array): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
}

/** As NumPy's, linear between the two nearest. */
function quantile(values: readonly number[], share: number): number {
  const ordered = values.toSorted((a, b) => a - b);
  const place = share * (ordered.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, ordered.length - 1);
  return ordered[below] + (place - below) * (ordered[above] - ordered[below]);
}
