// Byte-level BPE of pretrained models (GPT-2, Llama 3; Radford et al. 2019, section 2.2), by Hugging Face's tokenizers.

import { Tokenizer as Library } from "@huggingface/tokenizers";

import { refuse } from "./error.js";
import { Tokenizer } from "./tokenizer.js";

/** The bound on ids, lest one number in a small file allocate a huge table. */
const LARGEST = 2 ** 24;

interface Added {
  id: number;
  content: string;
  special: boolean;
}

/** The part of a `tokenizer.json` that is read here. */
interface Described {
  added_tokens: Added[];
  model: { type: string; vocab: Record<string, number> };
  pre_tokenizer: { type: string; pretokenizers?: { type: string }[] } | null;
}

/** Ids are the file's own. Encoding adds no special token, and spells out those in a text. */
export class PretrainedTokenizer extends Tokenizer {
  override readonly padId: number;
  override readonly bosId: number;
  override readonly eosId: number;
  private readonly library: Library;

  /** Takes the bytes of a `tokenizer.json`, the model's vocabulary size, which may be larger, and the special ids. */
  constructor(content: Uint8Array, vocabSize: number, special: { padId: number; bosId: number; eosId: number }) {
    const described = read(content);
    super(tableOf(described, vocabSize));
    ({ padId: this.padId, bosId: this.bosId, eosId: this.eosId } = special);
    const plain = described.added_tokens.filter((token) => !token.special);
    this.library = new Library({ ...described, added_tokens: plain }, {});
  }

  protected override idsOf(text: string): number[] {
    return this.library.encode(text, { add_special_tokens: false }).ids;
  }
}

function read(content: Uint8Array): Described {
  try {
    const described = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content)) as Described;
    const { model, pre_tokenizer: splits } = described;
    const parts = splits?.pretokenizers ?? [splits];
    if (model.type === "BPE" && parts.some((part) => part?.type === "ByteLevel")) return described;
  } catch {
    // It is refused below.
  }
  refuse("its pretrained.json is not a byte-level BPE of Hugging Face's tokenizers", "damaged bundle");
}

/** The bytes of each token; a special token has none. */
function tableOf({ model, added_tokens: added }: Described, vocabSize: number): Uint8Array[] {
  const ids = [...Object.values(model.vocab), ...added.map(({ id }) => id), vocabSize - 1];
  if (!ids.every((id) => Number.isInteger(id) && id >= 0 && id < LARGEST)) {
    refuse(`an id in its pretrained.json is not from 0 to ${LARGEST - 1}`, "damaged bundle");
  }
  const table = Array.from({ length: 1 + ids.reduce((most, id) => Math.max(most, id)) }, () => new Uint8Array());
  const bytes = new Map(letters().map((letter, byte) => [letter, byte]));
  const byteOf = (letter: string) =>
    bytes.get(letter) ??
    refuse(`its pretrained.json has the letter "${letter}", which encodes no byte`, "damaged bundle");
  for (const [piece, id] of Object.entries(model.vocab)) table[id] = Uint8Array.from(piece, byteOf);
  for (const { id, content, special } of added) {
    table[id] = special ? new Uint8Array() : new TextEncoder().encode(content);
  }
  return table;
}

/** GPT-2's letter for each byte: the byte itself if it is printable, else the next letter from U+0100 on. */
function letters(): string[] {
  const printable = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let others = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : others++));
}
