"""The strategy does not change what is trained: two and four ranks against one process at the same global batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isabstract, isclass
from pathlib import Path
from typing import Any

import pytest
import torch

from scale.fits import fit, language_model, sequence_to_sequence
from scale.forked import on_ranks
from scale.kinds import KINDS
from seqlab import attention, recurrence
from seqlab.attention import Attention, LogitSoftCap, OutputGate, QueryKeyNorm
from seqlab.config.lora import Lora
from seqlab.mixer import Mixer
from seqlab.models import EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, MixtureOfExperts, RMSNorm, SwiGLU
from seqlab.nn.lora import adapt
from seqlab.optim import SGD, Adafactor, Lion, Muon
from seqlab.positions import Learned, NoPositions

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


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
MIXERS |= {name: partial(MIXERS[name], head_dim=4) for name in ("LogLinearMamba2", "Mamba2", "Mamba3", "RWKV7")}
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


def adapted(folder: Path, **options: Any) -> tuple[Any, Any]:
    """Data and task of a decoder with updates of low rank."""
    data, make = language_model(folder)

    def made(**told: Any) -> Any:
        adapt(task := make(**told), Lora(rank=3))  # which two ranks cannot share evenly
        return task

    return data, made


CASES: dict[str, Callable[..., Any]] = {
    **{kind: partial(fit, kind=kind) for kind in KINDS},
    **{blocks: of_blocks(blocks) for blocks in BLOCKS},
    **{name: of_blocks("parts of heads", **flags) for name, flags in FLAGS.items()},
    **{name: of_blocks("parts of heads", options={"optimizer": made}) for name, made in OPTIMIZERS.items()},
    **{name: of_mixer(mixer) for name, mixer in {**MIXERS, "RNNSeq2Seq": RNNSeq2Seq}.items()},
}
AHEAD = partial(language_model, num_ahead=2)
CASES["heads ahead"] = partial(fit, kind="", made=AHEAD, precision="64-true")
CASES["LoRA"] = partial(fit, kind="", made=adapted, precision="64-true", gradient_clip_val=0.05)
EXPERTS = partial(Block, ffn=partial(MixtureOfExperts, num_experts=4, num_shared=1))
CASES["experts"] = partial(fit, kind="", made=partial(language_model, block=EXPERTS), precision="64-true")
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
    "ddp": ("translation", "classification", "experts"),
    "fsdp2": ("masked", "translation", "images", "frames", "LSTM", "clipped by norm", "averaged", "LoRA", "experts"),
    "tp": (*BLOCKS, *FLAGS, "masked", "translation", "foreach", "experts", "distillation", "heads ahead"),
}
"""Cases of a plain `make test`."""
SLOW = {
    "ddp": (*KINDS, "Adafactor", "Muon"),
    "fsdp2": (*KINDS, "RNNSeq2Seq", "compiled heads", "compiled LSTM"),
    "tp": (*KINDS, "compiled heads", "compiled LSTM"),
    "fsdp2+tp": (*BLOCKS, *FLAGS, *MIXERS, "SGD", "Lion", "foreach", "experts", "distillation", "heads ahead"),
    "ddp over 4": ("frames",),
    "fsdp2 over 4": ("translation", "frames"),
}
"""Every task in every strategy, and every mixer with its matrices cut and its weights sharded, at once."""


def assert_same(found: dict[str, Any], alone: dict[str, Any], tolerance: float = 1e-5) -> None:
    """The losses of all steps on every rank, the last weights, the scores, the predictions and what was read."""
    assert len(alone["losses"][0]) > 3 and found["weights"].keys() == alone["weights"].keys()
    for losses in found["losses"]:
        assert losses == pytest.approx(alone["losses"][0], rel=tolerance, abs=tolerance)
    for name, weight in found["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=tolerance, abs=tolerance), name
    assert found["scores"] == pytest.approx(alone["scores"], rel=1e-4, abs=tolerance)
    assert found["norm"] == pytest.approx(alone["norm"], rel=tolerance)
    assert found["num_tokens"] == alone["num_tokens"]
    assert [row["row"] for row in found["said"]] == [row["row"] for row in alone["said"]]
    assert _numbers(found["said"]) == pytest.approx(_numbers(alone["said"]), rel=1e-3, abs=tolerance)


def _numbers(value: Any) -> list[float]:
    """All decimal numbers in what JSON has."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [number for part in parts for number in _numbers(part)]


CHOSEN = [
    pytest.param(layout, case, id=f"{case}, {layout}", marks=() if case in FAST.get(layout, ()) else pytest.mark.slow)
    for layout in LAYOUTS
    for case in dict.fromkeys((*FAST.get(layout, ()), *SLOW[layout]))
]


@pytest.mark.parametrize(("layout", "case"), CHOSEN)
def test_a_strategy_trains_what_one_process_does(layout: str, case: str, files: Path) -> None:
    """To 1e-6 in float64. Where ranks draw their own random numbers, as many of DDP draw the same."""
    (ranks, tp), strategy = LAYOUTS[layout], layout.partition(" ")[0]
    readers = {"tp": 1, "fsdp2+tp": ranks // 2}.get(strategy, ranks)
    found = on_ranks(ranks, partial(CASES[case], files, strategy=strategy, tp=tp))
    if case in DRAWS and readers > 1:
        alone = on_ranks(readers, partial(CASES[case], files, strategy="ddp"))
    else:
        alone = CASES[case](files, batches=readers, compiled=False)
    assert_same(found, alone, 1e-5 if case in KINDS else 1e-6)
    if strategy == "fsdp2" and case in KINDS:
        assert max(found["held"]) < 1.1 / ranks
    if strategy == "tp" and case in BLOCKS:
        assert max(found["held"]) < 0.57  # norms and the biases of what is added are whole on each
    if case in ("translation", "frames") and readers == ranks:  # the last batch has a row for some ranks alone
        assert len(found["rows"]) == ranks and sorted(row for rows in found["rows"] for row in rows) == list(range(41))


def test_a_fit_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(files: Path, tmp_path: Path) -> None:
    """And one process from the same file: it is as one process would have written it."""
    kind, file = "language modelling", tmp_path / "last.ckpt"
    first = on_ranks(2, partial(fit, files, kind, "tp", saved=file, max_steps=5))
    found = on_ranks(2, partial(fit, files, kind, "tp", resumed=file))
    assert_same(found | {"losses": [first["losses"][0] + found["losses"][0]]}, fit(files, kind))
    alone = fit(files, kind, resumed=file)
    assert alone["losses"][0] == pytest.approx(found["losses"][0], rel=1e-5)
