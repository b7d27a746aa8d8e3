// Runs a bundle on the inputs of its golden file, call for call as seqlab_export.runner.prove does.
//
// R rows, T positions, V vocabulary.

import table from "../../../seqlab_export/runner/proof_constants.json";

import type { Bundle, Rows } from "../bundle.js";
import { Decoder } from "../decoder.js";
import { refuse } from "../error.js";
import type { TensorInfo } from "../manifest.js";
import { filled, numbersOf, sizeOf, tensorOf, type Tensor } from "../tensors.js";
import { mostNumbers, selected, spread, spreadPlaces } from "./accuracy.js";
import { allRows, callsOf, encoderCases, partOf, type Case, type Form, type Span } from "./cases.js";
import type { GoldenFile, NpyArray } from "./golden.js";

/** Runs cases of the proof. Throws SeqlabError if the golden file lacks an input of a case, or the bundle fails. */
export class CaseRunner {
  constructor(
    private readonly bundle: Bundle,
    private readonly golden: GoldenFile,
  ) {}

  /** The encoder's outputs by name, for some rows of a case. */
  encode(some: Case, rows: readonly number[]): Promise<ReadonlyMap<string, Tensor>> {
    const { tokens, mask } = this.inputsOf(some, rows);
    return this.bundle.encode(tokens, mask);
  }

  /** The compared part of each output of an encoder that reads the first `length` positions of a text in one call. */
  async encodeInOneCall(
    text: Case,
    length: number,
    most: (output: TensorInfo) => number,
  ): Promise<Map<string, Float64Array>> {
    const { tokens, mask } = this.inputsOf(text, [0], length);
    const { outputs } = this.bundle.encoder!.info;
    const found = await this.bundle.encode(tokens, mask);
    const read = { ...text, length, mask: new Uint8Array(length).fill(1) };
    return new Map(
      outputs.map((output) => [output.name, selected(found.get(output.name)!, output, read, most(output))]),
    );
  }

  /** The same for a decoder's logits: parts of the whole, of the last position, and of the step that follows. */
  async decodeInOneCall(text: Case, length: number, most: number): Promise<Map<string, Float64Array>> {
    const tokens = this.golden.at(`${text.name}/tokens`, 1, text.length);
    const decoder = await this.started(text.name, [0]);
    const { vocabSize } = decoder;
    const places = spreadPlaces(length * vocabSize, most);
    // The positions of these numbers, and the last one, are scored.
    const positions = [...new Set([...places.map((place) => Math.floor(place / vocabSize)), length - 1])];
    positions.sort((a, b) => a - b);
    const rowOf = new Map(positions.map((position, row) => [position, row]));
    const call = await this.read(decoder, false, text, tokens, [0], { first: 0, end: length }, positions);
    const found = numbersOf(call);
    const numbers = places.map((place) => {
      return found[rowOf.get(Math.floor(place / vocabSize))! * vocabSize + (place % vocabSize)];
    });
    const parts = [Float64Array.from(numbers), spread(found.subarray(-vocabSize), most)];
    if (length < text.length) {
      const step = await this.read(decoder, true, text, tokens, [0], { first: length, end: length + 1 });
      parts.push(spread(numbersOf(step), most));
    }
    return new Map([["logits", Float64Array.from(parts.flatMap((part) => [...part]))]]);
  }

  /** A decoder's logits (R, T, V), and its state after some rows of a case, which it reads in the calls of a form. */
  async decode(form: Form, some: Case, rows: readonly number[]): Promise<ReadonlyMap<string, Tensor>> {
    const tokens = this.golden.at(`${some.name}/tokens`, some.rows, some.length);
    const decoder = await this.started(some.name, rows);
    const parts: Tensor[] = [];
    for (const call of callsOf(form, some, this.bundle.manifest.firstCall)) {
      parts.push(await this.read(decoder, form === "step", some, tokens, rows, call));
    }
    return outputsOf(decoder, joined(parts));
  }

  /** The compared part of each output after a long text. The logits are many, so a part of each call's is taken. */
  async decodeLong(some: Case): Promise<ReadonlyMap<string, Float64Array>> {
    const rows = allRows(some.rows);
    const tokens = this.golden.at(`${some.name}/tokens`, some.rows, some.length);
    const decoder = await this.started(some.name, rows);
    const { info } = decoder.model;
    const calls = callsOf("long", some, this.bundle.manifest.firstCall);
    const most = Math.floor(table.most_numbers / calls.length);
    const logits: number[] = [];
    for (const call of calls) {
      const found = await this.read(decoder, true, some, tokens, rows, call);
      const part = { name: "", rows: some.rows, length: call.end - call.first, mask: partOf(some, rows, call) };
      logits.push(
        ...selected(
          found,
          info.outputs.find(({ name }) => name === "logits")!,
          part,
          most,
        ),
      );
    }
    const take = (output: TensorInfo): Float64Array => {
      if (output.name === "logits") return Float64Array.from(logits);
      return selected(stateOf(decoder, output), output, some, mostNumbers(info, output));
    };
    return new Map(info.outputs.map((output) => [output.name, take(output)]));
  }

