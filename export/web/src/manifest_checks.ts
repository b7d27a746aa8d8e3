// Checks that the parts of a manifest fit each other.

import table from "../../seqlab_export/runner/manifest_fields.json";

import { refuse } from "./error.js";
import { graphsOf, isFloat, type GraphInfo, type Manifest, type TensorInfo } from "./manifest.js";

/** Maximum size of the state of one text, in bytes, at 8 bytes a number. */
const MOST_STATE_BYTES = 2 ** table.most_state_bits;

/** Throws SeqlabError if they do not. */
export function checkManifest(manifest: Manifest): void {
  if ((manifest.model === null) !== (manifest.step === null) || graphsOf(manifest).length === 0) {
    refuse("the manifest has neither an encoder nor both graphs of a decoder");
  }
  const outside = manifest.stopIds.find((token) => token >= (manifest.vocabSize ?? 0));
  if (outside !== undefined) refuse(`stop_ids has ${outside}, which is outside the vocabulary`);
  for (const [name, sha256] of Object.entries(manifest.files)) {
    checkPath(name);
    if (!/^[0-9a-f]{64}$/.test(sha256)) refuse(`the sha256 of ${name} is "${sha256.slice(0, 70)}"`);
  }
  checkNeeded(manifest);
  versionOf(manifest.minOnnxruntime);
  const { encoder } = manifest;
  if (encoder !== null && (encoder.inputs.length !== 2 || encoder.outputs.length === 0)) {
    refuse(`${encoder.file} must take an input and its mask, and give something`);
  }
  for (const entry of manifest.state) {
    if ((entry.dims[0] !== "B" && entry.dims[0] !== "N") || entry.dims.includes("T")) {
      refuse(`state entry ${entry.name} has dims ${entry.dims.join(", ")}, which must begin with B or N and hold no T`);
    }
  }
  if (manifest.model !== null && manifest.step !== null) {
    checkGraphOfDecoder(manifest.model, manifest.vocabSize, ["tokens", "pad_mask", "scored"]);
    checkGraphOfDecoder(manifest.step, manifest.vocabSize, ["tokens", "pad_mask"]);
    checkState(manifest);
  }
  if (manifest.guess !== null) checkGuess(manifest.model, manifest.guess);
}

function checkGuess(model: GraphInfo | null, { file, inputs, outputs }: GraphInfo): void {
  const last = outputs.at(-1);
  const same = JSON.stringify([inputs, outputs.slice(0, -1)]) === JSON.stringify([model?.inputs, model?.outputs]);
  if (!same) refuse(`${file} must have the inputs and outputs of model, and guesses`);
  const [rows, places, count] = last?.dims ?? [];
  const fits = last?.name === "guesses" && last.dtype === "int64" && last.dims.length === 3;
  if (!fits || rows !== "B" || places !== "K" || typeof count !== "number") {
    refuse(`${file} must end with guesses (B, K, N)`);
  }
}

/** Major and minor version of a text such as "1.30.0". */
export function versionOf(text: string): [number, number] {
  const found = /^(\d{1,5})\.(\d{1,5})[0-9.]*$/.exec(text);
  if (found === null) refuse(`"${text.slice(0, 60)}" is not a version of onnxruntime`);
  return [Number(found[1]), Number(found[2])];
}

function checkPath(name: string): void {
  const parts = name.split("/");
  const inside = name !== "" && name !== "." && parts[0] !== "" && !parts.includes("..") && !/[\\\0]/.test(name);
  if (!inside) refuse(`"${name}" is not a path inside the bundle`);
}

function checkNeeded(manifest: Manifest): void {
  const folders = [manifest.tokenizer, manifest.sourceTokenizer].filter((folder) => folder !== null);
  folders.forEach(checkPath);
  const graphs = [...graphsOf(manifest), manifest.taps, manifest.guess].filter((graph) => graph !== null);
  const needed = [
    manifest.golden,
    ...graphs.map((graph) => graph.file),
    ...folders.map((folder) => `${folder}/tokenizer.json`),
  ];
  for (const name of needed) {
    if (!Object.hasOwn(manifest.files, name)) refuse(`the manifest gives no sha256 of ${name}`);
  }
}

function checkGraphOfDecoder(graph: GraphInfo, vocabSize: number | null, needed: readonly string[]): void {
  if (vocabSize === null) refuse("the manifest has a decoder and no vocab_size");
  const logits = graph.outputs.filter((output) => output.name === "logits");
  const fit = (output: TensorInfo) => isFloat(output) && output.dims.length === 3 && output.dims[2] === vocabSize;
  if (logits.length !== 1 || !logits.every(fit)) refuse(`${graph.file} gives no logits of vocab_size ${vocabSize}`);
  const missing = needed.find((name) => !graph.inputs.some((input) => input.name === name));
  if (missing !== undefined) refuse(`${graph.file} takes no ${missing}`);
}

function checkState(manifest: Manifest): void {
  const { encoder, state, maxSeqLen } = manifest;
  for (const entry of state) {
    if (entry.dims.includes("C") && maxSeqLen === null) {
      refuse(`state entry ${entry.name} has the dimension C, but there is no max_seq_len`);
    }
    if (encoder === null && entry.initial === null) {
      refuse(`state entry ${entry.name} has no initial value and the bundle has no encoder to supply one`);
    }
    if (encoder !== null && !encoder.outputs.some((output) => output.name === `state_${entry.name}`)) {
      refuse(`${encoder.file} gives no state_${entry.name}`);
    }
  }
  const sizes: Partial<Record<string, number>> = { B: 1, N: 1, C: maxSeqLen ?? 0 };
  const sizeOf = (dim: string | number) => (typeof dim === "number" ? dim : (sizes[dim] ?? 0));
  const bytes = state.reduce((sum, entry) => sum + entry.dims.reduce<number>((size, dim) => size * sizeOf(dim), 8), 0);
  if (bytes > MOST_STATE_BYTES) {
    refuse(`the state takes ${bytes} bytes a text, at most ${MOST_STATE_BYTES} are accepted`);
  }
}
