// What a proof has found.

/** How far a runtime's numbers are from the float64 reference, relative to the reference's RMS. */
export interface Errors {
  /** of the differences */
  rms: number;
  /** PyTorch's own */
  torch: number;
  /** the most that `rms` may be */
  limit: number;
  /** of a single number, which is not gated */
  largest: number;
}

/** One thing that was compared. */
export interface Check {
  /** such as files, signature, prefill or greedy: docs/bundle.md has all */
  kind: string;
  /** such as a file, or a cell */
  subject: string;
  ok: boolean;
  /** what is wrong, or else is to be said */
  note: string;
  /** where numbers were compared */
  errors?: Errors;
}

/** How far a runtime's distributions of a token or class are from float64's, where all logits were kept. */
export interface Divergence {
  /** the mean, in nats */
  kl: number;
  /** the 99th percentile */
  kl_p99: number;
  /** the share of places at which the likeliest is the same */
  top1: number;
}

export class Report {
  readonly checks: Check[] = [];
  divergence: Divergence | null = null;

  constructor(
    /** of onnxruntime-web */
    readonly onnxruntime: string,
    readonly precision: string,
    private readonly onCheck?: (check: Check) => void,
  ) {}

  /** Whether something was checked and everything is as it should be. */
  get ok(): boolean {
    return this.checks.length > 0 && this.checks.every((check) => check.ok);
  }

  /** Adds a check; a note is of what is wrong. */
  add(kind: string, subject: string, note: string): void {
    this.take({ kind, subject, ok: note === "", note });
  }

  take(check: Check): void {
    this.checks.push(check);
    this.onCheck?.(check);
  }
}
