"""The measurement of PyTorch's own error, and the number of rows that it takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from seqlab.models import BagOfWords, Classifier, Encoder
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.proof import golden
from seqlab_export.proof.golden import write_golden
from seqlab_export.runner.cases import encoder_cases, limit
from seqlab_export.runner.manifest import GraphInfo, TensorInfo
from seqlab_export.runner.prove import judged


@pytest.mark.parametrize(
    ("outputs", "rows"),
    [
        ([("float32", ("B", 2))], 200),
        ([("float32", ("B", "T", 7))], 60),
        ([("float32", ("B", 1000))], 10),
        ([("float32", ("B",))], 400),
        ([("float32", ("B", 4, "M", 16)), ("float32", ("B", 0)), ("bool", ("B", "M"))], 10),
        ([("float32", ("B", 50)), ("float16", ("B", "M", 30))], 20),
    ],
)
def test_an_encoder_is_judged_by_400_numbers_of_a_position(
    outputs: list[tuple[str, tuple[int | str, ...]]], rows: int
) -> None:
    tokens = TensorInfo(name="tokens", dtype="int64", dims=("B", "T"))
    tensors = tuple(TensorInfo(name=f"{place}", dtype=dtype, dims=dims) for place, (dtype, dims) in enumerate(outputs))
    info = GraphInfo(file="encoder.onnx", inputs=(tokens,), outputs=tensors)
    assert {len(pad_mask) for _, pad_mask in encoder_cases(info, 40)} == {rows}


@pytest.mark.slow
def test_the_error_of_a_classifier_is_hardly_chance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other inputs give nearly the same error in each case; over ten rows of two classes often 1.5 of it."""
    gru = partial(Encoder, d_model=64, num_layers=1, mixer=partial(GRU, bidirectional=True), positions=NoPositions)
    model = Classifier(30, 2, 40, encoder=gru).eval()
    errors = []
    for seed in (1, 2, 3):
        monkeypatch.setattr(golden, "_SEED", seed)
        write_golden(model, tmp_path / "golden.npz")
        with np.load(tmp_path / "golden.npz") as arrays:
            errors.append([arrays[name].item() for name in arrays if name.endswith("torch/logits")])
    assert np.all(np.max(errors, axis=0) < 1.35 * np.min(errors, axis=0))


def test_a_precision_in_which_pytorch_itself_overflows_is_refused(tmp_path: Path) -> None:
    model = BagOfWords(11, 3, 8, d_model=8).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(1e8)
    said = r"fp16 is not finite \(encoder/length 1, logits\): a number is too large for it; export in fp32"
    with pytest.raises(ValueError, match=f"PyTorch's own {said}"):
        write_golden(model, tmp_path / "golden.npz", "fp16")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("own", [np.nan, np.inf])
def test_no_error_is_judged_by_one_that_is_not_finite(own: float) -> None:
    """Whatever a golden file says."""
    for errors in (np.zeros(3), np.full(3, np.nan)):
        check = judged("prefill", "logits", errors, own, limit(own, "fp16"))
        assert not check.ok and check.note == "PyTorch's own error is not finite"
    assert judged("prefill", "logits", np.full(3, 0.5), 0.25, limit(0.25)).ok
    check = judged("prefill", "logits", np.full(3, 0.51), 0.25, limit(0.25))
    assert check.note == "RMS error 5.10e-01, more than 5.00e-01"
