// Arithmetic that is the same in every language: 16-bit floats, Philox, rows of tensors, the judgement of errors.

import assert from "node:assert/strict";
import { test } from "node:test";

import { judged, limitOf } from "../src/proof/accuracy.js";
import { philox, uniform } from "../src/sampling.js";
import { halfOf, numberOfHalf, takeRows, tensorOf } from "../src/tensors.js";

test("each 16-bit float has its value", () => {
  const known: [number, number][] = [
    [0x0000, 0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x7bff, 65504],
    [0x0400, 2 ** -14],
    [0x0001, 2 ** -24],
    [0x3555, 0.333251953125],
  ];
  for (const [bits, number] of known) assert.equal(numberOfHalf(bits), number);
  for (let bits = 0; bits < 2 ** 16; ++bits) {
    const number = numberOfHalf(bits);
    if (!Number.isNaN(number)) assert.equal(halfOf(number), bits);
  }
});

test("a number becomes the nearest 16-bit float, ties to even", () => {
  assert.equal(halfOf(1 + 2 ** -11), 0x3c00);
  assert.equal(halfOf(1 + 3 * 2 ** -11), 0x3c02);
  assert.equal(halfOf(2 ** -25), 0);
  assert.equal(halfOf(65519.99), 0x7bff);
  assert.equal(halfOf(65520), 0x7c00);
  assert.equal(halfOf(2 - 2 ** -12), 0x4000);
});

test("Philox reproduces its authors' test vectors", () => {
  const all = 0xffffffffn;
  assert.deepEqual(philox([0n, 0n, 0n, 0n], [0n, 0n]), [0x6627e8d5n, 0xe169c58dn, 0xbc57ac4cn, 0x9b00dbd8n]);
  assert.deepEqual(philox([all, all, all, all], [all, all]), [0x408f276dn, 0x41c83b0en, 0xa20bc7c6n, 0x6d5451fdn]);
  const pi = [0x243f6a88n, 0x85a308d3n, 0x13198a2en, 0x03707344n];
  assert.deepEqual(philox(pi, [0xa4093822n, 0x299f31d0n]), [0xd16cfe09n, 0x94fdccebn, 0x5001e420n, 0x24126ea1n]);
  assert.equal(uniform(0n, 0, 0), ((0x6627e8d5 >>> 5) * 2 ** 26 + (0xe169c58d >>> 6)) / 2 ** 53);
});

test("rows are taken in any order, also from empty tensors", () => {
  const taken = takeRows(tensorOf("int64", [3, 2], [1, 2, 3, 4, 5, 6]), [2, 0, 2]);
  assert.deepEqual(taken, { dtype: "int64", dims: [3, 2], data: BigInt64Array.of(5n, 6n, 1n, 2n, 5n, 6n) });
  assert.deepEqual(takeRows(tensorOf("float32", [1, 0, 4], []), [0, 0]).dims, [2, 0, 4]);
});

test("an error of PyTorch that is not finite passes nothing", () => {
  for (const own of [NaN, Infinity]) {
    const { ok, note } = judged("prefill", "logits", Float64Array.of(0, 0), own, limitOf(own, "fp16"));
    assert.deepEqual([ok, note], [false, "PyTorch's own error is not finite"]);
  }
  assert.ok(judged("prefill", "logits", Float64Array.of(0.5, 0.5), 0.25, limitOf(0.25, "fp32")).ok);
});
