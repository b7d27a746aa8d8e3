// The attention of a layer, for one head or the mean of all, as arcs over the text and as a matrix.

import { numbersOf, type TensorInfo, type Tensor } from "../src/index.js";
import { arcs } from "./arcs.js";
import { choice, el, figures, type Chosen } from "./dom.js";
import { matrix } from "./matrix.js";
import { namesAlong, type Names } from "./names.js";

/** Shows the attention among the taps `found`, which the manifest describes in `infos`. */
export function attentionView(
  found: ReadonlyMap<string, Tensor>,
  infos: readonly TensorInfo[],
  names: Names,
  chosen: Chosen,
): HTMLElement[] {
  const layers = infos.filter(({ name }) => name.startsWith("attention."));
  if (!layers.length) return [];
  const [overText, squares] = [el("div", { id: "arcs" }), el("div", { id: "attention" })];
  const layer = choice(
    "Layer",
    layers.map(({ name }) => name.slice("attention.".length)),
    fill,
    chosen,
  );
  let head = choice("Head", [], show);
  let token: number | null = null;

  function fill(): void {
    const count = found.get(layers[layer.input.selectedIndex].name)!.dims[1];
    const each = Array.from({ length: count }, (_, place) => `head ${place + 1}`);
    const of = choice("Head", ["mean of all heads", ...each], show, chosen);
    head.label.replaceWith(of.label);
    head = of;
    token = null;
    show();
  }

  function show(): void {
    const { name, dims } = layers[layer.input.selectedIndex];
    const weights = found.get(name)!;
    const [, count, rows, columns] = weights.dims;
    const numbers = numbersOf(weights);
    const place = head.input.selectedIndex;
    const some = place > 0 ? [place - 1] : Array.from({ length: count }, (_, one) => one);
    const value = (row: number, column: number) =>
      some.reduce((sum, one) => sum + numbers[(one * rows + row) * columns + column], 0) / some.length;
    const of = {
      rows: namesAlong(dims[2], rows, names),
      columns: namesAlong(dims[3], columns, names),
      label: `${name}, ${head.input.value}`,
      value,
    };
    overText.replaceChildren(
      arcs({ ...of, length: columns, same: dims[2] === dims[3], chosen: token, choose: (row) => (token = row) }),
    );
    squares.replaceChildren(matrix({ ...of, most: 1 }));
  }

  // The alignment of a translation comes first.
  if (!chosen.has("Layer")) {
    const alignment = layers.findIndex(({ dims }) => dims[2] !== dims[3]);
    layer.input.selectedIndex = Math.max(0, alignment);
  }
  fill();
  return [
    el("h3", {}, "Attention: which tokens each token looks at"),
    el("div", { class: "fields" }, layer.label, head.label),
    figures(
      overText,
      el("div", {}, el("h4", {}, "The same as a matrix: each row's token looks at the columns'"), squares),
    ),
  ];
}
