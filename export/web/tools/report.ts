// The report of a proof as the JSON that seqlab_export.reports.parity reads.

import type { Report } from "../src/index.js";

export function jsonOf({ ok, onnxruntime, divergence, checks }: Report): string {
  const flat = checks.map(({ errors, ...check }) => ({
    ...check,
    error: errors?.rms ?? null,
    torch_error: errors?.torch ?? null,
    limit: errors?.limit ?? null,
    largest: errors?.largest ?? null,
  }));
  return JSON.stringify({ ok, onnxruntime, divergence, checks: flat });
}
