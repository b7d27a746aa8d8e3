// Verifies a bundle: its declarations, and its values against its golden file, check for check as
// seqlab_export.runner.verify does. docs/bundle.md describes each check.

import table from "../../../seqlab_export/runner/proof_constants.json";

import { Bundle } from "../bundle.js";
import { Decoder } from "../decoder.js";
import { refuse, SeqlabError, sentenceOf } from "../error.js";
import { findDamage, loadManifest, type Files } from "../files.js";
import type { GraphInfo, TensorInfo } from "../manifest.js";
import { chooseLargest } from "../sampling.js";
import { numbersOf, takeRows, type Ort, type Tensor } from "../tensors.js";
import { divergenceOf, errorsOf, groupsOf, judged, limitOf, mostNumbers, numbersOfCall, selected } from "./accuracy.js";
import type { Group } from "./accuracy.js";
import { CaseRunner, stacked } from "./case_runner.js";
import * as read from "./cases.js";
import { casesOf, cellsOf, encoderCases, longCases, type Case } from "./cases.js";
import { checkDeclared } from "./declared.js";
import { GoldenFile } from "./golden.js";
import { Report, type Check } from "./report.js";

/**
 * Verifies a bundle with onnxruntime-web and changes nothing in it.
 *
 * Wrong values are in the report. Throws SeqlabError if the files are no bundle, cannot be opened, or exceed the time.
 *
 * @param onCheck receives each check as soon as it is made.
 * @param seconds the time limit. A thread cannot interrupt its own wasm, so the time is checked between runs.
 */
export async function verify(
  files: Files,
  ort: Ort,
  onCheck?: (check: Check) => void,
  seconds = table.seconds,
): Promise<Report> {
  const manifest = loadManifest(files);
  const version = ort.env.versions.web ?? ort.env.versions.common;
  const report = new Report(version, manifest.precision, onCheck);
  const damage = await findDamage(files, manifest);
  for (const name of new Set([...Object.keys(manifest.files), ...damage.keys()])) {
    report.add("files", name, damage.get(name) ?? "");
  }
  if (!report.ok) return report;
  const bundle = await Bundle.open(files, ort);
  try {
    const golden = new GoldenFile(files.get(manifest.golden)!);
    await checkDeclared(files, bundle, golden, report);
    if (report.ok) await new Proof(bundle, golden, report, seconds).checkAll();
  } catch (error) {
    // A proof reads nothing but the bundle, so any error in it is the bundle's.
    if (error instanceof SeqlabError) refuse(error.message, "damaged bundle");
    throw error;
  }
  return report;
}

class Proof {
  private readonly runner: CaseRunner;
  private readonly ends: number;

  constructor(
    private readonly bundle: Bundle,
    private readonly golden: GoldenFile,
    private readonly report: Report,
    private readonly seconds: number,
  ) {
    this.ends = performance.now() + 1000 * seconds;
    this.runner = new CaseRunner(bundle, golden);
  }

  async checkAll(): Promise<void> {
    const { encoder, model, manifest } = this.bundle;
    const reduced = manifest.proof === "reduced";
    if (encoder !== null) {
      const longest = manifest.maxSourceLen;
      const groups = groupsOf(encoder.info);
      for (const [batch, some] of cellsOf(encoderCases(encoder.info, longest, reduced), longest, reduced)) {
        const subject = `batch ${batch}, ${some.name.slice("encoder/".length)}`;
        const encode = (rows: readonly number[]) => this.runner.encode(some, rows);
        await this.checkCell("encoder", subject, encoder.info, some, batch, encode);
      }
      const lengths = read.oneCallLengths(longest, 1, reduced);
      const most = (output: TensorInfo) => {
        const together = groups.find(({ outputs }) => outputs.includes(output));
        return together === undefined ? 0 : numbersOfCall(lengths.length, together.outputs.length);
      };
      const encode = (text: Case, length: number) => this.runner.encodeInOneCall(text, length, most);
      await this.checkLengths("encoder", "encoder/one call", groups, lengths, encode);
    }
    if (model !== null) {
      for (const form of ["prefill", "chunks", "step"] as const) {
        for (const [batch, some] of cellsOf(casesOf(manifest.maxSeqLen, reduced), manifest.maxSeqLen, reduced)) {
          const decode = (rows: readonly number[]) => this.runner.decode(form, some, rows);
          await this.checkCell(form, `batch ${batch}, ${some.name}`, model.info, some, batch, decode);
        }
      }
      for (const some of longCases(manifest.maxSeqLen, reduced)) {
        const decode = async () => [await this.runner.decodeLong(some)];
        await this.checkValues("long", some.name, model.info, some.name, decode);
      }
      const lengths = read.oneCallLengths(manifest.maxSeqLen, manifest.firstCall, reduced);
      const most = numbersOfCall(lengths.length);
      const decode = (text: Case, length: number) => this.runner.decodeInOneCall(text, length, most);
      const logits = groupsOf(model.info).filter(({ name }) => name === "logits");
      await this.checkLengths("long", "one call", logits, lengths, decode);
      if (this.report.ok) await this.checkGreedy();
    }
    if (this.report.ok && this.golden.has("whole/logits")) await this.compareDistributions();
  }

