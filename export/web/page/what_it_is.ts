// What it is: parts, precision, the size of the state, provenance, and the proof.

import { BYTES, type Manifest } from "../src/manifest.js";
import { el, section } from "./dom.js";
import { lines } from "./lines.js";
import { bytes, short } from "./numbers.js";
import type { Opened } from "./opened.js";
import { proof } from "./proof.js";

export function whatItIsView(opened: Opened): HTMLElement {
  const { manifest, about, files } = opened;
  const { runId, commit, seqlab, torch, onnxruntime } = manifest.provenance;
  const all = [...files.values()].reduce((sum, file) => sum + file.length, 0);
  const facts: [string, string][] = [
    ["Bundle", `${about.name}, ${bytes(all)}`],
    ["Parameters", short(about.parts.reduce((sum, [, count]) => sum + count, 0))],
    ["Precision", manifest.precision],
    ["Target", manifest.target],
    ["Vocabulary", manifest.vocabSize === null ? "–" : String(manifest.vocabSize)],
    ["Classes", manifest.labels.join(", ") || "–"],
    ["Reads at most", manifest.model ? limit(manifest.maxSeqLen) : limit(manifest.maxSourceLen)],
    ["Longest in training", `${manifest.seqLen} positions`],
    ["Opened in", `${opened.milliseconds.toFixed(0)} ms`],
    ["Run", about.run ? `${about.run.name} of ${about.run.experiment} (${runId})` : runId || "–"],
    ["Data", about.run?.data ?? "–"],
    ["Commit", commit || "–"],
    ["Exported by", `seqlab ${seqlab}, torch ${torch}, onnxruntime ${onnxruntime}`],
  ];
  const table = el(
    "dl",
    { class: "facts" },
    ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
  const shown = [section("What it is", table)];
  if (manifest.state.length) shown.push(section("The state", stateChart([opened])));
  if (about.parts.length) shown.push(section("Parts", parts(about.parts)));
  const curves = about.run?.curves ?? [];
  if (curves.length) shown.push(section("Its training", lines(curves, "step", "Loss, nats")));
  return el("div", {}, ...shown, proof(opened));
}

function limit(length: number | null): string {
  return length === null ? "any length" : `${length} positions`;
}

/** A chart of the state's size: an attention's cache grows with the text, a recurrence's state does not. */
export function stateChart(all: readonly Opened[]): HTMLElement {
  const longest = Math.max(...all.map(({ manifest }) => 2 * manifest.seqLen));
  const points = (manifest: Manifest) =>
    Array.from({ length: 9 }, (_, eighth): [number, number] => {
      const position = Math.round((eighth * longest) / 8);
      return [position, stateBytes(manifest, position) / 1024];
    });
  return lines(
    all.map(({ about, manifest }) => ({ name: about.name, points: points(manifest) })),
    "position",
    "State of one text, KiB",
  );
}

/** The size of the state of one text after `position` positions, in bytes, for a source as long as in training. */
export function stateBytes(manifest: Manifest, position: number): number {
  const sizes: Record<string, number> = { B: 1, N: 1, S: position, M: manifest.seqLen, C: manifest.maxSeqLen ?? 0 };
  const count = ({ dims, dtype }: Manifest["state"][number]) =>
    dims.reduce<number>((product, dim) => product * (typeof dim === "number" ? dim : (sizes[dim] ?? 1)), BYTES[dtype]);
  return manifest.state.reduce((sum, entry) => sum + count(entry), 0);
}

function parts(all: readonly [string, number][]): HTMLElement {
  const rows = all.map(([name, count]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, count.toLocaleString("en"))),
  );
  const head = el("tr", {}, el("th", { scope: "col" }, "part"), el("th", { scope: "col" }, "parameters"));
  return el("div", { class: "wide" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}
