// A line chart over whole numbers, with a key.

import { el, svg } from "./dom.js";
import { short } from "./numbers.js";

/** A position and its value; null = not finite. */
export type Point = readonly [number, number | null];

export interface Line {
  name: string;
  points: readonly Point[];
}

const WIDTH = 400;
const HEIGHT = 210;
const LEFT = 52;
const BOTTOM = 44;
const TOP = 14;
const RIGHT = 16;
const DASHES = ["", "7 4", "2 4", "10 3 2 3", "4 2", "1 3"];

function finite(points: readonly Point[]): (readonly [number, number])[] {
  return points.filter((point): point is readonly [number, number] => point.every(Number.isFinite));
}

/** Draws the chart. Lines differ in colour and in dashes, and the key gives their last values. */
export function lines(all: readonly Line[], x: string, y: string): HTMLElement {
  const points = all.flatMap((line) => finite(line.points));
  if (!points.length) {
    const measured = all.some((line) => line.points.length);
    return el("p", { class: "note" }, measured ? `${y}: not finite.` : "Nothing was measured.");
  }
  const [from, to] = [Math.min(...points.map(([at]) => at)), Math.max(...points.map(([at]) => at))];
  const top = Math.max(...points.map(([, value]) => value)) || 1;
  const low = Math.min(0, ...points.map(([, value]) => value));
  const across = (at: number) => LEFT + ((WIDTH - LEFT - RIGHT) * (at - from)) / (to - from || 1);
  const up = (value: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - low)) / (top - low);
  const parts: SVGElement[] = [];
  for (const value of [low, (low + top) / 2, top]) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: up(value), y2: up(value) }));
    parts.push(svg("text", { x: LEFT - 8, y: up(value) + 5, "text-anchor": "end" }, short(value)));
  }
  for (const at of [from, to]) {
    parts.push(
      svg("text", { x: across(at), y: HEIGHT - BOTTOM + 18, "text-anchor": at === from ? "start" : "end" }, short(at)),
    );
  }
  parts.push(svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, x));
  all.forEach((line, number) => {
    const path = finite(line.points)
      .map(([at, value]) => `${across(at)},${up(value)}`)
      .join(" ");
    parts.push(
      svg("polyline", { class: `line line-${number % 6}`, "stroke-dasharray": DASHES[number % 6], points: path }),
    );
    for (const [at, value] of line.points.length < 60 ? finite(line.points) : []) {
      const title = svg("title", {}, `${line.name}: ${short(value)} at ${short(at)}`);
      parts.push(svg("circle", { class: `dot dot-${number % 6}`, cx: across(at), cy: up(value), r: 3 }, title));
    }
  });
  const key = all.map((line, number) => {
    const stroke = {
      class: `line line-${number % 6}`,
      "stroke-dasharray": DASHES[number % 6],
      x1: 0,
      x2: 28,
      y1: 6,
      y2: 6,
    };
    const last = line.points.at(-1);
    const sample = svg("svg", { width: 28, height: 12, "aria-hidden": "true" }, svg("line", stroke));
    return el(
      "li",
      {},
      sample,
      ` ${line.name}${last ? `: ${last[1] === null ? "not finite" : short(last[1])} at ${short(last[0])}` : ""}`,
    );
  });
  const drawn = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${y} against ${x}` },
    ...parts,
  );
  return el("figure", { class: "chart" }, el("figcaption", {}, y), drawn, el("ul", { class: "key" }, ...key));
}