  /** Makes one check per group of outputs of a cell, which is a case that is read `batch` rows at a time. */
  private checkCell(
    kind: string,
    subject: string,
    info: GraphInfo,
    some: Case,
    batch: number,
    readRows: (rows: readonly number[]) => Promise<ReadonlyMap<string, Tensor>>,
  ): Promise<void> {
    return this.checkValues(kind, subject, info, some.name, async () => {
      const parts: ReadonlyMap<string, Tensor>[] = [];
      for (const rows of read.batchesOf(some.rows, batch)) parts.push(await readRows(rows));
      const whole = new Map(info.outputs.map(({ name }) => [name, stacked(parts.map((part) => part.get(name)!))]));
      return read.passesOf(some.rows, batch).map((rows) => {
        const found = info.outputs.map((output) => {
          const taken = takeRows(whole.get(output.name)!, rows);
          return [output.name, selected(taken, output, some, mostNumbers(info, output))] as const;
        });
        return new Map(found);
      });
    });
  }

  /**
   * Makes one check per length of a text that is read in one call, and per group of outputs. A decoder's state is judged
   * by the step that follows.
   */
  private async checkLengths(
    kind: string,
    name: string,
    groups: readonly Group[],
    lengths: readonly number[],
    readLength: (text: Case, length: number) => Promise<ReadonlyMap<string, Float64Array>>,
  ): Promise<void> {
    if (!this.golden.has(`${name}/${groups[0].outputs[0].name}`)) {
      this.report.add(kind, "in one call", "the golden file does not have it");
      return;
    }
    const longest = lengths.at(-1)!;
    const text = { name, rows: 1, length: longest, mask: new Uint8Array(longest).fill(1) };
    const begins = new Map<string, number>();
    for (const length of lengths) {
      const subject = `length ${length} in one call`;
      let actual: ReadonlyMap<string, Float64Array>;
      try {
        actual = await readLength(text, length);
      } catch (error) {
        if (!(error instanceof SeqlabError)) throw error;
        this.report.add(kind, subject, sentenceOf(error));
        return;
      }
      this.checkTime();
      for (const group of groups) {
        const errors = group.outputs.map((output) => {
          const found = actual.get(output.name)!;
          const begin = begins.get(output.name) ?? 0;
          begins.set(output.name, begin + found.length);
          return errorsOf(found, this.golden.at(`${name}/${output.name}`).values, begin);
        });
        this.judge(kind, subject, name, group, errors);
      }
    }
  }

  private checkTime(): void {
    if (performance.now() > this.ends) refuse(`the proof is given up: it did not end within ${this.seconds} seconds`);
  }

  private judge(kind: string, subject: string, name: string, group: Group, errors: readonly Float64Array[]): void {
    const torch = this.golden.at(`${name}/torch/${group.name}`).values[0];
    const limit = group.name === "counters" ? 0 : limitOf(torch, this.bundle.manifest.precision);
    const all = Float64Array.from(errors.flatMap((some) => [...some]));
    this.report.take(judged(kind, `${subject}, ${group.name}`, all, torch, limit));
  }

