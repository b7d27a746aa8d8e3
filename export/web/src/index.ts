// The seqlab runtime for browsers and Node: runs what `seqlab export` wrote, with onnxruntime-web.
//
// Errors are thrown as a SeqlabError of one sentence. B batch, T tokens, F features, V vocabulary, C classes.

export type { BeamOptions, Hypothesis } from "./beam.js";
export type { Batch } from "./bundle.js";
export { SeqlabError, type Code } from "./error.js";
export type { Files } from "./files.js";
export type { GenerateOptions, OnText, OnToken } from "./generate.js";
export type { Dim, DType, GraphInfo, Manifest, StateInfo, TensorInfo } from "./manifest.js";
export { open, Model, Session, type Classes, type Translation, type TranslateOptions } from "./model.js";
export type { Repetition } from "./repetition.js";
export type { Sampling } from "./sampling.js";
export { numbersOf, type Ort, type Tensor } from "./tensors.js";
export { beginOf } from "./tokenizer.js";
export type { Check, Divergence, Errors, Report } from "./proof/report.js";
export { verify } from "./proof/verify.js";
export type { Places } from "./without.js";
