// node verify.js FOLDER: verifies a bundle with onnxruntime-web and prints the report as JSON. Exit code 0 = all checks
// pass, 1 = one fails, 2 = the folder is no bundle, with a sentence on stderr.

import * as ort from "onnxruntime-web";

import { SeqlabError, verify } from "../src/index.js";
import { filesOf } from "./folder.js";
import { jsonOf } from "./report.js";

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
try {
  const report = await verify(filesOf(process.argv[2]), ort);
  console.log(jsonOf(report));
  process.exitCode = report.ok ? 0 : 1;
} catch (error) {
  if (!(error instanceof SeqlabError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
