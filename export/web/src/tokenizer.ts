// The base of all tokenizers. A token is always the same bytes, so decoding is a table look-up.

import { refuse } from "./error.js";

/** Turns text into token ids and back. */
export abstract class Tokenizer {
  readonly padId: number = 0;
  /** -1 = there is none. */
  readonly bosId: number = 1;
  readonly eosId: number = 2;
  /** True if decoding drops a space at the very beginning. */
  readonly dropsFirstSpace: boolean = false;

  constructor(private readonly tokenBytes: readonly Uint8Array[]) {}

  get vocabSize(): number {
    return this.tokenBytes.length;
  }

  /** The ids of a text, without special tokens. Throws SeqlabError if it has a lone surrogate. */
  encode(text: string): number[] {
    if (!text.isWellFormed()) {
      const place = Array.from(text).findIndex((character) => !character.isWellFormed());
      refuse(`the text has a lone surrogate, which UTF-8 cannot hold, at character ${place}`);
    }
    return this.idsOf(text);
  }

  /** The bytes of a token. Throws SeqlabError if the id is outside the vocabulary. */
  bytesOf(id: number): Uint8Array {
    const bytes = this.tokenBytes[id];
    if (bytes === undefined) {
      refuse(`token id ${id} is outside the vocabulary, ids run from 0 to ${this.vocabSize - 1}`);
    }
    return bytes;
  }

  /** The text of ids. Special tokens are dropped, and bytes that are not UTF-8 become U+FFFD. */
  decode(ids: readonly number[]): string {
    const stream = new TextStream(this);
    return ids.map((id) => stream.push(id)).join("") + stream.finish();
  }

  /** The ids of a text without lone surrogates. */
  protected abstract idsOf(text: string): number[];
}

/** The token that begins a document, and so an empty prompt. Throws SeqlabError if there is none. */
export function beginOf(tokenizer: Tokenizer): number {
  if (tokenizer.bosId >= 0) return tokenizer.bosId;
  refuse("the prompt is empty, and no token starts a document of this model; give a prompt");
}

/** Decodes one id at a time, in pieces of whole characters. Joined, they are the text that `decode` returns. */
export class TextStream {
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private begun = false;

  constructor(private readonly tokenizer: Tokenizer) {}

  push(id: number): string {
    return this.withoutFirstSpace(this.decoder.decode(this.tokenizer.bytesOf(id), { stream: true }));
  }

  finish(): string {
    return this.withoutFirstSpace(this.decoder.decode());
  }

  private withoutFirstSpace(text: string): string {
    const drops = !this.begun && this.tokenizer.dropsFirstSpace && text.startsWith(" ");
    this.begun ||= text !== "";
    return drops ? text.slice(1) : text;
  }
}
