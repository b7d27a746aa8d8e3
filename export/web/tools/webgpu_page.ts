// The page of webgpu.ts: verifies the bundle that it serves, on WebGPU, and sends what to print and the exit code.

import * as onnxruntime from "onnxruntime-web";

import { sentenceOf } from "../src/error.js";
import { verify, type Ort } from "../src/index.js";
import { jsonOf } from "./report.js";

/** The library with its sessions on WebGPU. It runs the nodes that WebGPU lacks on the CPU. */
const onWebGPU = {
  ...onnxruntime,
  InferenceSession: {
    create: (graph: Uint8Array, options: onnxruntime.InferenceSession.SessionOptions) =>
      onnxruntime.InferenceSession.create(graph, { ...options, executionProviders: ["webgpu"] }),
  },
} as unknown as Ort;

/** An exit code, and what goes to stdout if it is 0 or 1, else to stderr. */
export interface Result {
  code: number;
  said: string;
}

async function result(): Promise<Result> {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return { code: 3, said: "this browser has no WebGPU" };
  onnxruntime.env.wasm.numThreads = 1;
  onnxruntime.env.logLevel = "error";
  const files = new Map<string, Uint8Array>();
  for (const name of (await (await fetch("/names")).json()) as string[]) {
    files.set(name, new Uint8Array(await (await fetch(`/files/${encodeURIComponent(name)}`)).arrayBuffer()));
  }
  const report = await verify(files, onWebGPU);
  return { code: report.ok ? 0 : 1, said: jsonOf(report) };
}

const said = await result().catch((error: unknown) => ({ code: 2, said: sentenceOf(error) }));
await fetch("/result", { method: "POST", body: JSON.stringify(said) });
