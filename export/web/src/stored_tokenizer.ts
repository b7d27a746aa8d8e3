// The tokenizers of `seqlab_data.tokenizers`, from the files that they save.

import { refuse } from "./error.js";
import { Field } from "./fields.js";
import type { Files } from "./files.js";
import { ByteTokenizer, CharTokenizer, WordTokenizer } from "./plain_tokenizers.js";
import type { Tokenizer } from "./tokenizer.js";

const FILE_NAME = "tokenizer.json";

/** The tokenizer of a folder. Throws SeqlabError where it is damaged, or of a class that is not here. */
export async function loadTokenizer(files: Files, folder: string): Promise<Tokenizer> {
  const content = files.get(`${folder}/${FILE_NAME}`);
  if (content === undefined) refuse(`it has no ${FILE_NAME}`, "damaged bundle");
  const root = Field.of(content, FILE_NAME);
  const tokenizer = ofClass(root);
  const size = root.get("vocab_size").int(0);
  if (size !== tokenizer.vocabSize) {
    refuse(`this tokenizer has ${tokenizer.vocabSize} tokens, its description says ${size}`, "damaged bundle");
  }
  const special: Record<string, number> = { pad_id: tokenizer.padId, bos_id: tokenizer.bosId, eos_id: tokenizer.eosId };
  for (const [name, field] of root.members()) {
    if (Object.hasOwn(special, name) && field.int(0) !== special[name]) {
      const said = `its description says ${field.int(0)}`;
      refuse(`the ${name} of this tokenizer is ${special[name]}, ${said}`, "damaged bundle");
    }
  }
  return tokenizer;
}

function ofClass(root: Field): Tokenizer {
  const name = root.get("class").string();
  root.get("assets").members();
  if (name === "ByteTokenizer") return new ByteTokenizer();
  if (name === "CharTokenizer") return new CharTokenizer(root.get("alphabet").string());
  if (name === "WordTokenizer") return new WordTokenizer(root.get("words").strings(), root.get("newlines").boolean());
  const known = "ByteTokenizer, CharTokenizer and WordTokenizer";
  refuse(`this runtime has no tokenizer "${name.slice(0, 60)}", give it ids; it has ${known}`, "unsupported");
}
