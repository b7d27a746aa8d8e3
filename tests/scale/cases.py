"""Cases that several processes run together, by name. Each is called on every rank with a folder of the files of
`kinds`, and returns JSON values. A case of your own is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isabstract, isclass
from typing import Any

import torch

from scale.fits import fit, fit_in_two_parts, language_model, sequence_to_sequence
from scale.kinds import KINDS
from scale.resumed import in_turns, killed_within_an_epoch, one_epoch
from seqlab import attention, recurrence
from seqlab.attention import Attention, LogitSoftCap, OutputGate, QueryKeyNorm
from seqlab.mixer import Mixer
from seqlab.models import EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.optim import SGD, Adafactor, Lion, Muon
from seqlab.positions import Learned, NoPositions

DOUBLE: dict[str, Any] = {"precision": "64-true"}
BLOCKS: dict[str, dict[str, Any]] = {
    "heads": {},
    "grouped heads": {"mixer": partial(Attention, num_heads=4, num_kv_heads=2), "block": partial(Block, ffn=SwiGLU)},
    "parts of heads": {"mixer": partial(Attention, parts=[QueryKeyNorm, OutputGate, LogitSoftCap])},
    "its own head": {"tie_embeddings": False, "positions": Learned, "block": partial(Block, norm=RMSNorm)},
    "dropout": {"dropout": 0.2, "block": partial(Block, dropout=0.2)},
}
"""Options of a decoder, each with something that tensor parallelism cuts in its own way."""
DRAWS = ("masked", "dropout")
"""Kinds whose ranks draw random numbers: one process would draw others."""
MIXERS: dict[str, Any] = {
    name: found
    for name, found in (vars(attention) | vars(recurrence)).items()
    if isclass(found) and issubclass(found, Mixer) and not isabstract(found)
}
MIXERS |= {name: partial(MIXERS[name], head_dim=4) for name in ("Mamba2", "RWKV7")}
"""Every mixer of the library, small."""
CLIPS: dict[str, dict[str, Any]] = {
    "norm": {"gradient_clip_val": 0.05},
    "value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
}
COMPILED = ("heads", "LSTM")
"""One graph, and PyTorch's own kernels between graphs."""
OF_CUDA: dict[str, Any] = {"optimizer": partial(torch.optim.AdamW, eps=1e-3, foreach=True)}
"""An optimiser that takes many weights in one call, as it does by itself on a GPU."""

AVERAGED: dict[str, Any] = {"ema": 0.9, "limit_val_batches": 1, "val_check_interval": 2}
"""Options of a fit whose validations swap the weights for their average."""
OPTIMIZERS: dict[str, Any] = {"SGD": SGD, "Lion": Lion, "Adafactor": Adafactor, "Muon": Muon}
"""Optimisers beside AdamW. The last two need whole matrices."""


def of_blocks(blocks: str, **options: Any) -> Callable[..., Any]:
    return partial(fit, kind="language modelling", made=partial(language_model, **BLOCKS[blocks]), **DOUBLE, **options)


def of_mixer(mixer: Any, **spread: Any) -> Callable[..., Any]:
    """Fit of a decoder, of one that attends to a source where the mixer does, or of RNNSeq2Seq. In float64: in float32
    another order of additions changes the fourth digit of a few losses (DeltaNet, SLSTM) within 12 steps."""
    if mixer is RNNSeq2Seq:
        made: Any = partial(sequence_to_sequence, model=mixer)
    elif not getattr(mixer, "needs_memory", False):
        made = partial(language_model, mixer=mixer, positions=NoPositions)
    elif mixer is attention.CrossAttention:
        made = partial(sequence_to_sequence, model=EncoderDecoder, cross=mixer)
    else:
        made = partial(sequence_to_sequence, model=EncoderDecoder, mixer=mixer)
    return partial(fit, kind="", made=made, **DOUBLE, **spread)


def of(strategy: str, *, tp: int | None = None) -> dict[str, Callable[..., Any]]:
    """All cases that a strategy must pass."""
    spread: dict[str, Any] = {"strategy": strategy, "tp": tp}
    cases: dict[str, Callable[..., Any]] = {
        **{f"{kind}, {strategy}": partial(fit, kind=kind, **spread) for kind in KINDS},
        **{f"{blocks}, {strategy}": of_blocks(blocks, **spread) for blocks in BLOCKS},
        **{f"clipped by {clip}, {strategy}": of_blocks("parts of heads", **spread, **CLIPS[clip]) for clip in CLIPS},
        **{
            f"{name}, {strategy}": of_blocks("parts of heads", **spread, options={"optimizer": made})
            for name, made in OPTIMIZERS.items()
            if strategy == "ddp" or name in ("SGD", "Lion")
        },
        f"averaged, {strategy}": of_blocks("heads", **spread, **AVERAGED),
        f"foreach, {strategy}": of_blocks("parts of heads", **spread, options=OF_CUDA),
        **{f"{name}, {strategy}": of_mixer(mixer, **spread) for name, mixer in MIXERS.items()},
        f"RNNSeq2Seq, {strategy}": of_mixer(RNNSeq2Seq, **spread),
        f"resumed, {strategy}": partial(fit_in_two_parts, **spread),
    }
    compiled = {f"compiled {name}": partial(cases[f"{name}, {strategy}"], compiled=True) for name in COMPILED}
    return cases | {f"{name}, {strategy}": case for name, case in compiled.items()}


DDP, FSDP2, TP, BOTH = ("ddp", None), ("fsdp2", None), ("tp", None), ("fsdp2+tp", 2)
"""Layouts as `scale.resumed` takes them."""
RESUMED: dict[str, Callable[..., Any]] = {
    "in turns": partial(in_turns, layouts=(FSDP2, DDP, TP)),
    "killed, fsdp2": partial(killed_within_an_epoch, layout=FSDP2, other=DDP),
    "killed, tp": partial(killed_within_an_epoch, layout=TP, other=FSDP2),
    "first in fsdp2": partial(one_epoch, layout=FSDP2, number=1),
    "second in one process": partial(one_epoch, layout=DDP, number=2),
    "third in fsdp2+tp": partial(one_epoch, layout=BOTH, number=3),
    "fourth in tp": partial(one_epoch, layout=TP, number=4),
}

CASES = {**of("ddp"), **of("fsdp2"), **of("tp"), **of("fsdp2+tp", tp=2), **RESUMED}
OF_RANKS = {2: ("ddp", "fsdp2", "tp"), 4: ("ddp", "fsdp2", "fsdp2+tp")}
"""Strategies tried with so many ranks. Some of the models have two heads, so that no more than two can share them."""
PLAIN = [
    *(f"{kind}, fsdp2" for kind in KINDS),
    *(f"{kind}, ddp" for kind in ("masked", "translation", "classification")),
    *(f"{blocks}, tp" for blocks in BLOCKS),
    *(f"{case}, {strategy}" for case in ("clipped by norm", "resumed") for strategy in ("fsdp2", "tp")),
    *("RNNSeq2Seq, fsdp2", "LSTM, fsdp2", "Mamba, fsdp2"),
    *("translation, tp", "masked, tp", "clipped by value, tp", "foreach, tp"),
    *("averaged, fsdp2", "averaged, tp"),
    *("in turns", "killed, fsdp2"),
]
"""Cases of a plain `make test`, with two ranks; the others are slow."""
