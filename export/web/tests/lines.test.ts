// A chart draws finite numbers only, and says of the others that they are not.

import assert from "node:assert/strict";
import { test } from "node:test";

import { lines } from "../page/lines.js";

/** As much of an element as a chart takes, which shows as markup. */
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

test("null stands for what is not finite", () => {
  const drawn = String(
    lines(
      [
        {
          name: "loss",
          points: [
            [1, 2],
            [2, null],
            [3, 1],
            [4, null],
          ],
        },
      ],
      "step",
      "Loss",
    ),
  );
  assert.match(drawn, / loss: not finite at 4/);
  assert.equal(drawn.match(/<circle/g)?.length, 2);
  assert.doesNotMatch(drawn, /NaN|null/);
  const [, path] = drawn.match(/<polyline[^>]* points="([^"]*)"/)!;
  assert.equal(path!.split(" ").length, 2);
});

test("where nothing is finite it is said", () => {
  assert.match(String(lines([{ name: "loss", points: [[1, null]] }], "step", "Loss")), /Loss: not finite\./);
  assert.match(String(lines([{ name: "loss", points: [] }], "step", "Loss")), /Nothing was measured\./);
});
