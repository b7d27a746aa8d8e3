// The page reads a text as the command line reads standard input (tests/runtime/test_commands.py).

import assert from "node:assert/strict";
import { test } from "node:test";

import { asRead, lineOf } from "../page/reading.js";

test("a text is read without a byte-order mark, and with LF for CRLF", () => {
  const cases = [
    ["", ""],
    ["\ufefffed", "fed"],
    ["\ufeff\ufefffed", "\ufefffed"],
    ["fed\ufeffa\n\n", "fed\ufeffa\n\n"],
    ["fed\r\na\r\n", "fed\na\n"],
    ["fed\r\r\n\ra\r", "fed\r\n\ra\r"],
    ["fed\u2028a\x85\n", "fed\u2028a\x85\n"],
  ];
  for (const [given, whole] of cases) {
    assert.equal(asRead(given), whole);
    assert.equal(lineOf(given), whole.replace(/\n$/, ""));
  }
});
