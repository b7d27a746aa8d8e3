// Tokenizers of bytes, of characters and of words.

import { refuse } from "./error.js";
import { Tokenizer } from "./tokenizer.js";

const UNKNOWN = 3;
const NOTHING = new Uint8Array();
/** Whitespace as defined by Python's `str.isspace`. */
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(`[^${SPACE}]+`, "g");
const WORDS_AND_NEWLINES = new RegExp(`\\n|[^${SPACE}]+`, "g");

/** Splits a text at whitespace. */
export function wordsOf(text: string): string[] {
  return text.match(WORDS) ?? [];
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Byte b is token b + 3. */
export class ByteTokenizer extends Tokenizer {
  constructor() {
    super([NOTHING, NOTHING, NOTHING, ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte))]);
  }

  protected override idsOf(text: string): number[] {
    return Array.from(utf8(text), (byte) => byte + 3);
  }
}

/** Known strings are tokens from 4 on; any other string is token 3. */
abstract class KnownStrings extends Tokenizer {
  private readonly ids: ReadonlyMap<string, number>;

  constructor(known: readonly string[], spelt: readonly string[], unknown: string) {
    super([NOTHING, NOTHING, NOTHING, utf8(unknown), ...spelt.map(utf8)]);
    this.ids = new Map(known.map((string, place) => [string, UNKNOWN + 1 + place]));
    if (this.ids.size !== known.length) refuse("the tokenizer has a string twice");
  }

  protected override idsOf(text: string): number[] {
    return this.split(text).map((string) => this.ids.get(string) ?? UNKNOWN);
  }

  protected abstract split(text: string): string[];
}

/** Each code point of the alphabet is a token. */
export class CharTokenizer extends KnownStrings {
  constructor(alphabet: string) {
    super(Array.from(alphabet), Array.from(alphabet), "\ufffd");
  }

  protected override split(text: string): string[] {
    return Array.from(text);
  }
}

/** A token's bytes are a space and its word. With `newlines` a newline is a word too, without the space. */
export class WordTokenizer extends KnownStrings {
  override readonly dropsFirstSpace = true;

  constructor(
    words: readonly string[],
    private readonly newlines: boolean,
  ) {
    super(
      words,
      words.map((word) => (word === "\n" ? word : ` ${word}`)),
      " <unk>",
    );
  }

  protected override split(text: string): string[] {
    return text.match(this.newlines ? WORDS_AND_NEWLINES : WORDS) ?? [];
  }
}
