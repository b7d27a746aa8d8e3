// An open bundle of the page, and the kind of its model.

import { open, type Files, type Manifest, type Model, type Ort } from "../src/index.js";
import { takeFiles, type About } from "./embedded.js";

/** A writer is a language model, a speller one without a tokenizer, and masked means a masked language model. */
export type Kind = "writer" | "speller" | "translator" | "classifier" | "tagger" | "masked" | "features";

export interface Opened {
  about: About;
  files: Files;
  ort: Ort;
  model: Model;
  manifest: Manifest;
  kind: Kind;
  /** Time to open the bundle, in milliseconds. */
  milliseconds: number;
}

export async function openBundle(about: About, place: number, ort: Ort): Promise<Opened> {
  const begun = performance.now();
  const files = takeFiles(place);
  const model = await open(files, ort);
  const { manifest } = model;
  return { about, files, ort, model, manifest, kind: kindOf(manifest), milliseconds: performance.now() - begun };
}

function kindOf(manifest: Manifest): Kind {
  if (manifest.encoder === null) return manifest.tokenizer === null ? "speller" : "writer";
  if (manifest.model !== null) return "translator";
  if (manifest.encoder.inputs[0].dtype !== "int64") return "features";
  if (manifest.encoder.outputs[0].dims.length === 2) return "classifier";
  return manifest.labels.length ? "tagger" : "masked";
}

/** True if the model continues a text. */
export function writes(opened: Opened): boolean {
  return opened.kind === "writer" || opened.kind === "speller";
}

/** True if the model classifies a text or its words. */
export function classifies(opened: Opened): boolean {
  return opened.kind === "classifier" || opened.kind === "tagger";
}
