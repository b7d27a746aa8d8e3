// What a bundle says about itself: manifest.json, read by the table that all runtimes share. docs/bundle.md explains each
// field. A field `max_seq_len` of the file is `maxSeqLen` here.

import table from "../../seqlab_export/runner/manifest_fields.json";

import { refuse } from "./error.js";
import { Field } from "./fields.js";

export const { manifest_name: MANIFEST_NAME, seal_name: SEAL_NAME, weights_name: WEIGHTS_NAME } = table;
/** Bytes of a number of each type. */
export const BYTES = table.dtypes;

export type DType = keyof typeof table.dtypes;
/** A number is a fixed size; the table explains the letters. */
export type Dim = number | keyof typeof table.dims;

/** An input or output of a graph. */
export type TensorInfo = ObjectOf<"tensor">;

/** An entry of a decoder's state, and its value before the first token; null = the encoder's. */
export type StateInfo = TensorInfo & ObjectOf<"state">;

/** An ONNX file, with its inputs and outputs in order. */
export type GraphInfo = ObjectOf<"graph">;

export type Manifest = ObjectOf<"manifest">;

type ObjectOf<Name extends keyof typeof table.objects> = {
  [Key in keyof (typeof table.objects)[Name] & string as Camel<Key>]: Value<(typeof table.objects)[Name][Key]>;
};

type Camel<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<Camel<Rest>>}`
  : Name;

/** The type of a value of a kind: an object of one key, which manifest_kinds.py explains. */
type Value<Kind> = Kind extends { nullable: infer Inner }
  ? Value<Inner> | null
  : Kind extends { list: infer Item }
    ? Value<Item>[]
    : Kind extends { map: infer Item }
      ? Record<string, Value<Item>>
      : Named[keyof Kind & keyof Named];

interface Named {
  text: string;
  count: number;
  number: number;
  dtype: DType;
  dim: Dim;
  precision: keyof typeof table.precisions;
  proof: keyof typeof table.proofs;
  target: keyof typeof table.targets;
  tensor: TensorInfo;
  state: StateInfo;
  graph: GraphInfo;
  provenance: ObjectOf<"provenance">;
}

/** The graphs of a bundle except the taps, in the order encoder, model, step. */
export function graphsOf(manifest: Manifest): GraphInfo[] {
  return [manifest.encoder, manifest.model, manifest.step].filter((graph) => graph !== null);
}

export function isFloat(info: TensorInfo): boolean {
  return info.dtype.startsWith("float");
}

/** Reads the content of manifest.json; `checkManifest` then checks that its parts fit each other. */
export function parseManifest(bytes: Uint8Array): Manifest {
  const root = Field.of(bytes, "the manifest");
  if (!root.get("format").is(table.format)) refuse(`the manifest lacks "format": "${table.format}"`);
  const version = root.get("version");
  if (!version.is(table.version)) {
    const older = version.int(0) < table.version ? "; export it again" : "";
    refuse(`the manifest has version ${version.int(0)}, this program reads version ${table.version}${older}`);
  }
  const minor = root.has("minor") ? root.get("minor").int(0) : 0;
  const known = minor > table.minor ? root.ofNewerMinor() : root;
  return readObject(known, "manifest", ["format", "version", "minor"]) as Manifest;
}

type Fields = Record<string, object>;

function fieldsOf(name: string): Fields {
  const objects: Record<string, Fields> = table.objects;
  const bases: Record<string, string> = table.extends;
  return { ...(name in bases ? fieldsOf(bases[name]) : {}), ...objects[name] };
}

function readObject(field: Field, name: string, head: readonly string[] = []): object {
  const fields = fieldsOf(name);
  const at = field.exactly(Object.keys(fields), head);
  return Object.fromEntries(Object.entries(fields).map(([key, kind]) => [camel(key), read(at(key), kind)]));
}

function camel(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function read(field: Field, kind: object): unknown {
  const [[name, argument]] = Object.entries(kind as Record<string, unknown>);
  if (name === "nullable") return field.isNull ? null : read(field, argument as object);
  if (name === "list") return field.items().map((item) => read(item, argument as object));
  if (name === "map") {
    return Object.fromEntries(field.members().map(([key, item]) => [key, read(item, argument as object)]));
  }
  if (name === "text") return field.string();
  if (name === "count") return field.int(argument as number);
  if (name === "number") return field.real();
  if (name === "dim" && !field.isString) return field.int(0);
  if (Object.hasOwn(table.objects, name)) return readObject(field, name);
  return field.oneOf(Object.keys(table[`${name}s` as "dtypes" | "dims" | "precisions" | "targets"]));
}