  /** Makes one check per group of the outputs that `readAll` returns, from one or several passes over a case. */
  private async checkValues(
    kind: string,
    subject: string,
    info: GraphInfo,
    name: string,
    readAll: () => Promise<ReadonlyMap<string, Float64Array>[]>,
  ): Promise<void> {
    try {
      const found = await readAll();
      for (const group of groupsOf(info)) {
        const errors = found.flatMap((actual) =>
          group.outputs.map((output) =>
            errorsOf(actual.get(output.name)!, this.golden.at(`${name}/${output.name}`).values),
          ),
        );
        this.judge(kind, subject, name, group, errors);
      }
    } catch (error) {
      if (!(error instanceof SeqlabError)) throw error;
      this.report.add(kind, subject, sentenceOf(error));
    }
    this.checkTime();
  }

  /**
   * Compares greedy texts with the reference's: their logits up to the first other token, where the reference's two
   * best logits must be closer than twice the largest error of the logits.
   */
  private async checkGreedy(): Promise<void> {
    const { golden, bundle } = this;
    // Tokens (R, T), and at each place the likeliest tokens and their logits (R, T, kept), the best first.
    const tokens = golden.at("greedy/tokens", null, null);
    const [rows, length] = tokens.dims;
    const likeliest = golden.at("greedy/likeliest", rows, length, null);
    const [, , kept] = likeliest.dims;
    const logits = golden.at("greedy/logits", rows, length, kept);
    const known = likeliest.values.every((token) => token >= 0 && token < bundle.manifest.vocabSize!);
    if (kept < 2 || !known) refuse("greedy/likeliest of the golden file holds no two tokens of the vocabulary");
    const prompts = Array.from({ length: rows }, (_, row) =>
      Array.from(golden.at(`greedy/prompt_${row}`, null).values),
    );
    const steps = await this.writeGreedily(prompts, length);
    const torch = golden.at("greedy/torch/logits").values[0];
    for (let row = 0; row < rows; ++row) {
      const different = steps.findIndex((step, place) => step[row].token !== tokens.values[row * length + place]);
      const first = row * length * kept;
      const compared = steps.slice(0, different < 0 ? length : different + 1);
      const ours = Float64Array.from({ length: compared.length * kept }, (_, place) => {
        return compared[Math.floor(place / kept)][row].logits[likeliest.values[first + place]];
      });
      const errors = errorsOf(ours, logits.values, first);
      const check = judged("greedy", `prompt ${row}`, errors, torch, limitOf(torch, bundle.manifest.precision));
      if (different >= 0) {
        const reference = logits.values.subarray(first + different * kept, first + (different + 1) * kept);
        const margin = reference[0] - reference[1];
        const largest = Math.max(...reference.map((logit, place) => Math.abs(ours[different * kept + place] - logit)));
        const found = `margin is ${margin.toExponential(2)} and the largest logit error ${largest.toExponential(2)}`;
        const note = `differs from token ${different} on, where the float64 ${found}`;
        check.ok &&= margin < table.margin_errors * largest;
        check.note = check.note === "" ? note : `${check.note}; ${note}`;
      }
      this.report.take(check);
    }
  }

  /** The greedy token and the logits of each row at each step; no token ends a text. */
  private async writeGreedily(
    prompts: number[][],
    length: number,
  ): Promise<{ token: number; logits: Float64Array }[][]> {
    const decoder = new Decoder(this.bundle);
    const steps: { token: number; logits: Float64Array }[][] = [];
    await this.runner.readSource(decoder, "greedy", read.allRows(prompts.length));
    for (let step = 0; step < length; ++step) {
      const last = steps.at(-1)?.map(({ token }) => token);
      const found = last === undefined ? await decoder.prefill(prompts) : await decoder.readToken(last);
      const rows = prompts.map((_, row) => numbersOf(found, row * decoder.vocabSize, (row + 1) * decoder.vocabSize));
      steps.push(rows.map((logits) => ({ token: chooseLargest(logits), logits })));
    }
    return steps;
  }

  /** Measures the divergence of the distributions for which the golden file has every logit. */
  private async compareDistributions(): Promise<void> {
    const [rows] = this.golden.at("whole/inputs", null, null).dims;
    const expected = this.golden.at("whole/logits", rows);
    const found = numbersOf(await this.runner.whole());
    this.report.divergence = divergenceOf(expected.values, found, expected.dims.at(-1)!);
  }
}
