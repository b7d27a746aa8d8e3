// Texts as tokens, no more than a page should read, and tokens as visible text.

import { beginOf, type Model } from "../src/index.js";
import type { Opened } from "./opened.js";

/** The most tokens of a view, beyond which it is slow and illegible. */
export const MOST_TOKENS = 512;
/** The most characters per token; a longer text is cut before it is encoded. */
const MOST_CHARACTERS = 16;
/** The number of preceding tokens that decide the spelling of a token. */
const NEAR = 6;

export interface Read {
  ids: number[];
  /** A sentence if tokens were left out, or else empty. */
  note: string;
}

/** The last tokens of a prompt; an empty prompt begins a document. */
export function prompt(opened: Opened, text: string, most = MOST_TOKENS): Read {
  const limit = Math.min(most, opened.manifest.maxSeqLen ?? Infinity);
  if (opened.kind === "speller") return cut(idsOf(text, opened.manifest.vocabSize!), limit, "last");
  const whole = asRead(text);
  const kept = wellFormed(whole.slice(-MOST_CHARACTERS * most));
  const ids = opened.model.encode(kept);
  return cut(ids.length ? ids : [beginOf(opened.model.tokenizer)], limit, "last", kept.length < whole.length);
}

/** The first tokens of a text to classify, or of a source, which ends with eos. */
export function beginning({ model, manifest, kind }: Opened, text: string, most = MOST_TOKENS): Read {
  const end = kind === "translator" ? [model.sourceTokenizer.eosId] : [];
  const limit = Math.min(most, manifest.maxSourceLen ?? Infinity) - end.length;
  const whole = lineOf(text);
  const kept = wellFormed(whole.slice(0, MOST_CHARACTERS * most));
  if (!kept.trim()) throw new Error("give a text");
  const { ids, note } = cut(model.encodeSource(kept), limit, "first", kept.length < whole.length);
  return { ids: [...ids, ...end], note };
}

function cut(ids: number[], limit: number, which: "first" | "last", already = false): Read {
  const note = already || ids.length > limit ? `Only the ${which} ${limit} tokens are read.` : "";
  return { ids: which === "last" ? ids.slice(-limit) : ids.slice(0, limit), note };
}

function idsOf(text: string, vocabulary: number): number[] {
  const words = text.split(/\s+/).filter((word) => word);
  const wrong = words.find((word) => !/^[0-9]{1,9}$/.test(word) || Number(word) >= vocabulary);
  if (wrong === undefined && words.length) return words.map(Number);
  const got = wrong === undefined ? "none" : `"${wrong.slice(0, 60)}"`;
  throw new Error(
    `this model has no tokenizer, and reads ids from 0 to ${vocabulary - 1}, such as "1 2 3"; got ${got}`,
  );
}

/** A text as every program reads a file: without a byte-order mark, and with LF for CRLF (docs/verbs.md). */
export function asRead(text: string): string {
  return text.replace(/^\ufeff/, "").replaceAll("\r\n", "\n");
}

/** The same for a text to classify, without the newline at its end. */
export function lineOf(text: string): string {
  return asRead(text).replace(/\n$/, "");
}

/** Replaces lone surrogates, which are no characters. */
export function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** The text of ids, or the ids themselves if the model has no tokenizer. */
export function textOf({ model, kind }: Opened, ids: readonly number[]): string {
  return kind === "speller" ? ids.join(" ") : model.decode(ids);
}

/** The visible text that each token adds. */
export function pieces(opened: Opened, ids: readonly number[]): string[] {
  return ids.map((id, place) => piece(opened, ids.slice(Math.max(0, place - NEAR), place), id));
}

/** The visible text that a token would add after the tokens `before`. */
export function piece({ model, manifest, kind }: Opened, before: readonly number[], id: number): string {
  if (kind === "speller") return String(id);
  if (kind === "features") return String(id + 1);
  const near = before.slice(-NEAR);
  const { bosId, eosId } = model.tokenizer;
  const ends = id === eosId || (manifest.stopIds.includes(id) && id !== bosId);
  return seen(addedBy(model, near, id)) || (ends ? "(end)" : id === bosId ? "(start)" : `(${id})`);
}

function addedBy(model: Model, near: readonly number[], id: number): string {
  return model.decode([...near, id]).slice(near.length ? model.decode(near).length : 0);
}

/** Makes spaces, newlines and control characters visible. */
export function seen(text: string): string {
  return text
    .replaceAll(" ", "␣")
    .replaceAll("\n", "↵")
    .replaceAll("\t", "⇥")
    .replace(/[\u0000-\u001f\u007f]/g, "·");
}
