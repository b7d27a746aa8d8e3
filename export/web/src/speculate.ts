// Self-speculative decoding: the model's own heads guess several tokens, and one pass checks them. `speculate` of
// seqlab.decoding, token for token.

import type { Decoder } from "./decoder.js";
import { choosesOf, refuseCancelled, type Chooses, type GenerateOptions, type OnToken } from "./generate.js";

/** Continues a prompt as `generate` does, by at most `most` tokens. */
export async function speculate(
  decoder: Decoder,
  prompt: readonly number[],
  most: number,
  options: GenerateOptions,
  onToken?: OnToken,
): Promise<number[]> {
  const choose: Chooses = choosesOf(options);
  const stops = new Set(options.stopIds);
  const longest = prompt.length + most - 1; // the last new token is never read
  decoder.checkReadable(prompt, longest);
  decoder.start(1);
  const text = [...prompt];
  let guesses: number[] = [];
  let read = 0; // the state has read the first of the text's tokens
  while (text.length <= longest) {
    const known = text.length;
    if (read > 0 && known - read > 2 * (decoder.numAhead + 1)) {
      await decoder.guess(text.slice(read, -1), known - read - 2);
      decoder.keep();
      read = known - 1;
    }
    guesses = guesses.slice(0, longest - known);
    const found = await decoder.guess([...text.slice(read), ...guesses], known - read - 1);
    let place = 0;
    for (; ; ++place) {
      const token = choose(found.logits[place], text, text.length - prompt.length, 0);
      text.push(token);
      if ((await onToken?.(0, token)) === false) refuseCancelled();
      if (stops.has(token)) return text.slice(prompt.length);
      if (place === guesses.length || guesses[place] !== token) break;
    }
    if (place === guesses.length) {
      decoder.keep(); // every guess was right
      read = known + place;
    }
    guesses = found.guesses[place];
  }
  return text.slice(prompt.length);
}
