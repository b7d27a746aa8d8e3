"""A synthetic parallel text for studies: the target is a copy of the source, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seqlab.batch import PairBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.tasks.text_scores import score_texts
from seqlab.tracking.store import DEFAULT_ROOT
from seqlab.trained.load import LoadedRun

WORDS = "abcdefghijklmnop"
HELD_OUT = 1000
"""First seed of the held-out text used for measurements."""


@dataclass(frozen=True)
class Copying:
    """Sentences of independently drawn words.

    Attributes:
        shortest, longest: minimum and maximum length of a training sentence, in words; all lengths are equally likely.
        count: number of training sentences.
        steps: number of optimiser steps of a fit.
        max_tokens: maximum number of tokens in a padded batch.
        furthest: maximum length of any generated sentence, in words.
    """

    shortest: int
    longest: int
    count: int
    steps: int
    max_tokens: int
    furthest: int

    def flags(self) -> tuple[str, ...]:
        """Command-line options of a fit on this text; writes the text if it does not exist."""
        train, val = (self._file(name, count) for name, count in (("train", self.count), ("val", 100)))
        return (
            *(f"--data.train={train}", f"--data.val={val}", f"--data.max_len={self.furthest + 8}"),
            *(f"--data.max_tokens={self.max_tokens}", "--model.label_smoothing=0", "--model.warmup_steps=50"),
            *(f"--trainer.max_steps={self.steps}", f"--trainer.val_check_interval={self.steps}"),
            "--trainer.log_every_n_steps=50",
        )

    def _file(self, name: str, count: int) -> str:
        path = Path(DEFAULT_ROOT) / "texts" / f"copy-{name}-{self.shortest}-{self.longest}-{count}.tsv"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = sentences(range(self.shortest, self.longest + 1), count, seed=0 if name == "train" else 1)
            path.write_text("".join(f"{text}\t{text}\n" for text in drawn), encoding="utf-8")
        return str(path)


def sentences(lengths: Sequence[int], count: int, seed: int) -> list[str]:
    """`count` random sentences of equally likely lengths."""
    from seqlab_data.generated import Draw

    draws = (Draw(seed, index) for index in range(count))
    drawn = (draw.integers(len(WORDS), lengths[draw.integer(len(lengths))]) for draw in draws)
    return [" ".join(WORDS[word] for word in words) for words in drawn]


def batch_of(model: LoadedRun, texts: Sequence[str]) -> PairBatch:
    """Batch of sentences of one length, both as sources and as targets."""
    assert model.source_tokenizer is not None
    source, target = (
        torch.tensor([[*tokenizer.encode(text), tokenizer.eos_id] for text in texts])
        for tokenizer in (model.source_tokenizer, model.tokenizer)
    )
    begun = torch.full((len(texts), 1), model.tokenizer.bos_id)
    tokens = torch.cat((begun, target[:, :-1]), dim=1)
    return PairBatch(source, torch.ones_like(source, dtype=torch.bool), tokens, target, torch.arange(len(texts)))


@torch.inference_mode()
def write(model: LoadedRun, texts: Sequence[str]) -> list[str]:
    """Greedy outputs for sentences of one length."""
    batch, tokenizer = batch_of(model, texts), model.tokenizer
    decoder = TorchDecoder(model.model, model.model.begin(batch.source, batch.source_mask))
    room = batch.source.shape[1] + 6
    written = generate(decoder, [[tokenizer.bos_id]] * len(texts), max_new_tokens=room, stop_ids=(tokenizer.eos_id,))
    return [tokenizer.decode(tokens) for tokens in written]


def bleu(written: Sequence[str], texts: Sequence[str]) -> float:
    scores, _ = score_texts(written, [[text] for text in texts], tokenize="none")
    return scores["bleu"]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of y over x."""
    first, second = (torch.tensor(some, dtype=torch.float64) for some in (x, y))
    centred = first - first.mean()
    return float(centred @ second / centred.square().sum())
