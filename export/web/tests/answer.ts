// Answers questions for tests that compare with Python: a line of JSON each, on stdin and stdout.
//
// node answer.js FOLDER: of a bundle, or of a tokenizer, or "-" for what needs neither.

import { createInterface } from "node:readline";

import * as ort from "onnxruntime-web";

import { keptOf, partsOf, statesOf } from "../page/kept.js";
import { open, SeqlabError, type Model, type Tensor } from "../src/index.js";
import { applyRules, withDefaultRules } from "../src/repetition.js";
import { choose, withDefaults } from "../src/sampling.js";
import { loadTokenizer } from "../src/stored_tokenizer.js";
import { numbersOf } from "../src/tensors.js";
import { filesOf } from "../tools/folder.js";

type Question = any;

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

function samplingOf(asked: Question) {
  const { temperature, top_k, top_p, min_p, seed } = asked;
  return { temperature, topK: top_k, topP: top_p, minP: min_p, seed: BigInt(seed) };
}

function repetitionOf(asked: Question) {
  return { penalty: asked.penalty, ngram: asked.ngram };
}

function shown(tensor: Tensor) {
  return { dims: tensor.dims, values: Array.from(numbersOf(tensor)) };
}

/** The token of logits, which come as base64 of float64, and the logits after the rules. */
function chosen(asked: Question) {
  const bytes = Uint8Array.from(Buffer.from(asked.choose, "base64"));
  const logits = new Float64Array(bytes.buffer);
  const rules = withDefaultRules(repetitionOf(asked));
  applyRules(rules, asked.text, logits);
  return choose(logits, withDefaults(samplingOf(asked)), asked.step, asked.row);
}

async function ofModel(model: Model, asked: Question): Promise<unknown> {
  const session = model.session();
  if (asked.batch) return shown(await model.run({ ...asked.batch, padMask: asked.batch.pad_mask }));
  if (asked.classify !== undefined) return session.classify(asked.classify);
  if (asked.tap !== undefined)
    return Object.fromEntries([...(await model.tap(asked.tap))].map(([k, v]) => [k, shown(v)]));
  if (asked.kept) {
    const reading = { ids: asked.kept, start: async () => model.session(), wanted: () => true };
    const kept = await keptOf(reading, partsOf(await statesOf(model.manifest, reading)));
    return kept.map(({ part, shares, channels }) => ({ name: part.name, shares, channels }));
  }
  const repetition = repetitionOf(asked);
  const { max_new_tokens: maxNewTokens, stop_ids: stopIds } = asked;
  if (asked.translate !== undefined) {
    const options = { beams: asked.beams, lengthPenalty: asked.length_penalty, repetition, prefix: asked.prefix };
    return (await session.translate(asked.translate, options)).map((some) => some.map(({ text }) => text));
  }
  if (asked.write !== undefined) {
    const pieces: string[] = [];
    const text = await session.write(
      asked.write,
      { maxNewTokens, repetition, sampling: samplingOf(asked) },
      (piece) => {
        pieces.push(piece);
        return pieces.length !== asked.cancel;
      },
    );
    return { text, pieces };
  }
  if (asked.sources) await session.readSource(asked.sources);
  if (asked.steps) {
    const found = [shown(await session.prefill(asked.prompts))];
    for (const tokens of asked.steps)
      found.push((await answered(async () => shown(await session.step(tokens)))) as never);
    return found;
  }
  if (asked.beams !== undefined) {
    const options = { beams: asked.beams, lengthPenalty: asked.length_penalty, maxNewTokens, stopIds, repetition };
    return session.beamSearch(asked.prompts, options);
  }
  return session.generate(asked.prompts, { maxNewTokens, stopIds, repetition, sampling: samplingOf(asked) });
}

async function answered(answer: () => unknown): Promise<unknown> {
  try {
    return await answer();
  } catch (error) {
    if (!(error instanceof SeqlabError)) throw error;
    return { refused: error.message, code: error.code };
  }
}

async function responder(folder: string): Promise<(asked: Question) => unknown> {
  if (folder === "-") return chosen;
  const files = filesOf(folder);
  if (!files.has("tokenizer.json")) {
    const model = await open(files, ort);
    return (asked) => ofModel(model, asked);
  }
  const tokenizer = await loadTokenizer(new Map([...files].map(([name, file]) => [`it/${name}`, file])), "it");
  return (text: string) => {
    const ids = tokenizer.encode(text);
    return [ids, tokenizer.decode(ids)];
  };
}

try {
  const respond = await responder(process.argv[2]);
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answered(() => respond(JSON.parse(line)))));
  }
} catch (error) {
  if (!(error instanceof SeqlabError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
