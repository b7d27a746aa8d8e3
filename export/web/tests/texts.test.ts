// Tokens are decoded one by one, in pieces of whole characters.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ByteTokenizer, CharTokenizer, WordTokenizer, wordsOf } from "../src/plain_tokenizers.js";
import { TextStream, type Tokenizer } from "../src/tokenizer.js";

function pieces(tokenizer: Tokenizer, ids: number[]): string[] {
  const stream = new TextStream(tokenizer);
  return [...ids.map((id) => stream.push(id)), stream.finish()];
}

test("a character of several bytes comes out whole", () => {
  const tokenizer = new ByteTokenizer();
  const ids = tokenizer.encode("a\u{1F642}\ufeff");
  assert.deepEqual(pieces(tokenizer, ids), ["a", "", "", "", "\u{1F642}", "", "", "\ufeff", ""]);
  assert.deepEqual(pieces(tokenizer, ids.slice(0, 3)), ["a", "", "", "\ufffd"]);
  assert.deepEqual(pieces(tokenizer, [0xe2 + 3, 0x28 + 3, 1, 2]), ["", "\ufffd(", "", "", ""]);
});

test("words are joined by spaces, a newline by nothing", () => {
  const tokenizer = new WordTokenizer(["cat", "\n"], true);
  assert.deepEqual(tokenizer.encode(" cat\u2003cat\ndog\0"), [4, 4, 5, 3]);
  assert.equal(tokenizer.decode([4, 4, 5, 3]), "cat cat\n <unk>");
  assert.deepEqual(wordsOf("a\u200bb\ufeff \x1c c\x85"), ["a\u200bb\ufeff", "c"]);
});

test("an id outside the vocabulary is refused", () => {
  const said = { message: "token id 6 is outside the vocabulary, ids run from 0 to 5", code: "invalid argument" };
  assert.throws(() => new CharTokenizer("ab").decode([4, 6]), said);
});
