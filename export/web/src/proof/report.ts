// The report of a proof.

/** Errors of a runtime against the float64 reference, relative to the reference's RMS. */
export interface Errors {
  /** RMS of the differences */
  rms: number;
  /** PyTorch's own RMS error */
  torch: number;
  /** upper bound on `rms` */
  limit: number;
  /** largest error of a single number, which has no limit */
  largest: number;
}

/** The result of one comparison. */
export interface Check {
  /** such as files, signature, prefill or greedy; docs/bundle.md lists all */
  kind: string;
  /** such as a file, or a cell */
  subject: string;
  ok: boolean;
  /** the defect, or a remark */
  note: string;
  /** only for a comparison of numbers */
  errors?: Errors;
}

/** The divergence of a runtime's distributions over tokens or classes from float64's, for bundles with every logit. */
export interface Divergence {
  /** mean KL divergence, in nats */
  kl: number;
  /** its 99th percentile, in nats */
  kl_p99: number;
  /** share of places with the same likeliest token or class */
  top1: number;
}

export class Report {
  readonly checks: Check[] = [];
  divergence: Divergence | null = null;

  constructor(
    /** the version of onnxruntime-web */
    readonly onnxruntime: string,
    readonly precision: string,
    private readonly onCheck?: (check: Check) => void,
  ) {}

  /** True if there are checks and all have passed. */
  get ok(): boolean {
    return this.checks.length > 0 && this.checks.every((check) => check.ok);
  }

  /** Adds a check, which has passed if the note is empty. */
  add(kind: string, subject: string, note: string): void {
    this.take({ kind, subject, ok: note === "", note });
  }

  take(check: Check): void {
    this.checks.push(check);
    this.onCheck?.(check);
  }
}
