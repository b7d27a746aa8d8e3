// Whether a bundle declares what its model is: statements, texts, weights and the graphs' signatures.

import type { InferenceSession } from "onnxruntime-web";

import type { Bundle } from "../bundle.js";
import { sentenceOf } from "../error.js";
import { Field } from "../fields.js";
import { hex, sha256, type Files } from "../files.js";
import type { Graph } from "../graph.js";
import { MANIFEST_NAME, WEIGHTS_NAME, type Manifest } from "../manifest.js";
import type { GoldenFile } from "./golden.js";
import type { Report } from "./report.js";
import { textDifference } from "./texts.js";

/** Each needs the ones before it. */
export async function checkDeclared(files: Files, bundle: Bundle, golden: GoldenFile, report: Report): Promise<void> {
  checkStatements(files, golden, report);
  for (const place of [bundle.manifest.tokenizer, bundle.manifest.sourceTokenizer]) {
    if (place !== null) report.add("texts", place, await noteOf(() => textDifference(files, bundle, place, golden)));
  }
  await checkWeights(files, golden, report);
  checkTaps(bundle.manifest, golden, report);
  if (!report.ok) return;
  for (const graph of [bundle.encoder, bundle.model, bundle.step]) {
    if (graph !== null) checkSignature(graph, bundle.manifest.maxSeqLen, report);
  }
}

async function noteOf(difference: () => Promise<string>): Promise<string> {
  try {
    return await difference();
  } catch (error) {
    return `it cannot be loaded: ${sentenceOf(error)}`;
  }
}

/** Whether the manifest says what the model itself states, as JSON. */
function checkStatements(files: Files, golden: GoldenFile, report: Report): void {
  const manifest = new Map(Field.of(files.get(MANIFEST_NAME)!, "the manifest").members());
  const stated = Field.of(Uint8Array.from(golden.at("model", null).values), "what the golden file states");
  for (const [name, value] of stated.members()) {
    const alike = manifest.get(name)?.equals(value) ?? false;
    report.add("statements", name, alike ? "" : "the manifest and the model differ");
  }
}

/** Whether the debug twin is the file that was compared with the model at export. */
function checkTaps({ files, taps }: Manifest, golden: GoldenFile, report: Report): void {
  if (taps === null) return;
  const same = files[taps.file] === hex(Uint8Array.from(golden.at("taps/sha256", 32).values));
  report.add("twin", taps.file, same ? "" : "it is not the file that was written");
}

async function checkWeights(files: Files, golden: GoldenFile, report: Report): Promise<void> {
  const weights = files.get(WEIGHTS_NAME);
  if (weights === undefined || weights.length === 0) return;
  // Of N tensors (N, 2), an offset and a length, and (N, 32) bytes.
  const places = golden.at("weights/places", null, 2);
  const digests = golden.at("weights/sha256", places.dims[0], 32);
  let note = "";
  for (let place = 0; place < places.dims[0] && note === ""; ++place) {
    const offset = places.values[2 * place];
    const end = offset + places.values[2 * place + 1];
    const digest = hex(Uint8Array.from(digests.values.subarray(32 * place, 32 * (place + 1))));
    if ((await sha256(weights.slice(offset, end))) !== digest) note = `bytes ${offset} to ${end} are not the model's`;
  }
  report.add("weights", WEIGHTS_NAME, note);
}

function checkSignature({ info, session }: Graph, maxSeqLen: number | null, report: Report): void {
  const declared = new Map(
    [...session.inputMetadata, ...session.outputMetadata].map((one) => [one.name, described(one)]),
  );
  const expected = [...info.inputs, ...info.outputs].map(({ name, dtype, dims }): [string, string] => [
    name,
    `${dtype} (${dims.map((dim) => (dim === "C" ? maxSeqLen : dim)).join(", ")})`,
  ]);
  for (const [name, wanted] of expected) {
    const found = declared.get(name) ?? "nothing";
    report.add(
      "signature",
      `${info.file} ${name}`,
      found === wanted ? "" : `the graph has ${found}, the manifest ${wanted}`,
    );
    declared.delete(name);
  }
  for (const name of declared.keys()) report.add("signature", `${info.file} ${name}`, "the manifest lacks it");
}

/** Such as "float32 (B, T, 11)". */
function described(found: InferenceSession.ValueMetadata): string {
  return found.isTensor ? `${found.type} (${found.shape.join(", ")})` : "no tensor";
}
