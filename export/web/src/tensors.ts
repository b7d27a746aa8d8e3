// Tensors on the host, and their conversion from and to onnxruntime-web's.

import type { Tensor as OrtTensor } from "onnxruntime-web";

import { refuse } from "./error.js";
import type { DType } from "./manifest.js";

/** The library onnxruntime-web, which the caller loads. */
export type Ort = typeof import("onnxruntime-web");

/** Arrays of numbers, which are bits for float16, and 0 and 1 for bool. */
export type Data = Float32Array | Uint16Array | BigInt64Array | Uint8Array;

/** An array of numbers in row-major order. */
export interface Tensor {
  dtype: DType;
  dims: number[];
  data: Data;
}

const ARRAYS = { bool: Uint8Array, int64: BigInt64Array, float16: Uint16Array, float32: Float32Array };

export function sizeOf(dims: readonly number[]): number {
  return dims.reduce((size, dim) => size * dim, 1);
}

/** Makes a tensor of numbers. */
export function tensorOf(dtype: DType, dims: number[], numbers: ArrayLike<number>): Tensor {
  const data = new ARRAYS[dtype](sizeOf(dims));
  if (data instanceof BigInt64Array) data.forEach((_, place) => (data[place] = BigInt(numbers[place])));
  else if (dtype === "float16") data.forEach((_, place) => (data[place] = halfOf(numbers[place])));
  else data.set(numbers);
  return { dtype, dims, data };
}

/** Makes a tensor filled with one value. */
export function filled(dtype: DType, dims: number[], value: number): Tensor {
  const data = new ARRAYS[dtype](sizeOf(dims));
  if (data instanceof BigInt64Array) data.fill(BigInt(value));
  else data.fill(dtype === "float16" ? halfOf(value) : value);
  return { dtype, dims, data };
}

/** Takes rows of a tensor in the given order. */
export function takeRows(tensor: Tensor, rows: readonly number[]): Tensor {
  const size = sizeOf(tensor.dims.slice(1));
  const data = new ARRAYS[tensor.dtype](rows.length * size);
  rows.forEach((row, place) => data.set(tensor.data.subarray(row * size, (row + 1) * size) as never, place * size));
  return { dtype: tensor.dtype, dims: [rows.length, ...tensor.dims.slice(1)], data };
}

/** The numbers from `first` to `end`. */
export function numbersOf(tensor: Tensor, first = 0, end = tensor.data.length): Float64Array {
  const { data } = tensor;
  if (data instanceof BigInt64Array) return Float64Array.from(data.subarray(first, end), Number);
  const bits = data.subarray(first, end);
  return tensor.dtype === "float16" ? Float64Array.from(bits, numberOfHalf) : Float64Array.from(bits);
}

/** The most real tokens that a row of a mask (B, T) has. */
export function mostReal(mask: Tensor): number {
  const [rows, length] = mask.dims;
  const real = numbersOf(mask);
  let most = 0;
  for (let row = 0; row < rows; ++row) {
    most = Math.max(
      most,
      real.subarray(row * length, (row + 1) * length).reduce((sum, one) => sum + one, 0),
    );
  }
  return most;
}

export function checkDims(tensor: Tensor, dims: readonly number[]): void {
  if (tensor.dims.join() !== dims.join()) {
    refuse(`a graph gives (${tensor.dims.join(", ")}) instead of (${dims.join(", ")})`, "damaged bundle");
  }
}

export function toOrt(ort: Ort, tensor: Tensor): OrtTensor {
  return new ort.Tensor(tensor.dtype, tensor.data as never, tensor.dims);
}

export function fromOrt(tensor: OrtTensor): Tensor {
  const dtype = tensor.type as DType;
  if (!(dtype in ARRAYS)) refuse(`a graph gives a tensor of type ${tensor.type}`, "damaged bundle");
  const data = tensor.data as Data;
  // Float16 comes as a Float16Array in a browser that has the class.
  const { buffer, byteOffset, length } = data;
  const known = data instanceof ARRAYS[dtype] ? data : new ARRAYS[dtype](buffer as ArrayBuffer, byteOffset, length);
  return { dtype, dims: [...tensor.dims], data: known };
}

/** The value of a 16-bit float (IEEE 754). */
export function numberOfHalf(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (fraction + 1024) * 2 ** (exponent - 25));
}

/** The bits of the nearest 16-bit float, ties to even. */
export function halfOf(number: number): number {
  if (Number.isNaN(number)) return 0x7e00;
  const sign = number < 0 || Object.is(number, -0) ? 0x8000 : 0;
  const size = Math.abs(number);
  if (size >= 65520) return sign | 0x7c00;
  // The number is counted in steps of its binade, of which the subnormal one is the lowest; a carry reaches the next.
  const exponent = Math.max(Math.floor(Math.log2(size)), -14);
  const steps = size / 2 ** (exponent - 10);
  const below = Math.floor(steps);
  const rest = steps - below;
  const rounded = below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0);
  return sign | (rounded + (exponent + 14) * 1024);
}
