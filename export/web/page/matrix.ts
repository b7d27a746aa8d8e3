// A matrix of shaded squares, with the names of its rows and columns, and the number below the pointer. A number below
// zero has another colour and a bar across it.

import { inColours } from "./colours.js";
import { el } from "./dom.js";
import { short } from "./numbers.js";

export interface Matrix {
  rows: readonly string[];
  columns: readonly string[];
  /** The quantity, such as "norm of the hidden state". */
  label: string;
  value: (row: number, column: number) => number;
  /** The number with the darkest shade; by default the largest of each row. */
  most?: number;
  /** Names of the axes. */
  of?: [string, string];
}

const NAME = 84;
/** The share of the darkest shade from which a number below zero has a bar. */
const BARRED = 0.1;

/** Draws the matrix. The pointer and, with the focus, the arrow keys choose a square. */
export function matrix({ rows, columns, label, value, most, of = ["row", "column"] }: Matrix): HTMLElement {
  const size = Math.max(13, Math.min(26, Math.floor(440 / Math.max(rows.length, columns.length))));
  const upright = columns.every((name) => name.length < 2);
  const head = upright ? 18 : Math.min(NAME, 14 + 8 * Math.max(...columns.map((name) => name.length)));
  const side = Math.min(150, 14 + 8 * Math.max(...rows.map((name) => name.length)));
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const said = el(
    "p",
    { class: "reading", "aria-live": "polite" },
    "Point at a square, or use the arrow keys, for its number.",
  );
  let [row, column] = [0, 0];

  function draw(): void {
    const [width, height] = [side + size * columns.length + 2, head + size * rows.length + 2];
    const sharp = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: width * sharp, height: height * sharp });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d")!;
    const style = getComputedStyle(document.documentElement);
    pen.scale(sharp, sharp);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const [shade, below] = ["--shade", "--below"].map((name) => style.getPropertyValue(name));
    const ground = style.getPropertyValue("--ground");
    const ink = style.getPropertyValue("--ink");
    rows.forEach((name, r) => {
      pen.globalAlpha = 1;
      pen.fillStyle = ink;
      pen.textAlign = "right";
      pen.fillText(name, side - 6, head + size * (r + 0.5), side - 8);
      const values = columns.map((_, c) => value(r, c));
      const top = (most ?? Math.max(...values.map(Math.abs))) || 1;
      values.forEach((one, c) => {
        pen.globalAlpha = 1;
        pen.fillStyle = ground;
        pen.fillRect(side + size * c, head + size * r, size, size);
        const share = Number.isFinite(one) ? Math.min(1, Math.abs(one) / top) : 0;
        pen.globalAlpha = share;
        pen.fillStyle = one < 0 ? below : shade;
        pen.fillRect(side + size * c, head + size * r, size - 1, size - 1);
        if (one >= 0 || share < BARRED) return;
        pen.globalAlpha = 1;
        pen.fillStyle = share > 0.5 ? ground : ink;
        pen.fillRect(side + size * (c + 0.2), head + size * (r + 0.5) - 1, 0.6 * size - 1, 1.5);
      });
    });
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.textAlign = upright ? "center" : "left";
    columns.forEach((name, c) => {
      pen.save();
      pen.translate(side + size * (c + 0.5), upright ? head / 2 : head - 6);
      if (!upright) pen.rotate(-Math.PI / 2);
      pen.fillText(name, 0, 0, upright ? size : head - 8);
      pen.restore();
    });
  }

  function read(): void {
    const names = [
      [of[0], row, rows],
      [of[1], column, columns],
    ] as const;
    const at = names.map(
      ([what, place, all]) => `${what} ${all[place] === String(place + 1) ? "" : `${place + 1} `}${all[place]}`,
    );
    said.textContent = `${label}: ${at.join(", ")}: ${short(value(row, column))}`;
  }

  function move(to: [number, number]): void {
    row = Math.max(0, Math.min(rows.length - 1, to[0]));
    column = Math.max(0, Math.min(columns.length - 1, to[1]));
    read();
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at: [number, number] = [event.clientY - box.top - head, event.clientX - box.left - side];
    if (at[0] >= 0 && at[1] >= 0) move([Math.floor(at[0] / size), Math.floor(at[1] / size)]);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    move([row + step[0], column + step[1]]);
  });
  inColours(canvas, draw);
  return el("div", { class: "matrix" }, el("div", { class: "wide" }, canvas), said);
}
