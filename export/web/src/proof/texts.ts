// What a bundle's tokenizers make of strings, compared with what they made of them at export.

import table from "../../../seqlab_export/runner/proof_constants.json";

import type { Bundle } from "../bundle.js";
import { SeqlabError } from "../error.js";
import { Field } from "../fields.js";
import { hex, sha256, type Files } from "../files.js";
import { loadTokenizer } from "../stored_tokenizer.js";
import type { Tokenizer } from "../tokenizer.js";
import type { GoldenFile } from "./golden.js";

/** How the tokenizer of a folder is not what it was, or the greedy text of its decoder is another; empty = all is well.
 *
 * Of a class that this runtime does not have only the files are compared.
 */
export async function textDifference(files: Files, bundle: Bundle, place: string, golden: GoldenFile): Promise<string> {
  const name = golden.at(`${place}/class`).text;
  const found = Field.of(files.get(`${place}/tokenizer.json`)!, "tokenizer.json").get("class").string();
  if (found !== name) return `it is a ${found}, and was a ${name}`;
  if ((await digestOfFiles(bundle.manifest.files, place)) !== digestAt(golden, `${place}/files`)) {
    return "its files are others than at export";
  }
  let tokenizer: Tokenizer;
  try {
    tokenizer = await loadTokenizer(files, place);
  } catch (error) {
    if (error instanceof SeqlabError && error.code === "unsupported") return "";
    throw error;
  }
  const wrong = await firstWrong(tokenizer, place, golden);
  if (wrong !== "") return `it gives another ${wrong} than at export`;
  const writes = bundle.model !== null && place === bundle.manifest.tokenizer;
  return writes ? greedyDifference(tokenizer, golden) : "";
}

/** The name of what a tokenizer gives otherwise than at export. */
async function firstWrong(tokenizer: Tokenizer, place: string, golden: GoldenFile): Promise<string> {
  if ((await digestOfTokens(tokenizer)) !== digestAt(golden, `${place}/sha256`)) return "sha256";
  const { padId, bosId, eosId } = tokenizer;
  if (!same([padId, bosId, eosId], golden.at(`${place}/special`, 3).values)) return "special";
  const stride = Math.max(Math.floor(tokenizer.vocabSize / table.most_ids), 1);
  const ids = Array.from({ length: Math.ceil(tokenizer.vocabSize / stride) }, (_, number) => number * stride);
  for (const [number, string] of [tokenizer.decode(ids), ...table.strings].entries()) {
    if (!golden.has(`${place}/string_${number}`) || golden.textOf(`${place}/string_${number}`) !== string) {
      return `string_${number}`;
    }
    const encoded = tokenizer.encode(string);
    if (!same(encoded, golden.at(`${place}/ids_${number}`).values)) return `ids_${number}`;
    if (tokenizer.decode(encoded) !== golden.textOf(`${place}/text_${number}`)) return `text_${number}`;
  }
  return "";
}

/** How the first prompt of the greedy text, or what is written after it, is another text. */
function greedyDifference(tokenizer: Tokenizer, golden: GoldenFile): string {
  const prompt = golden.at("greedy/prompt_0", null).values, ids = tokenizer.encode(golden.textOf("greedy/prompt_text"));
  const read = (ids.length > 0 ? ids : [tokenizer.bosId]).slice(0, prompt.length);
  if (!same(read, prompt)) return "the prompt has other ids than at export";
  const tokens = golden.at("greedy/tokens", null, null), written = Array.from(tokens.values.subarray(0, tokens.dims[1]));
  return tokenizer.decode(written) === golden.textOf("greedy/text") ? "" : "the greedy text is another one";
}

/** The sha256 of the length, as 4 bytes, and the bytes of every token. */
async function digestOfTokens(tokenizer: Tokenizer): Promise<string> {
  const tokens = Array.from({ length: tokenizer.vocabSize }, (_, id) => tokenizer.bytesOf(id));
  const all = new Uint8Array(tokens.reduce((size, token) => size + 4 + token.length, 0)), view = new DataView(all.buffer);
  let place = 0;
  for (const token of tokens) {
    view.setUint32(place, token.length, true);
    all.set(token, place + 4);
    place += 4 + token.length;
  }
  return sha256(all);
}

/** The sha256 of the lines "NAME SHA256" of a folder's files. */
function digestOfFiles(files: Record<string, string>, place: string): Promise<string> {
  const names = Object.keys(files).filter((name) => name.startsWith(`${place}/`));
  return sha256(new TextEncoder().encode(names.sort().map((name) => `${name} ${files[name]}\n`).join("")));
}

function digestAt(golden: GoldenFile, name: string): string {
  return hex(Uint8Array.from(golden.at(name, 32).values));
}

function same(ids: readonly number[], values: Float64Array): boolean {
  return ids.length === values.length && ids.every((id, place) => id === values[place]);
}
