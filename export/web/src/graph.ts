// A graph of a bundle, run by onnxruntime-web.

import type { InferenceSession } from "onnxruntime-web";

import { refuse, sentenceOf } from "./error.js";
import type { Files } from "./files.js";
import { checkGraph } from "./graph_file.js";
import { WEIGHTS_NAME, type GraphInfo, type Manifest } from "./manifest.js";
import { fromOrt, toOrt, type Ort, type Tensor } from "./tensors.js";

export class Graph {
  private constructor(
    private readonly ort: Ort,
    readonly info: GraphInfo,
    readonly session: InferenceSession,
  ) {}

  static async open(ort: Ort, files: Files, info: GraphInfo, target: Manifest["target"]): Promise<Graph> {
    checkGraph(info.file, files.get(info.file)!, target);
    const weights = files.get(WEIGHTS_NAME);
    const options: InferenceSession.SessionOptions = {
      executionProviders: ["wasm"],
      logSeverityLevel: 3,
      extra: { session: { load_model_format: "ONNX" } }, // never guessed from the file's first bytes
      externalData: weights === undefined ? [] : [{ path: WEIGHTS_NAME, data: weights }],
    };
    try {
      return new Graph(ort, info, await ort.InferenceSession.create(files.get(info.file)!, options));
    } catch (error) {
      refuse(`onnxruntime-web cannot load ${info.file}: ${sentenceOf(error)}`, "damaged bundle");
    }
  }

  /** Maps inputs by name to outputs by name. */
  async run(inputs: ReadonlyMap<string, Tensor>): Promise<Map<string, Tensor>> {
    const names = this.info.outputs.map((output) => output.name);
    const feeds = Object.fromEntries([...inputs].map(([name, tensor]) => [name, toOrt(this.ort, tensor)]));
    try {
      const found = await this.session.run(feeds, names);
      return new Map(names.map((name) => [name, fromOrt(found[name])]));
    } catch (error) {
      refuse(`onnxruntime-web cannot run ${this.info.file}: ${sentenceOf(error)}`, "internal");
    }
  }
}
