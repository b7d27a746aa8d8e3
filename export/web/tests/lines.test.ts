// A chart draws only finite numbers, and names those that are not.

import assert from "node:assert/strict";
import { test } from "node:test";

import { lines, type Point } from "../page/lines.js";

/** As much of an element as a chart uses, with its markup as a string. */
class Element {
  readonly parts: string[] = [];
  readonly attributes: string[] = [];
  constructor(readonly name: string) {}
  setAttribute(name: string, value: string): void {
    this.attributes.push(` ${name}="${value}"`);
  }
  append(...children: (Element | string)[]): void {
    this.parts.push(...children.map(String));
  }
  toString(): string {
    return `<${this.name}${this.attributes.join("")}>${this.parts.join("")}</${this.name}>`;
  }
}

Object.assign(globalThis, {
  document: {
    createElement: (name: string) => new Element(name),
    createElementNS: (_: string, name: string) => new Element(name),
  },
});

function drawn(points: Point[]): string {
  return (lines([{ name: "loss", points }], "step", "Loss") as unknown as Element).toString();
}

test("null is a number that is not finite", () => {
  const chart = drawn([
    [1, 2],
    [2, null],
    [3, 1],
    [4, null],
  ]);
  assert.match(chart, / loss: not finite at 4/);
  assert.equal(chart.match(/<circle/g)?.length, 2);
  assert.doesNotMatch(chart, /NaN|null/);
  const [, path] = chart.match(/<polyline[^>]* points="([^"]*)"/)!;
  assert.equal(path.split(" ").length, 2);
});

test("a chart without finite numbers says so", () => {
  assert.match(drawn([[1, null]]), /Loss: not finite\./);
  assert.match(drawn([]), /Nothing was measured\./);
});