  /** Logits of the input "whole/inputs", for which the golden file has every logit. */
  async whole(): Promise<Tensor> {
    const [count, length] = this.golden.at("whole/inputs", null, null).dims;
    const rows = allRows(count);
    const whole = { name: "whole", rows: count, length, mask: new Uint8Array(count * length).fill(1) };
    if (this.bundle.model === null) return (await this.encode(whole, rows)).get("logits")!;
    const decoder = await this.started(whole.name, rows);
    const inputs = this.golden.at("whole/inputs");
    return this.read(decoder, false, whole, inputs, rows, { first: 0, end: length });
  }

  /** Makes a decoder read some rows of the source that "NAME/source" names, if the bundle has an encoder. */
  async readSource(decoder: Decoder, name: string, rows: readonly number[]): Promise<void> {
    if (this.bundle.encoder === null) return;
    const source = this.golden.at(`${name}/source`).text;
    const { manifest } = this.bundle;
    const cases = encoderCases(this.bundle.encoder.info, manifest.maxSourceLen, manifest.proof === "reduced");
    const found = cases.find((some) => some.name === source);
    if (found === undefined) refuse(`the golden file names a source "${source}", which is no case`);
    const { tokens, mask } = this.inputsOf(found, rows);
    await decoder.readSource(tokens, mask);
  }

  private async started(name: string, rows: readonly number[]): Promise<Decoder> {
    const decoder = new Decoder(this.bundle);
    await this.readSource(decoder, name, rows);
    decoder.start(rows.length);
    return decoder;
  }

  /** The encoder's inputs, cut to `length` positions: tokens (R, T) or features (R, T, F), and their mask (R, T). */
  private inputsOf(some: Case, rows: readonly number[], length = some.length): Rows {
    const { dims, values } = this.golden.at(`${some.name}/inputs`, some.rows, some.length);
    const size = sizeOf(dims.slice(1));
    const taken = sizeOf(dims.slice(2)) * length;
    const given = [rows.length, length, ...dims.slice(2)];
    const inputs = new Float64Array(rows.length * taken);
    rows.forEach((row, place) => inputs.set(values.subarray(row * size, row * size + taken), place * taken));
    return {
      tokens: tensorOf(this.bundle.encoder!.info.inputs[0].dtype, given, inputs),
      mask: tensorOf("bool", given.slice(0, 2), partOf(some, rows, { first: 0, end: length })),
    };
  }

  /** The logits of one call on tokens (R, T). A call of one position runs the graph of a step if `steps`. */
  private read(
    decoder: Decoder,
    steps: boolean,
    some: Case,
    tokens: NpyArray,
    rows: readonly number[],
    call: Span,
    positions?: readonly number[],
  ): Promise<Tensor> {
    const dims = [rows.length, call.end - call.first];
    const ids: number[] = [];
    for (const row of rows) {
      ids.push(...tokens.values.subarray(row * some.length + call.first, row * some.length + call.end));
    }
    const graph = steps && dims[1] === 1 ? decoder.step : decoder.model;
    const mask = tensorOf("bool", dims, partOf(some, rows, call));
    return decoder.run(graph, { tokens: tensorOf("int64", dims, ids), mask }, positions);
  }
}

function outputsOf(decoder: Decoder, logits: Tensor): ReadonlyMap<string, Tensor> {
  const { outputs } = decoder.model.info;
  return new Map(outputs.map((output) => [output.name, output.name === "logits" ? logits : stateOf(decoder, output)]));
}

function stateOf(decoder: Decoder, output: TensorInfo): Tensor {
  return decoder.state.get(output.name.slice("new_state_".length))!;
}

/** Concatenates the logits (R, T, V) of consecutive calls along T. */
function joined(parts: readonly Tensor[]): Tensor {
  const [rows, , vocabSize] = parts[0].dims;
  const length = parts.reduce((sum, part) => sum + part.dims[1], 0);
  const whole = filled(parts[0].dtype, [rows, length, vocabSize], 0);
  let first = 0;
  for (const part of parts) {
    const size = part.dims[1] * vocabSize;
    for (let row = 0; row < rows; ++row) {
      whole.data.set(part.data.subarray(row * size, (row + 1) * size) as never, (row * length + first) * vocabSize);
    }
    first += part.dims[1];
  }
  return whole;
}

/** Concatenates tensors along the rows. */
export function stacked(parts: readonly Tensor[]): Tensor {
  const dims = [parts.reduce((sum, part) => sum + part.dims[0], 0), ...parts[0].dims.slice(1)];
  if (parts.some((part) => part.dims.slice(1).join() !== dims.slice(1).join())) {
    refuse("the batches of a case give tensors of different sizes");
  }
  const whole = filled(parts[0].dtype, dims, 0);
  let first = 0;
  for (const part of parts) {
    whole.data.set(part.data as never, first);
    first += part.data.length;
  }
  return whole;
}
