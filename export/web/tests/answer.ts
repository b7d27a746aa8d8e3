// Answers the questions of tests that compare with Python, each a line of JSON on stdin, by a line of JSON on stdout.
//
// node answer.js FOLDER: the folder is a bundle's or a tokenizer's, or "-" for a choice among logits.

import { createInterface } from "node:readline";

import * as ort from "onnxruntime-web";

import { keptOf, partsOf, statesOf } from "../page/kept.js";
import { open, SeqlabError, type Model, type Repetition, type Sampling, type Tensor } from "../src/index.js";
import { applyRules, withDefaultRules } from "../src/repetition.js";
import { choose, withDefaults } from "../src/sampling.js";
import { loadTokenizer } from "../src/stored_tokenizer.js";
import { numbersOf } from "../src/tensors.js";
import { filesOf } from "../tools/folder.js";

interface RepetitionAsked {
  penalty: number;
  ngram: number | null;
}

interface SamplingAsked {
  temperature: number;
  top_k: number | null;
  top_p: number;
  min_p: number;
  /** in digits, for it may exceed 2^53 */
  seed: string;
}

interface BeamsAsked {
  beams: number;
  length_penalty: number;
}

/** One choice of a token: base64 of the logits in float64, and the tokens before it. */
type Choice = { choose: string; text: number[]; step: number; row: number } & RepetitionAsked & SamplingAsked;

interface PromptsAsked {
  prompts: number[][];
  sources?: number[][];
  max_new_tokens: number;
  stop_ids: number[];
}

type Question =
  | { batch: { rows: number; length: number; tokens: number[]; pad_mask: number[] } }
  | { classify: string }
  | { kept: number[] }
  | ({ translate: string[]; prefix: string } & BeamsAsked & RepetitionAsked)
  | ({ write: string; max_new_tokens: number; cancel?: number } & RepetitionAsked & SamplingAsked)
  | { prompts: number[][]; sources?: number[][]; steps: number[][] }
  | (PromptsAsked & BeamsAsked & RepetitionAsked)
  | (PromptsAsked & SamplingAsked & RepetitionAsked);

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

function samplingOf(asked: SamplingAsked): Sampling {
  const { temperature, top_k: topK, top_p: topP, min_p: minP, seed } = asked;
  return { temperature, topK, topP, minP, seed: BigInt(seed) };
}

function repetitionOf({ penalty, ngram }: RepetitionAsked): Repetition {
  return { penalty, ngram };
}

function shown(tensor: Tensor) {
  return { dims: tensor.dims, values: Array.from(numbersOf(tensor)) };
}

function chosen(asked: Choice): number {
  const bytes = Uint8Array.from(Buffer.from(asked.choose, "base64"));
  const logits = new Float64Array(bytes.buffer);
  applyRules(withDefaultRules(repetitionOf(asked)), asked.text, logits);
  return choose(logits, withDefaults(samplingOf(asked)), asked.step, asked.row);
}

async function ofModel(model: Model, asked: Question): Promise<unknown> {
  const session = model.session();
  if ("batch" in asked) {
    const { pad_mask: padMask, ...batch } = asked.batch;
    return shown(await model.run({ ...batch, padMask }));
  }
  if ("classify" in asked) return session.classify(asked.classify);
  if ("kept" in asked) {
    const reading = { ids: asked.kept, start: () => Promise.resolve(model.session()), wanted: () => true };
    const kept = await keptOf(reading, partsOf(await statesOf(model.manifest, reading)));
    return kept.map(({ part, shares, channels }) => ({ name: part.name, shares, channels }));
  }
  if ("translate" in asked) {
    const { beams, length_penalty: lengthPenalty, prefix } = asked;
    const options = { beams, lengthPenalty, prefix, repetition: repetitionOf(asked) };
    return (await session.translate(asked.translate, options)).map((some) => some.map(({ text }) => text));
  }
  if ("write" in asked) {
    const pieces: string[] = [];
    const options = {
      maxNewTokens: asked.max_new_tokens,
      repetition: repetitionOf(asked),
      sampling: samplingOf(asked),
    };
    const text = await session.write(asked.write, options, (piece) => pieces.push(piece) !== asked.cancel);
    return { text, pieces };
  }
  if (asked.sources) await session.readSource(asked.sources);
  if ("steps" in asked) {
    const found: unknown[] = [shown(await session.prefill(asked.prompts))];
    for (const tokens of asked.steps) found.push(await answered(async () => shown(await session.step(tokens))));
    return found;
  }
  const { prompts, max_new_tokens: maxNewTokens, stop_ids: stopIds } = asked;
  const options = { maxNewTokens, stopIds, repetition: repetitionOf(asked) };
  if ("beams" in asked) {
    const { beams, length_penalty: lengthPenalty } = asked;
    return session.beamSearch(prompts, { ...options, beams, lengthPenalty });
  }
  return session.generate(prompts, { ...options, sampling: samplingOf(asked) });
}

async function answered(answer: () => unknown): Promise<unknown> {
  try {
    return await answer();
  } catch (error) {
    if (!(error instanceof SeqlabError)) throw error;
    return { refused: error.message, code: error.code };
  }
}

/** A function that answers a line of JSON. */
async function responder(folder: string): Promise<(line: string) => unknown> {
  if (folder === "-") return (line) => chosen(JSON.parse(line) as Choice);
  const files = filesOf(folder);
  if (!files.has("tokenizer.json")) {
    const model = await open(files, ort);
    return (line) => ofModel(model, JSON.parse(line) as Question);
  }
  const tokenizer = await loadTokenizer(new Map([...files].map(([name, file]) => [`it/${name}`, file])), "it");
  return (line) => {
    const ids = tokenizer.encode(JSON.parse(line) as string);
    return [ids, tokenizer.decode(ids)];
  };
}

try {
  const respond = await responder(process.argv[2]);
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answered(() => respond(line))));
  }
} catch (error) {
  if (!(error instanceof SeqlabError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
