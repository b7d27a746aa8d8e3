"""Choices of a token that could turn because other rows share its step.

python benchmarks/batch_invariance.py BUNDLE ...

32 random prompts of 1 to 64 tokens are continued greedily, each alone, by 128 tokens. Then the same tokens are read in
a batch of 8 and of 32 rows. Printed are the largest difference of a logit, and the share of choices whose margin,
between the two likeliest tokens, is below twice the largest difference in that row: no other choice can turn.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.graph_runner import BundleRunner

ROWS, LONGEST, NEW = 32, 64, 128


def read(runner: BundleRunner, prompts: list[NDArray[np.int64]], new: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits (B, NEW, V) after the prompts, padded on their left, and after each new token (B, NEW) but the last."""
    longest = max(map(len, prompts))
    tokens = np.stack([np.pad(prompt, (longest - len(prompt), 0)) for prompt in prompts])
    real = np.arange(longest) >= np.array([[longest - len(prompt)] for prompt in prompts])
    logits, state = runner.read("model", tokens, real, runner.init_state(len(prompts)))
    found = [logits[:, -1]]
    for place in range(NEW - 1):
        chosen = new[:, place : place + 1]
        logits, state = runner.read("step", chosen, chosen >= 0, state)
        found.append(logits[:, -1])
    return np.stack(found, axis=1)


def greedy(runner: BundleRunner, prompt: NDArray[np.int64]) -> NDArray[np.int64]:
    """New tokens (NEW,) after a prompt."""
    tokens, new = prompt[None], []
    logits, state = runner.read("model", tokens, tokens >= 0, runner.init_state(1))
    for _ in range(NEW):
        new.append(logits[:, -1:].argmax(-1))
        logits, state = runner.read("step", new[-1], new[-1] >= 0, state)
    return np.concatenate(new, axis=1)[0]


def main() -> None:
    dice = np.random.default_rng(0)
    for folder in sys.argv[1:]:
        runner = BundleRunner(folder)
        vocab_size = runner.manifest.vocab_size or 0
        prompts = [dice.integers(3, vocab_size, size=length) for length in dice.integers(1, LONGEST + 1, size=ROWS)]
        new = np.stack([greedy(runner, prompt) for prompt in prompts])
        alone = np.concatenate([read(runner, [prompt], row[None]) for prompt, row in zip(prompts, new, strict=True)])
        margin = np.diff(np.partition(alone, -2, axis=-1)[..., -2:], axis=-1)[..., 0]
        for rows in (8, ROWS):
            some = range(0, ROWS, rows)
            together = np.concatenate([read(runner, prompts[r : r + rows], new[r : r + rows]) for r in some])
            most = np.abs(together - alone).max(-1)
            could = (margin < 2 * most).mean()
            turned = (together.argmax(-1) != alone.argmax(-1)).sum()
            print(
                f"{folder}, {rows} rows: differ by {most.max():.1e} at most, {could:.2e} of {margin.size} choices "
                f"could turn, {turned} did",
                flush=True,
            )


if __name__ == "__main__":
    main()
