"""A bundle is whole and proven, or absent, and says nothing of the machine it was made on."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from export.toys import TOKENIZER, Shared, export_toy, toy
from seqlab.attention import Attention
from seqlab.mixer import Entry, Mixer, Spec, State
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import ByteTokenizer
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.lowering import standard
from seqlab_export.runner.cases import traced_len
from seqlab_export.runner.manifest import load_manifest

slow = pytest.mark.slow


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_secrets(folder: Path, *more: str) -> None:
    telling = [str(folder.parent), str(Path.home()), "site-packages", ".py", "Traceback", f"{gettempdir()}/", *more]
    for name, data in files_of(folder).items():
        assert not [word for word in telling if word.encode() in data], name


@slow
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int8"},
        {"precision": "int4"},
        {"precision": "bf16", "taps": ["attention", "state"]},
        {"target": "ort", "taps": ["attention", "state"]},
    ],
    ids=["int8", "int4", "bf16 and taps", "ort and taps"],
)
def test_two_exports_are_equal_in_every_byte_and_tell_nothing_of_the_machine(options: Any, tmp_path: Path) -> None:
    model = toy(partial(Attention, num_heads=2), NoPositions, 1)
    for name in ("first", "second"):
        export_bundle(model, TOKENIZER, tmp_path / name, seq_len=32, **options)
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    check_secrets(tmp_path / "first")


def test_its_files_tell_nothing_of_the_machine_and_hold_weights_once(shared: Shared) -> None:
    model, folder, _ = shared("attention")
    user = getpass.getuser()
    check_secrets(folder, type(model).__name__, *([user] if len(user) > 4 else []))
    assert len(files_of(folder)) == 7
    assert (folder / "weights.bin").stat().st_size <= sum(parameter.numel() * 4 for parameter in model.parameters())


def test_what_exists_is_not_overwritten(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    for out in (tmp_path, tmp_path / "precious"):
        with pytest.raises(ValueError, match="exists and is not an empty folder; give a new one"):
            export_bundle(shared("gru").model, TOKENIZER, out, seq_len=32)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@slow
def test_a_bundle_that_fails_its_proof_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, gates, _ = standard._OPERATORS["GRU"]
    monkeypatch.setitem(standard._OPERATORS, "GRU", (operator, gates, {"linear_before_reset": 0}))
    said = r"the bundle was not written: .* checks failed, the first in prefill"
    with pytest.raises(ParityError, match=said) as error:
        export_toy(toy(GRU, NoPositions, 1), tmp_path / "bundle")
    assert {check.kind for check in error.value.report.failures} == {"prefill", "chunks", "long"}
    assert not list(tmp_path.iterdir())


@slow
def test_a_short_reach_is_proven_and_the_model_stays_as_it_was(tmp_path: Path) -> None:
    model = toy(Attention, lambda d_model, _: Learned(d_model, 6), 1).double().train()
    (tmp_path / "bundle").mkdir()  # an empty folder will do
    report = export_toy(model, tmp_path / "bundle").report
    assert report.ok and (load_manifest(tmp_path / "bundle").max_seq_len, traced_len(6)) == (6, 2)
    lengths = {int(check.subject.split()[3].rstrip(",")) for check in report.checks if check.kind == "step"}
    assert lengths == {1, 2, 3}  # four times 2 is out of reach
    assert model.training and model.embedding.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int2"}, "precision must be one of fp32, fp16, bf16, int8, int4, got 'int2'"),
        ({"provider": "tpu"}, "provider must be one of cpu, cuda, cuda-tf32, got 'tpu'"),
        ({"tokenizer": ByteTokenizer()}, "the tokenizer has 259 tokens and the model 11"),
        ({"model": nn.Linear(1, 1)}, r"a bundle is of one of DecoderLM, .*; this is a Linear"),
        ({"taps": ["weights"]}, "a tap is one of attention, state, got 'weights'"),
        ({"taps": ["attention"]}, "tap attention finds nothing in this model, a DecoderLM; leave it out"),
        ({"taps": ["state"], "precision": "int8"}, "taps are of fp32, fp16 and bf16 bundles; this one is int8"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": toy(GRU, NoPositions, 1), "tokenizer": TOKENIZER} | options
    with pytest.raises(ValueError, match=message):
        export_bundle(out=tmp_path / "bundle", seq_len=32, **given)
    assert not list(tmp_path.iterdir())


class Plain(Mixer):
    """Passes x on; its state is whatever a test makes of it."""

    def forward(self, x: Tensor, state: State | None = None, **_: Tensor | None) -> tuple[Tensor, State]:
        return x, self.init_state(x.shape[0]) if state is None else state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return x_t, state

    def state_spec(self) -> Spec:
        return (Entry("h", (2,), initial=1.0),)


class Uneven(Plain):
    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        return {"h": torch.arange(2.0).expand(batch_size, 2)}


class Carrying(Plain):
    def __init__(self, d_model: int, layer: int = 0, *, carried: Callable[[Tensor], State]) -> None:
        super().__init__(d_model, layer)
        self.carried = carried

    def forward(self, x: Tensor, state: State | None = None, **_: Tensor | None) -> tuple[Tensor, State]:
        return x, self.carried(x)


doubling = partial(Carrying, carried=lambda x: {"h": torch.ones(len(x), 2 ** (1 + x.shape[1]))})
narrowing = partial(Carrying, carried=lambda x: {"h": torch.ones(len(x), 2, dtype=torch.int64)})
forgetting = partial(Carrying, carried=lambda x: {})
DECLARED = r"state entry 0_h is declared by state_spec as \(B, 2\) in torch.float32, and is "


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (Uneven, "state entry 0_h is declared to start at 1.0, and does not"),
        (doubling, DECLARED + r"\(2, 8\) in torch.float32 after 2 tokens"),
        (narrowing, DECLARED + r"\(2, 2\) in torch.int64 after 2 tokens"),
        (forgetting, r"state_spec declares the entries \['position', '0_h'\], and the state has \['position'\]"),
    ],
)
def test_a_mixer_that_a_bundle_cannot_hold_is_refused(mixer: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_toy(toy(mixer, NoPositions, 1), tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
