"""Effect of word order on a model's outputs, relative to the effect of changing the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqlab import attention, positions, recurrence
from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.mixer import Mixer
from seqlab.models import DecoderLM, Encoder
from seqlab.positions import NoPositions, PositionalEncoding
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import load_run

BATCH, LENGTH, VOCAB, WIDTH = 8, 16, 32, 64
WINDOW = 4
"""Places that each of the WINDOWS sees, its own included."""
DEPTHS = (1, 2, 4)
BAG, UNPLACED = "bag of words", "attention without positions"
WINDOWS, LAST_FOUR = ("NGramWindow", "CBOW", "CausalConv"), "the last four words"
REVERSED, OLDER, AFTER = ", its window reversed", ", words before its window", ", words after a place"
ENCODINGS: dict[str, Callable[[int, int], PositionalEncoding]] = {
    **{name: getattr(positions, name) for name in ("Sinusoidal", "Learned", "Binary", "Integer")},
    "Integer, added": partial(positions.Integer, combine="add"),
    **{name: getattr(positions, name) for name in ("RoPE", "XPos", "ALiBi", "T5Bias", "Shaw", "CoPE")},
}
RECURRENCES = {
    **{name: getattr(recurrence, name) for name in recurrence.__all__ if name not in WINDOWS},
    **{
        name: getattr(attention, name)
        for name in ("LinearAttention", "Retention", "GatedLinearAttention", "DeltaNet", "GatedDeltaNet", "Mamba2")
    },
}


def effects() -> Iterator[tuple[str, float]]:
    """Effect of word order for each model, relative to the effect of changing the words."""
    both_ways = partial(Attention, pattern=Bidirectional)
    yield BAG, at_last(lambda tokens: nn.functional.one_hot(tokens, VOCAB).double().mean(1, keepdim=True))
    for depth in DEPTHS:
        yield f"encoder, {depth} deep", at_last(encoder(both_ways, NoPositions, depth))
        yield f"causal decoder, {depth} deep", at_last(decoder(Attention, depth))
    yield UNPLACED, at_last(encoder(both_ways, NoPositions, 1))

    tokens, swapped, others, moved = draw()
    alone, told = encoder(both_ways, NoPositions, 2), encoder(both_ways, positions.Sinusoidal, 2)
    out, again, other = alone(tokens), alone(swapped), alone(others)
    yield "every output in its place", ratio(again - out, other - out)
    yield "outputs that move with their words", ratio(again - out[:, moved], other - out)
    yield "the mean of the outputs", ratio((again - out).mean(1), (other - out).mean(1))
    first, second, third = (told(given).mean(1) for given in (tokens, swapped, others))
    yield "the mean of the outputs, with Sinusoidal", ratio(second - first, third - first)

    for name, encoding in ENCODINGS.items():
        yield name, at_last(encoder(both_ways, encoding, 2))
    for name, mixer in RECURRENCES.items():
        yield name, at_last(decoder(mixer, 1))
    windows = {name: decoder(getattr(recurrence, name), 1) for name in (*WINDOWS, "GRU")}
    for name, model in windows.items():
        yield f"{name}{REVERSED}", reversed_window(model)
    windows[LAST_FOUR] = lambda tokens: nn.functional.one_hot(tokens[:, -WINDOW:], VOCAB).double().flatten(1)[:, None]
    for name, model in windows.items():
        yield f"{name}{OLDER}", before_window(model)
    readers: dict[str, MakeMixer] = {
        "GRU": recurrence.GRU,
        "two GRUs": partial(recurrence.GRU, bidirectional=True),
        "attention": both_ways,
    }
    for name, reader in readers.items():
        yield f"{name}{AFTER}", after_place(encoder(reader, NoPositions, 1))


def of_trained(runs: Mapping[str, TrackedRun]) -> Iterator[tuple[str, float]]:
    """Relative effect of word order for trained models, by arm."""
    for name, run in runs.items():
        loaded = load_run(run.id)
        yield name, at_last(partial(features, loaded.model.double()), loaded.tokenizer.vocab_size)


def features(model: Any, tokens: Tensor) -> Tensor:
    """Outputs (B, T, D) of a decoder, or of the encoder of a masked language model."""
    found: Tensor = model(tokens, features=True)[0] if isinstance(model, DecoderLM) else model.encoder(tokens)
    return found


MakeMixer = Callable[[int, int], Mixer]
Model = Callable[[Tensor], Tensor]
"""Tokens (B, T) to outputs (B, T, D)."""


def encoder(mixer: MakeMixer, encoding: Callable[[int, int], PositionalEncoding], depth: int) -> Model:
    model = Encoder(VOCAB, LENGTH, mixer=mixer, d_model=WIDTH, num_layers=depth, positions=encoding)
    return model.double().eval()


def decoder(mixer: MakeMixer, depth: int) -> Model:
    model = DecoderLM(VOCAB, LENGTH, d_model=WIDTH, num_layers=depth, mixer=mixer, positions=NoPositions)
    model.double().eval()
    return lambda tokens: model(tokens, features=True)[0]


def at_last(model: Model, vocab: int = VOCAB) -> float:
    tokens, swapped, others, _ = draw(vocab)
    out = model(tokens)[:, -1]
    return ratio(model(swapped)[:, -1] - out, model(others)[:, -1] - out)


def reversed_window(model: Model) -> float:
    """Effect at the last output of the reversed order of the words before it in its window."""
    tokens, _, others, _ = draw()
    place = slice(LENGTH - WINDOW, LENGTH - 1)
    return ratio(*changes(model, tokens, -1, (place, tokens[:, place].flip(1)), (place, others[:, place])))


def before_window(model: Model) -> float:
    """Effect at the last output of other words before its window, relative to that of other words in it."""
    tokens, _, others, _ = draw()
    old, new = slice(0, LENGTH - WINDOW), slice(LENGTH - WINDOW, LENGTH - 1)
    return ratio(*changes(model, tokens, -1, *((place, others[:, place]) for place in (old, new))))


def after_place(model: Model) -> float:
    """Effect at the middle output of other words after it, relative to that of other words before it."""
    tokens, _, others, _ = draw()
    middle = LENGTH // 2
    after, before = slice(middle + 1, LENGTH), slice(0, middle)
    return ratio(*changes(model, tokens, middle, *((place, others[:, place]) for place in (after, before))))


def changes(model: Model, tokens: Tensor, at: int, *replaced: tuple[slice, Tensor]) -> Iterator[Tensor]:
    """Changes (B, D) of the output at a place by other words in some places of tokens (B, T), for each replacement."""
    out = model(tokens)[:, at]
    for place, words in replaced:
        other = tokens.clone()
        other[:, place] = words
        yield model(other)[:, at] - out


def draw(vocab: int = VOCAB) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens (B, T), the same tokens permuted, other tokens, and the permutation (T,); all keep the last token."""
    tokens, others = torch.randint(vocab, (2, BATCH, LENGTH)).unbind()
    others[:, -1] = tokens[:, -1]
    moved = torch.cat((torch.randperm(LENGTH - 1), torch.tensor([LENGTH - 1])))
    return tokens, tokens[:, moved], others, moved


def ratio(ours: Tensor, theirs: Tensor) -> float:
    """Ratio of the root mean squares."""
    return float(ours.square().mean().sqrt() / theirs.square().mean().sqrt())
