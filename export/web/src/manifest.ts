// What a bundle says about itself: manifest.json, checked when it is read. docs/bundle.md explains it.

import { refuse } from "./error.js";
import { Field } from "./fields.js";

export const MANIFEST_NAME = "manifest.json";
export const SEAL_NAME = "manifest.sha256";
const FORMAT = "seqlab-bundle";
const VERSION = 7;
const DTYPES = ["bool", "int64", "float16", "float32"] as const;
const DIMS = ["B", "T", "T+1", "S", "S+T", "S+1", "M", "C", "N"] as const;
const PRECISIONS = ["fp32", "fp16", "bf16", "int8", "int4"] as const;
const TARGETS = ["portable", "ort", "cuda-graph"] as const;

export type DType = (typeof DTYPES)[number];
/** A number is fixed; the letters are docs/bundle.md's. */
export type Dim = number | (typeof DIMS)[number];

/** An input or output of a graph. */
export interface TensorInfo {
  name: string;
  dtype: DType;
  dims: Dim[];
}

/** An entry of a decoder's state, and its value before the first token; null = the encoder's. */
export interface StateInfo extends TensorInfo {
  initial: number | null;
}

/** An ONNX file, with its inputs and outputs in their order. */
export interface GraphInfo {
  file: string;
  inputs: TensorInfo[];
  outputs: TensorInfo[];
}

export interface Manifest {
  min_onnxruntime: string;
  target: (typeof TARGETS)[number];
  precision: (typeof PRECISIONS)[number];
  vocab_size: number | null;
  max_seq_len: number | null;
  max_source_len: number | null;
  seq_len: number;
  stop_ids: number[];
  first_call: number;
  encoder: GraphInfo | null;
  model: GraphInfo | null;
  step: GraphInfo | null;
  taps: GraphInfo | null;
  state: StateInfo[];
  in_place: string[];
  tokenizer: string | null;
  source_tokenizer: string | null;
  labels: string[];
  golden: string;
  files: Record<string, string>;
  provenance: { run_id: string; commit: string; seqlab: string; torch: string; onnxruntime: string };
}

/** The graphs that a bundle has, but for the taps: of the encoder, of sequences, of steps. */
export function graphsOf(manifest: Manifest): GraphInfo[] {
  return [manifest.encoder, manifest.model, manifest.step].filter((graph) => graph !== null);
}

export function isFloat(info: TensorInfo): boolean {
  return info.dtype.startsWith("float");
}

/** Reads the content of manifest.json; `checkManifest` says whether its parts fit each other. */
export function parseManifest(bytes: Uint8Array): Manifest {
  const root = Field.of(bytes, "the manifest");
  if (!root.get("format").is(FORMAT)) refuse(`the manifest lacks "format": "${FORMAT}"`);
  const version = root.get("version");
  if (!version.is(VERSION)) refuse(`the manifest has version ${version.int(0)}, this program reads version ${VERSION}`);
  const at = root.exactly(
    ...["format", "version", "min_onnxruntime", "target", "precision", "vocab_size", "max_seq_len", "max_source_len"],
    ...["seq_len", "stop_ids", "first_call", "encoder", "model", "step", "taps", "state", "in_place", "tokenizer"],
    ...["source_tokenizer", "labels", "golden", "files", "provenance"],
  );
  const count = (name: string) => at(name).orNull((field) => field.int(1));
  const text = (name: string) => at(name).orNull((field) => field.string());
  const provenance = at("provenance").exactly("run_id", "commit", "seqlab", "torch", "onnxruntime");
  return {
    min_onnxruntime: at("min_onnxruntime").string(),
    target: at("target").oneOf(TARGETS),
    precision: at("precision").oneOf(PRECISIONS),
    vocab_size: count("vocab_size"),
    max_seq_len: count("max_seq_len"),
    max_source_len: count("max_source_len"),
    seq_len: at("seq_len").int(1),
    stop_ids: at("stop_ids").items().map((token) => token.int(0)),
    first_call: at("first_call").int(1),
    encoder: at("encoder").orNull(readGraph),
    model: at("model").orNull(readGraph),
    step: at("step").orNull(readGraph),
    taps: at("taps").orNull(readGraph),
    state: at("state").items().map(readState),
    in_place: at("in_place").strings(),
    tokenizer: text("tokenizer"),
    source_tokenizer: text("source_tokenizer"),
    labels: at("labels").strings(),
    golden: at("golden").string(),
    files: Object.fromEntries(
      at("files")
        .members()
        .map(([name, sha256]) => [name, sha256.string()]),
    ),
    provenance: {
      run_id: provenance("run_id").string(),
      commit: provenance("commit").string(),
      seqlab: provenance("seqlab").string(),
      torch: provenance("torch").string(),
      onnxruntime: provenance("onnxruntime").string(),
    },
  };
}

function readGraph(field: Field): GraphInfo {
  const at = field.exactly("file", "inputs", "outputs");
  return {
    file: at("file").string(),
    inputs: at("inputs").items().map(readTensor),
    outputs: at("outputs").items().map(readTensor),
  };
}

function readTensor(field: Field): TensorInfo {
  return readNamed(field.exactly("name", "dtype", "dims"));
}

function readState(field: Field): StateInfo {
  const at = field.exactly("name", "dtype", "dims", "initial");
  return { ...readNamed(at), initial: at("initial").orNull((initial) => initial.real()) };
}

function readNamed(at: (name: string) => Field): TensorInfo {
  const dims = at("dims").items();
  return {
    name: at("name").string(),
    dtype: at("dtype").oneOf(DTYPES),
    dims: dims.map((dim) => (dim.isString ? dim.oneOf(DIMS) : dim.int(0))),
  };
}
