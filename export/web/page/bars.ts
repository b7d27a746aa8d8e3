// Bars with names and numbers, legible without colour, and a list to a screen reader.

import { el } from "./dom.js";
import { percent } from "./numbers.js";

export interface Bar {
  name: string;
  share: number;
  /** If given, the bar is a button that calls it. */
  choose?: () => void;
}

export function bars(all: readonly Bar[]): HTMLElement {
  const rows = all.map(({ name, share, choose }) => {
    const parts = [
      el("span", { class: "name" }, name),
      el(
        "span",
        { class: "track", "aria-hidden": "true" },
        el("span", { class: "bar", style: `width:${100 * Math.abs(share)}%` }),
      ),
      el("span", { class: "number" }, percent(share)),
    ];
    const row = choose
      ? el("button", { type: "button", class: "row", onclick: choose }, ...parts)
      : el("span", { class: "row" }, ...parts);
    return el("li", {}, row);
  });
  return el("ol", { class: "bars" }, ...rows);
}
