// The view of a recurrence's state over a text: its norm, its channels as a strip, and the share that each token keeps.

import { sizeOf } from "../src/tensors.js";
import { choice, el, figures, type Chosen } from "./dom.js";
import { mean, meansOf, reach, type Entry, type Kept } from "./kept.js";
import { lines } from "./lines.js";
import { matrix } from "./matrix.js";
import { norm, percent, short } from "./numbers.js";

/** The most rows of a legible strip. */
const MOST_ROWS = 32;
/** Names of a strip's axes. */
const OF: [string, string] = ["channel", "token"];
/** The share from which rounding hides how slowly it fades. */
const FADELESS = 0.9999;

/** Norms over time, and the chosen entry as a strip. `tokens` names the tokens that were read. */
export function statesView(entries: readonly Entry[], tokens: readonly string[], chosen: Chosen): HTMLElement[] {
  const norms = entries.map(({ name, values }) => ({
    name: said(name),
    points: overTokens(
      values.map((some) => norm(some)),
      1,
    ),
  }));
  const place = el("div", { id: "strip" });
  const entry = choice(
    "Entry of the state",
    entries.map(({ name }) => said(name)),
    show,
    chosen,
  );

  function show(): void {
    const { name, dims, values } = entries[entry.input.selectedIndex];
    const shown = evenly(Array.from(values[0], (_, channel) => channel));
    const value = (row: number, column: number) => values[column][shown[row]];
    const most = Math.max(...values.flatMap((some) => shown.map((channel) => Math.abs(some[channel]))));
    const key = "The stronger a square, the larger the number; a bar in it says that it is below zero.";
    place.replaceChildren(
      matrix({
        rows: shown.map((channel) => channelName(channel, dims)),
        columns: tokens,
        label: said(name),
        value,
        most,
        of: OF,
      }),
      el("p", { class: "note" }, `${which(shown.length, dims)} ${key}`),
    );
  }

  show();
  return [
    el("h3", {}, "The state over time"),
    figures(
      lines(norms, "tokens read", "Norm of the state"),
      el("div", {}, el("div", { class: "fields" }, entry.label), place),
    ),
  ];
}

/** The share that each token keeps, in words, as lines and, if channels do not mix, by channel as a strip. */
export function keptView(kept: readonly Kept[], tokens: readonly string[], chosen: Chosen): HTMLElement[] {
  const all = kept.map(({ part, shares }) => ({ name: said(part.name), points: overTokens(shares, 2) }));
  const apart = kept.filter(({ channels }) => channels !== null);
  const place = el("div", { id: "kept-strip" });
  const entry = choice(
    "Entry, by channel",
    apart.map(({ part }) => said(part.name)),
    show,
    chosen,
  );

  function show(): void {
    const { part, channels } = apart[entry.input.selectedIndex];
    const means = meansOf(channels!);
    const order = means.map((_, channel) => channel).sort((a, b) => means[a] - means[b] || a - b);
    const shown = evenly(order);
    const value = (row: number, column: number) => channels![column][shown[row]];
    const rows = shown.map((channel) => channelName(channel, part.dims));
    const note = `${which(shown.length, part.dims)} Those that forget soonest stand first.`;
    const drawn = matrix({
      rows,
      columns: tokens.slice(1),
      label: `share kept of ${said(part.name)}`,
      value,
      most: 1,
      of: OF,
    });
    place.replaceChildren(drawn, el("p", { class: "note" }, note));
  }

  if (apart.length) show();
  const how =
    "Measured, not read from the weights: each token from the second on is read from the same state twice, as it is and with one " +
    "entry set to zero. What the new state then lacks is what the token kept of that entry. Where each token keeps a share s, what " +
    "was read reaches 1 / (1 − s) tokens back.";
  return [
    el("h3", {}, "What a token keeps of the state"),
    el("p", { class: "note" }, how),
    el("ul", { id: "kept" }, ...kept.map((one) => el("li", {}, sentence(one)))),
    figures(
      lines(all, "token", "Share kept"),
      ...(apart.length ? [el("div", {}, el("div", { class: "fields" }, entry.label), place)] : []),
    ),
  ];
}

/** Describes the median channel, or the whole part if its channels mix. */
function sentence({ part, shares, channels }: Kept): string {
  const name = said(part.name);
  if (!channels) {
    const share = mean(shares);
    return `${name}: a token keeps ${percent(share)} of its size: ${back(share)}. Its channels mix, so this is of the whole.`;
  }
  const means = meansOf(channels)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  const middle = means[Math.floor(means.length / 2)];
  const range = `By channel ${tokensOf(means[0])} to ${tokensOf(means.at(-1)!)} tokens.`;
  return `${name}: a token keeps ${percent(middle)} of the state: ${back(middle)}. ${range}`;
}

function back(share: number): string {
  return share < FADELESS ? `it reaches back ${tokensOf(share)} tokens` : "it hardly fades";
}

function tokensOf(share: number): string {
  const count = reach(Math.min(share, FADELESS));
  return `${share < FADELESS ? "" : "over "}${count < 10 ? count.toFixed(1) : short(Math.round(count))}`;
}

/** Spells out an entry's name: `0_h` becomes "layer 1, h". */
function said(name: string): string {
  const [, layer, rest] = /^(\d+)_(.*)$/.exec(name) ?? [];
  return layer === undefined ? name : `layer ${Number(layer) + 1}, ${rest}`;
}

function overTokens(values: readonly number[], first: number): [number, number][] {
  return values
    .map((value, place): [number, number] => [place + first, value])
    .filter(([, value]) => Number.isFinite(value));
}

/** Picks evenly, the first and the last included, at most as many as a strip has rows. */
function evenly(all: readonly number[]): number[] {
  if (all.length <= MOST_ROWS) return [...all];
  return Array.from({ length: MOST_ROWS }, (_, row) => all[Math.round((row * (all.length - 1)) / (MOST_ROWS - 1))]);
}

function which(shown: number, dims: readonly number[]): string {
  const all = sizeOf(dims);
  const named = dims.filter((dim) => dim > 1).length > 1 ? ", named by their places in each dimension" : "";
  return `${shown < all ? `${shown} of ${all} channels, evenly chosen` : `All ${all} channels`}${named}.`;
}

/** The place of a channel, from 1, in each dimension larger than 1. */
function channelName(channel: number, dims: readonly number[]): string {
  const places: number[] = [];
  for (const dim of dims.filter((size) => size > 1).reverse()) {
    places.unshift((channel % dim) + 1);
    channel = Math.floor(channel / dim);
  }
  return places.join("·");
}
