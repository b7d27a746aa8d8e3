// Attention drawn over the text: arcs from each token to those that it attends to, or lines from target to source.

import { bars } from "./bars.js";
import { button, el, svg } from "./dom.js";
import { largest, percent } from "./numbers.js";

export interface Arcs {
  /** Names of the queries. */
  rows: readonly string[];
  /** Names of the keys that are drawn. */
  columns: readonly string[];
  /** The number of keys, including those that are not drawn. */
  length: number;
  /** True if queries and keys are one text. */
  same: boolean;
  label: string;
  value: (row: number, column: number) => number;
  /** The query whose arcs are shown; null = all. */
  chosen: number | null;
  choose: (row: number | null) => void;
}

/** The smallest weight that is drawn. */
const LEAST = 0.01;
/** The most weights listed for a chosen token. */
const LISTED = 8;
/** Sizes in pixels. */
const [FONT, LINE, GAP, EDGE] = [14, 26, 110, 12];
/** The greatest height of an arc, in pixels. */
const HIGHEST = 120;

/** Draws the arcs. The pointer and the arrow keys choose a token, Escape all tokens. */
export function arcs({ rows, columns, length, same, label, value, chosen, choose }: Arcs): HTMLElement {
  const [from, to] = [placed(rows), placed(columns)];
  const all = rows.flatMap((_, row) => columns.map((_, column) => ({ row, column, weight: value(row, column) })));
  const edges = all.filter(({ weight }) => Math.abs(weight) >= LEAST);
  const height = (ahead: boolean) => {
    const some = edges.filter(({ row, column }) => column > row === ahead);
    return EDGE + Math.max(0, ...some.map(({ row, column }) => rise(from[row].middle, to[column].middle)));
  };
  const [above, below] = same ? [height(false), height(true)] : [EDGE, EDGE];
  // Tops of the row of keys and the row of queries, which are one row if both are one text.
  const upper = above;
  const lower = same ? upper : upper + LINE + GAP;
  const size = { width: Math.max(from.at(-1)!.end, to.at(-1)!.end) + EDGE, height: lower + LINE + below };
  const strokes = svg("g");
  const lookers = named(rows, from, lower);
  const names = [...(same ? [] : named(columns, to, upper)), ...lookers];
  const drawing = svg(
    "svg",
    { ...size, tabindex: 0, role: "img", "aria-label": `${label}, as arcs`, class: "arcs" },
    strokes,
    ...names,
  );
  const said = el("div", { class: "reading", "aria-live": "polite" });
  const every = button("Arcs of all tokens", () => show(null));

  function path({ row, column }: { row: number; column: number }): string {
    const [x, end] = [from[row].middle, to[column].middle];
    if (!same) return `M${x},${lower}C${x},${lower - GAP / 2} ${end},${upper + LINE + GAP / 2} ${end},${upper + LINE}`;
    if (row === column) return `M${x - 4},${upper}a4,5 0 1 1 8,0`;
    const y = column < row ? upper : upper + LINE;
    return `M${x},${y}A${Math.abs(x - end) / 2},${rise(x, end)} 0 0 0 ${end},${y}`;
  }

  function show(row: number | null): void {
    chosen = row;
    choose(row);
    const shown = edges.filter((edge) => row === null || edge.row === row);
    const faint = row === null ? 0.06 : 0.25;
    strokes.replaceChildren(
      ...shown.map((edge) => {
        const weight = Math.min(1, Math.abs(edge.weight));
        const width = {
          "stroke-width": (0.75 + 5 * weight).toFixed(2),
          "stroke-opacity": (faint + (1 - faint) * weight).toFixed(2),
        };
        return svg("path", { d: path(edge), class: edge.weight < 0 ? "arc negative" : "arc", ...width });
      }),
    );
    lookers.forEach((name, place) => name.classList.toggle("chosen", place === row));
    every.disabled = row === null;
    said.replaceChildren(
      ...(row === null ? ["Point at a token, or use the arrow keys, for its arcs and their numbers."] : numbers(row)),
    );
  }

  function numbers(row: number): (Node | string)[] {
    const weights = columns.map((_, column) => value(row, column));
    const listed = largest(weights.map(Math.abs), LISTED);
    const shares = listed.map((column) => ({ name: `${columns[column]} (${column + 1})`, share: weights[column] }));
    const others = Array.from({ length }, (_, column) => (listed.includes(column) ? 0 : value(row, column))).reduce(
      (sum, one) => sum + one,
      0,
    );
    const rest = columns.length > LISTED ? [el("p", {}, `The others together: ${percent(others)}.`)] : [];
    return [`${rows[row]}, at place ${row + 1}, looks at`, bars(shares), ...rest];
  }

  drawing.addEventListener("pointerover", ({ target }) => {
    const row = lookers.findIndex((name) => name.contains(target as Node));
    if (row >= 0 && row !== chosen) show(row);
  });
  drawing.addEventListener("keydown", (event) => {
    const { key } = event;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (key === "Escape") show(null);
    if (!step) return;
    event.preventDefault();
    show(chosen === null ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, chosen + step)));
    lookers[chosen!].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  show(chosen);
  const key = same
    ? "Above the text a token looks back, below it ahead; a ring looks at itself."
    : "Above the source, below the target.";
  const note = el(
    "p",
    { class: "note" },
    `${key} The wider and stronger, the more; under ${100 * LEAST}% nothing is drawn.`,
  );
  return el("div", {}, note, el("div", { class: "wide" }, drawing), el("p", { class: "buttons" }, every), said);
}

function rise(x: number, end: number): number {
  return Math.min(HIGHEST, Math.max(10, Math.abs(x - end) / 2));
}

interface Place {
  begin: number;
  middle: number;
  end: number;
}

/** Positions of names in a row, in pixels. */
function placed(names: readonly string[]): Place[] {
  const pen = document.createElement("canvas").getContext("2d")!;
  pen.font = `${FONT}px ${getComputedStyle(document.body).fontFamily}`;
  let end = EDGE;
  return names.map((name) => {
    const begin = end;
    end = begin + Math.max(15, pen.measureText(name).width + 8);
    return { begin, middle: (begin + end) / 2, end };
  });
}

function named(names: readonly string[], places: readonly Place[], top: number): SVGElement[] {
  return names.map((name, place) => {
    const { begin, middle, end } = places[place];
    const box = svg("rect", { x: begin + 1, y: top, width: end - begin - 2, height: LINE, rx: 4 });
    return svg("g", { class: "place" }, box, svg("text", { x: middle, y: top + 18, "text-anchor": "middle" }, name));
  });
}
