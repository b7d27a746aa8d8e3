"""Fits by name, each called with a folder of the files of `kinds` and options of `scale.fits.fit`. A case of your own
is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isabstract, isclass
from typing import Any

import torch

from scale.fits import fit, language_model, sequence_to_sequence
from scale.kinds import KINDS
from seqlab import attention, recurrence
from seqlab.attention import Attention, LogitSoftCap, OutputGate, QueryKeyNorm
from seqlab.mixer import Mixer
from seqlab.models import EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.optim import SGD, Adafactor, Lion, Muon
from seqlab.positions import Learned, NoPositions

BLOCKS: dict[str, dict[str, Any]] = {
    "heads": {},
    "grouped heads": {"mixer": partial(Attention, num_heads=4, num_kv_heads=2), "block": partial(Block, ffn=SwiGLU)},
    "parts of heads": {"mixer": partial(Attention, parts=[QueryKeyNorm, OutputGate, LogitSoftCap])},
    "its own head": {"tie_embeddings": False, "positions": Learned, "block": partial(Block, norm=RMSNorm)},
    "dropout": {"dropout": 0.2, "block": partial(Block, dropout=0.2)},
}
"""Options of a decoder, each with something that tensor parallelism cuts in its own way."""
DRAWS = ("masked", "dropout")
"""Cases whose ranks draw random numbers: one process would draw others."""
MIXERS: dict[str, Any] = {
    name: found
    for name, found in (vars(attention) | vars(recurrence)).items()
    if isclass(found) and issubclass(found, Mixer) and not isabstract(found)
}
MIXERS |= {name: partial(MIXERS[name], head_dim=4) for name in ("Mamba2", "RWKV7")}
"""Every mixer of the library, small."""
OPTIMIZERS: dict[str, Any] = {
    **{"SGD": SGD, "Lion": Lion, "Adafactor": Adafactor, "Muon": Muon},
    "foreach": partial(torch.optim.AdamW, eps=1e-3, foreach=True),
}
"""Optimisers beside AdamW. Adafactor and Muon need whole matrices; the last takes many weights in one call, as AdamW
does by itself on a GPU."""
FLAGS: dict[str, dict[str, Any]] = {
    "clipped by norm": {"gradient_clip_val": 0.05},
    "clipped by value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    "averaged": {"ema": 0.9, "limit_val_batches": 1, "val_check_interval": 2},
}
"""Options of a fit; validations of the last swap the weights for their average."""


def of_blocks(blocks: str, **options: Any) -> Callable[..., Any]:
    """Fit of a decoder in float64."""
    made = partial(language_model, **BLOCKS[blocks])
    return partial(fit, kind="language modelling", made=made, precision="64-true", **options)


def of_mixer(mixer: Any) -> Callable[..., Any]:
    """Fit of a decoder, of one that attends to a source where the mixer does, or of RNNSeq2Seq. In float64: in float32
    another order of additions changes the fourth digit of a few losses (DeltaNet, SLSTM) within 12 steps."""
    if mixer is RNNSeq2Seq:
        made: Any = partial(sequence_to_sequence, model=mixer)
    elif not getattr(mixer, "needs_memory", False):
        made = partial(language_model, mixer=mixer, positions=NoPositions)
    else:
        role = "cross" if mixer is attention.CrossAttention else "mixer"
        made = partial(sequence_to_sequence, model=EncoderDecoder, **{role: mixer})
    return partial(fit, kind="", made=made, precision="64-true")


CASES: dict[str, Callable[..., Any]] = {
    **{kind: partial(fit, kind=kind) for kind in KINDS},
    **{blocks: of_blocks(blocks) for blocks in BLOCKS},
    **{name: of_blocks("parts of heads", **flags) for name, flags in FLAGS.items()},
    **{name: of_blocks("parts of heads", options={"optimizer": made}) for name, made in OPTIMIZERS.items()},
    **{name: of_mixer(mixer) for name, mixer in {**MIXERS, "RNNSeq2Seq": RNNSeq2Seq}.items()},
}
# One graph, and PyTorch's own kernels between graphs.
CASES |= {f"compiled {name}": partial(CASES[name], compiled=True) for name in ("heads", "LSTM")}

LAYOUTS: dict[str, tuple[int, int | None]] = {
    "ddp": (2, None),
    "fsdp2": (2, None),
    "tp": (2, None),
    "fsdp2+tp": (4, 2),
    "ddp over 4": (4, None),
    "fsdp2 over 4": (4, None),
}
"""Ranks and --tp. Some of the models have two heads, so that no more than two ranks can share them."""
FAST = {
    "ddp": ("translation", "classification"),
    "fsdp2": ("masked", "translation", "images", "frames", "LSTM", "clipped by norm", "averaged"),
    "tp": (*BLOCKS, *FLAGS, "masked", "translation", "foreach"),
}
"""Cases of a plain `make test`."""
SLOW = {
    "ddp": (*KINDS, "Adafactor", "Muon"),
    "fsdp2": (*KINDS, *MIXERS, "RNNSeq2Seq", "compiled heads", "compiled LSTM"),
    "tp": (*KINDS, *MIXERS, "RNNSeq2Seq", "compiled heads", "compiled LSTM"),
    "fsdp2+tp": (*KINDS, *BLOCKS, *FLAGS, "SGD", "Lion", "foreach", "LSTM", "Mamba2", "CrossAttention"),
    "ddp over 4": ("translation", "frames"),
    "fsdp2 over 4": ("masked", "translation", "frames", "RNNSeq2Seq"),
}
"""Every task in every strategy; every mixer with its weights sharded and with its matrices cut; both at once for what
the strategies treat in ways of their own."""
