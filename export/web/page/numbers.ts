// Arithmetic on logits, and numbers as text. V vocabulary.

/** Log-probabilities of a row of logits (V). */
export function logProbabilities(logits: ArrayLike<number>): Float64Array {
  let most = -Infinity;
  for (let id = 0; id < logits.length; id++) most = Math.max(most, logits[id]);
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id] - most);
  const shift = most + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - shift);
}

/** Places of the largest values, the largest first, ties by place. */
export function largest(values: ArrayLike<number>, count: number): number[] {
  const places = Array.from(values, (_, place) => place);
  return places.sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
}

export function norm(values: ArrayLike<number>, from = 0, to = values.length): number {
  let sum = 0;
  for (let place = from; place < to; place++) sum += values[place] ** 2;
  return Math.sqrt(sum);
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 2 : 1)}%`;
}

/** A number with three significant digits, and a prefix of the SI from a thousand on. */
export function short(value: number): string {
  const size = Math.abs(value);
  for (const [unit, name] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (size >= unit) return `${+(value / unit).toPrecision(3)} ${name}`;
  }
  return size && size < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(3));
}

export function bytes(count: number): string {
  return count < 1024
    ? `${count} B`
    : count < 2 ** 20
      ? `${(count / 1024).toFixed(1)} KiB`
      : `${(count / 2 ** 20).toFixed(1)} MiB`;
}
