/** The kind of an error, for a program to branch on. */
export type Code = "invalid argument" | "not found" | "damaged bundle" | "unsupported" | "cancelled" | "internal";

/** An error of one sentence. The default code blames the caller's arguments. */
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

/** The message of anything that was thrown, on one line. */
export function sentenceOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replace(/\s+/g, " ").trim();
}
