// node verify.js FOLDER: verifies a bundle with onnxruntime-web and prints the report as JSON. Exit code 0 = all checks
// pass, 1 = one fails, 2 = the folder is no bundle, with a sentence on stderr.

import * as ort from "onnxruntime-web";

import { SeqlabError, verify } from "../src/index.js";
import { filesOf } from "./folder.js";

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
try {
  const report = await verify(filesOf(process.argv[2]), ort);
  const checks = report.checks.map(({ errors, ...check }) => ({
    ...check,
    error: errors?.rms ?? null,
    torch_error: errors?.torch ?? null,
    limit: errors?.limit ?? null,
    largest: errors?.largest ?? null,
  }));
  const { ok, onnxruntime, divergence } = report;
  console.log(JSON.stringify({ ok, onnxruntime, divergence, checks }));
  process.exitCode = ok ? 0 : 1;
} catch (error) {
  if (!(error instanceof SeqlabError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
