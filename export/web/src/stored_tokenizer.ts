// Loads the tokenizers of `seqlab_data.tokenizers` from the files that they save.

import { refuse } from "./error.js";
import { Field } from "./fields.js";
import { sha256, type Files } from "./files.js";
import { ByteTokenizer, CharTokenizer, WordTokenizer } from "./plain_tokenizers.js";
import { PretrainedTokenizer } from "./pretrained_tokenizer.js";
import { SubwordTokenizer } from "./subword_tokenizer.js";
import type { Tokenizer } from "./tokenizer.js";

const FILE_NAME = "tokenizer.json";

/** Loads a folder's tokenizer. Throws SeqlabError if it is damaged or of a class that this runtime lacks. */
export async function loadTokenizer(files: Files, folder: string): Promise<Tokenizer> {
  const content = files.get(`${folder}/${FILE_NAME}`);
  if (content === undefined) refuse(`it has no ${FILE_NAME}`, "damaged bundle");
  const root = Field.of(content, FILE_NAME);
  const size = root.get("vocab_size").int(0);
  const tokenizer = ofClass(root, size, await assetsOf(root, files, folder));
  if (size !== tokenizer.vocabSize) {
    refuse(`this tokenizer has ${tokenizer.vocabSize} tokens, its description says ${size}`, "damaged bundle");
  }
  const special: Record<string, number> = { pad_id: tokenizer.padId, bos_id: tokenizer.bosId, eos_id: tokenizer.eosId };
  for (const [name, field] of root.members()) {
    if (Object.hasOwn(special, name) && field.int(-1) !== special[name]) {
      const said = `its description says ${field.int(-1)}`;
      refuse(`the ${name} of this tokenizer is ${special[name]}, ${said}`, "damaged bundle");
    }
  }
  return tokenizer;
}

/** The files that a description names, each checked against its sha256. */
async function assetsOf(root: Field, files: Files, folder: string): Promise<Map<string, Uint8Array>> {
  const assets = new Map<string, Uint8Array>();
  for (const [name, digest] of root.get("assets").members()) {
    const content = files.get(`${folder}/${name}`);
    if (content === undefined) refuse(`it has no ${name}`, "damaged bundle");
    if ((await sha256(content)) !== digest.string()) {
      refuse(`${name} is damaged: its sha256 is not the one in ${FILE_NAME}`, "damaged bundle");
    }
    assets.set(name, content);
  }
  return assets;
}

function ofClass(root: Field, size: number, assets: ReadonlyMap<string, Uint8Array>): Tokenizer {
  const name = root.get("class").string();
  const asset = (file: string) => assets.get(file) ?? refuse(`${FILE_NAME} names no ${file}`, "damaged bundle");
  if (name === "ByteTokenizer") return new ByteTokenizer();
  if (name === "CharTokenizer") return new CharTokenizer(root.get("alphabet").string());
  if (name === "WordTokenizer") return new WordTokenizer(root.get("words").strings(), root.get("newlines").boolean());
  if (name === "SubwordTokenizer") return new SubwordTokenizer(asset("tokenizer.model"));
  if (name === "PretrainedTokenizer") {
    const content = asset("pretrained.json");
    const id = (kind: string) => root.get(kind).int(-1);
    return new PretrainedTokenizer(content, size, { padId: id("pad_id"), bosId: id("bos_id"), eosId: id("eos_id") });
  }
  const known = "ByteTokenizer, CharTokenizer, PretrainedTokenizer, SubwordTokenizer and WordTokenizer";
  refuse(`this runtime has no tokenizer "${name.slice(0, 60)}", give it ids; it has ${known}`, "unsupported");
}
