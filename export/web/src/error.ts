/** What went wrong, to branch on. */
export type Code = "invalid argument" | "not found" | "damaged bundle" | "unsupported" | "cancelled" | "internal";

/** What went wrong, in one sentence; without a code it is what the caller gave. */
export class SeqlabError extends Error {
  constructor(
    message: string,
    readonly code: Code = "invalid argument",
  ) {
    super(message);
    this.name = "SeqlabError";
  }
}

export function refuse(message: string, code: Code = "invalid argument"): never {
  throw new SeqlabError(message, code);
}

/** The sentence of anything that was thrown. */
export function sentenceOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replace(/\s+/g, " ").trim();
}
