// Loads onnxruntime-web from the page itself, as a Blob: a page that was opened as a file can import nothing else.

import type { Ort } from "../src/index.js";
import { bytesOf } from "./embedded.js";

/** The longest time without a pause for the page, in milliseconds. */
const STILL = 25;

export async function onnxruntime(): Promise<Ort> {
  const code = document.getElementById("onnxruntime")!.textContent;
  const place = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const ort = (await import(place)) as Ort;
  URL.revokeObjectURL(place);
  const packed = document.getElementById("wasm")!;
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("gzip"));
  ort.env.wasm.wasmBinary = await new Response(stream).arrayBuffer();
  ort.env.wasm.numThreads = 1;
  packed.remove();
  return inTurn(ort);
}

/** Runs sessions one after the other, with pauses in which the page draws and handles events. */
function inTurn(ort: Ort): Ort {
  let last: Promise<unknown> = Promise.resolve();
  let drawn = performance.now();

  async function turn<Result>(run: () => Promise<Result>): Promise<Result> {
    if (performance.now() - drawn > STILL) {
      await new Promise((resolve) => setTimeout(resolve));
      drawn = performance.now();
    }
    return run();
  }

  const create = async (...given: Parameters<typeof ort.InferenceSession.create>) => {
    const session = await ort.InferenceSession.create(...given);
    const run = session.run.bind(session) as (...given: unknown[]) => Promise<unknown>;
    const queued = (...given: unknown[]) => {
      const result = last.then(() => turn(() => run(...given)));
      last = result.catch(() => undefined);
      return result;
    };
    return Object.assign(session, { run: queued });
  };
  return { ...ort, InferenceSession: { create } } as unknown as Ort;
}
