// The proof, at the press of a button: the checks of `seqlab verify`, in this page.

import { verify, type Check } from "../src/index.js";
import { button, el, notice, section } from "./dom.js";
import { percent } from "./numbers.js";
import type { Opened } from "./opened.js";

export function proof({ files, ort }: Opened): HTMLElement {
  const line = notice();
  const out = el("div", { class: "wide", id: "proof" });
  const start = button("Prove it here", () => void prove(), { class: "main", id: "prove" });

  async function prove(): Promise<void> {
    start.disabled = true;
    let done = 0;
    try {
      const report = await verify(files, ort, (check) => line.say(`${++done} checks; now ${check.kind} …`));
      const failed = report.checks.filter((check) => !check.ok);
      out.replaceChildren(
        table(report.checks),
        ...failed
          .slice(0, 10)
          .map(({ kind, subject, note }) => el("p", { class: "wrong" }, `${kind}: ${subject}: ${note}`)),
      );
      const sound = failed.length === 0 && report.checks.length > 0;
      line.say(
        sound
          ? `Proven here: all of ${report.checks.length} checks are as they should be.`
          : `Not proven: ${failed.length} of ${report.checks.length} checks failed.`,
      );
    } catch (error) {
      line.fail(error);
    }
    start.disabled = false;
  }

  const what =
    "Whether the model computes in this browser what the trained one does in float64, within its error budget.";
  return section("The proof", el("p", { class: "note" }, what), el("p", { class: "buttons" }, start), line, out);
}

/** A row for each kind of check, with the cell nearest to its limit. */
function table(checks: readonly Check[]): HTMLElement {
  const kinds = [...new Set(checks.map((check) => check.kind))];
  const rows = kinds.map((kind) => {
    const some = checks.filter((check) => check.kind === kind);
    const failed = some.filter((check) => !check.ok).length;
    const measured = some.flatMap(({ errors }) => (errors && errors.limit ? [errors] : []));
    const nearest = measured.reduce(
      (one, other) => (other.rms / other.limit > one.rms / one.limit ? other : one),
      measured[0],
    );
    const numbers = nearest
      ? [nearest.rms.toExponential(1), nearest.torch.toExponential(1), percent(nearest.rms / nearest.limit)]
      : ["", "", ""];
    const cells = [String(some.length), ...numbers, failed ? `${failed} failed` : "ok"].map((text) =>
      el("td", {}, text),
    );
    return el("tr", {}, el("th", { scope: "row" }, kind), ...cells);
  });
  const names = ["check", "compared", "RMS error", "PyTorch's", "of limit", "result"].map((name) =>
    el("th", { scope: "col" }, name),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, ...names)), el("tbody", {}, ...rows));
}
