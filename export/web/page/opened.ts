// A bundle that the page has opened, and what kind of model it is.

import { open, type Files, type Manifest, type Model, type Ort } from "../src/index.js";
import { takeFiles, type About } from "./embedded.js";

/** writer: a language model. speller: one whose tokens are ids alone. masked: it says which token stands at each place. */
export type Kind = "writer" | "speller" | "translator" | "classifier" | "tagger" | "masked" | "features";

export interface Opened {
  about: About;
  files: Files;
  ort: Ort;
  model: Model;
  manifest: Manifest;
  kind: Kind;
  /** From opening to being ready, in milliseconds. */
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

/** Whether it writes on from a text. */
export function writes(opened: Opened): boolean {
  return opened.kind === "writer" || opened.kind === "speller";
}

/** Whether it says the class of a text, or of its words. */
export function classifies(opened: Opened): boolean {
  return opened.kind === "classifier" || opened.kind === "tagger";
}
