// The golden file of a bundle, in NumPy's .npz format: arrays by name, in a zip file without compression.

import { refuse } from "../error.js";
import { numberOfHalf } from "../tensors.js";

/** An array of numbers, or one string. Integers are exact below 2^53. */
export interface NpyArray {
  dims: number[];
  values: Float64Array;
  text: string;
}

const READERS: Record<string, [size: number, read: (view: DataView, place: number) => number]> = {
  "|b1": [1, (view, place) => view.getUint8(place)],
  "|u1": [1, (view, place) => view.getUint8(place)],
  "<i4": [4, (view, place) => view.getInt32(place, true)],
  "<i8": [8, (view, place) => Number(view.getBigInt64(place, true))],
  "<f2": [2, (view, place) => numberOfHalf(view.getUint16(place, true))],
  "<f4": [4, (view, place) => view.getFloat32(place, true)],
  "<f8": [8, (view, place) => view.getFloat64(place, true)],
};
const HEADER = /^\{'descr': '([^']+)', 'fortran_order': False, 'shape': \(((?:\d+,? ?)*)\), \}\s*$/;
const SUFFIX = ".npy";
// Signatures and sizes of records in a zip file (PKWARE's APPNOTE, sections 4.3.7, 4.3.12 and 4.3.16).
const END = 0x06054b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const END_SIZE = 22;
const ENTRY_SIZE = 46;
const LOCAL_SIZE = 30;

export class GoldenFile {
  private readonly arrays = new Map<string, NpyArray>();

  /** Throws SeqlabError if the file is damaged, compressed, or would unpack to more than its own length. */
  constructor(content: Uint8Array) {
    for (const [name, entry] of entriesOf(content)) {
      if (!name.endsWith(SUFFIX)) refuse(`${name} of the golden file is not an array`);
      this.arrays.set(name.slice(0, -SUFFIX.length), parseNpy(entry, name));
    }
  }

  has(name: string): boolean {
    return this.arrays.has(name);
  }

  /** The array of this name, whose dimensions must begin with `dims`; null is any number but 0. */
  at(name: string, ...dims: (number | null)[]): NpyArray {
    const found = this.arrays.get(name) ?? refuse(`the golden file does not have ${name}`);
    if (!dims.every((dim, axis) => (dim === null ? found.dims[axis] > 0 : found.dims[axis] === dim))) {
      const wanted = dims.map((dim) => dim ?? "any").join(", ");
      refuse(`${name} of the golden file has shape (${found.dims.join(", ")}), which should begin with (${wanted})`);
    }
    return found;
  }

  /** The text of an array of bytes in UTF-8. */
  textOf(name: string): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(this.at(name).values));
  }
}

/** Files of a zip file by name. */
function* entriesOf(content: Uint8Array): Generator<[string, Uint8Array]> {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const end = content.length - END_SIZE;
  if (end < 0 || view.getUint32(end, true) !== END) refuse("the golden file is not a zip file");
  let place = view.getUint32(end + 16, true);
  let left = content.length;
  for (let count = view.getUint16(end + 10, true); count > 0; --count) {
    const damaged = (): never => refuse("the golden file is damaged");
    if (place + ENTRY_SIZE > content.length || view.getUint32(place, true) !== ENTRY) damaged();
    const flags = view.getUint16(place + 8, true);
    const method = view.getUint16(place + 10, true);
    const packed = view.getUint32(place + 20, true);
    const size = view.getUint32(place + 24, true);
    left -= size;
    if (method !== 0 || flags & 1 || packed !== size || left < 0) {
      refuse("the golden file is compressed, or would unpack to more than it is long");
    }
    const nameSize = view.getUint16(place + 28, true);
    const local = view.getUint32(place + 42, true);
    const name = new TextDecoder().decode(content.subarray(place + ENTRY_SIZE, place + ENTRY_SIZE + nameSize));
    if (local + LOCAL_SIZE > content.length || view.getUint32(local, true) !== LOCAL) damaged();
    const first = local + LOCAL_SIZE + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (first + size > content.length) damaged();
    yield [name, content.subarray(first, first + size)];
    place += ENTRY_SIZE + nameSize + view.getUint16(place + 30, true) + view.getUint16(place + 32, true);
  }
}

function parseNpy(content: Uint8Array, name: string): NpyArray {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const isNpy = content.length >= 12 && new TextDecoder("latin1").decode(content.subarray(1, 6)) === "NUMPY";
  if (!isNpy || content[0] !== 0x93) refuse(`${name} of the golden file is not an .npy file`);
  const begin = content[6] > 1 ? 12 : 10;
  const size = content[6] > 1 ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = HEADER.exec(new TextDecoder("latin1").decode(content.subarray(begin, begin + size)));
  if (header === null) refuse(`the header of ${name} of the golden file is not as NumPy writes it`);
  const [, type, shape] = header;
  const data = begin + size;
  const bytes = content.length - data;
  const dims = shape
    .split(",")
    .filter((dim) => dim.trim() !== "")
    .map(Number);
  const count = dims.reduce((product, dim) => product * dim, 1);
  if (type.startsWith("<U") && dims.length === 0) return { dims, values: new Float64Array(), text: textOf(view, data) };
  const [width, read] = Object.hasOwn(READERS, type)
    ? READERS[type]
    : refuse(`${name} of the golden file has the unknown type ${type}`);
  if (count * width !== bytes) refuse(`${name} of the golden file has ${bytes} bytes, not ${count} x ${width}`);
  const values = Float64Array.from({ length: count }, (_, place) => read(view, data + place * width));
  return { dims, values, text: "" };
}

/** Decodes a string that NumPy stores as UTF-32. */
function textOf(view: DataView, first: number): string {
  let text = "";
  for (let place = first; place + 4 <= view.byteLength; place += 4) {
    const codePoint = view.getUint32(place, true);
    if (codePoint !== 0 && codePoint <= 0x10ffff) text += String.fromCodePoint(codePoint);
  }
  return text;
}
