"""The yardstick of parity: PyTorch's error with sums term by term, whatever the machine, and how it is measured."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from export.toys import toy
from seqlab.attention import Attention, LatentAttention, LinearAttention, Retention
from seqlab.mixer import Mixer
from seqlab.models import BagOfWords, Classifier, DecoderLM, Encoder
from seqlab.nn import Block, RMSNorm, SwiGLU
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU, LSTM, RNN, CausalConv
from seqlab_export.capture.plan import plan_export
from seqlab_export.proof import golden
from seqlab_export.proof.golden import write_golden
from seqlab_export.proof.rounding import MANY, TermByTerm, draws_of
from seqlab_export.runner.cases import encoder_cases, limit
from seqlab_export.runner.manifest import GraphInfo, TensorInfo
from seqlab_export.runner.prove import judged


class Exact(TorchDispatchMode):
    """A processor that sums in so many lanes that its sums of products do not err."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        products = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default)
        if func in products and args[0].dtype == torch.float32:
            return func(*(tensor.double() for tensor in args)).float()
        return func(*args, **(kwargs or {}))


def rms(error: Tensor) -> float:
    return float(error.double().square().mean().sqrt())


@pytest.mark.parametrize("terms", [8, 64, 512])
@pytest.mark.parametrize("positive", [False, True])
def test_it_errs_as_float32_sums_term_by_term_do(terms: int, positive: bool) -> None:
    x, weight = torch.randn(60, terms), torch.randn(80, terms)
    if positive:
        x, weight = x.abs(), weight.abs()
    exact = x.double() @ weight.double().T
    products = (x.unsqueeze(1) * weight).numpy()
    summed = torch.from_numpy(np.add.accumulate(products, axis=2, dtype=np.float32)[:, :, -1])
    with TermByTerm(0):
        found = F.linear(x, weight)
        convolved = F.conv1d(x.unsqueeze(2), weight.unsqueeze(2)).squeeze(2)
    assert rms(summed - exact) == pytest.approx(rms(found - exact), rel=0.15)
    assert rms(convolved - exact) == pytest.approx(rms(found - exact), rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_over_time_errs_as_one_vector_after_the_other_does(dtype: torch.dtype) -> None:
    x = torch.randn(11, 8)[torch.randint(11, (2, 1024))].to(dtype)
    one_by_one = np.add.accumulate(x.float().numpy(), axis=1, dtype=np.float32)[:, -1]
    with TermByTerm(0):
        found, kept = x.sum(dim=1), x.sum(dim=-2, keepdim=True)
    assert torch.equal(found, torch.from_numpy(one_by_one).to(dtype)) and torch.equal(kept, found.unsqueeze(1))


@pytest.mark.parametrize("tokens", [255, 256, 1024])
def test_so_does_a_product_over_many_tokens(tokens: int) -> None:
    """The weights of attention and the values, where a small vocabulary gives the same terms again and again."""
    words = torch.randint(11, (2, tokens))
    weights = torch.rand(11)[words].unsqueeze(1).expand(2, 5, tokens)
    values = torch.randn(2, 11, 8).gather(1, words.unsqueeze(2).expand(2, tokens, 8))
    # (2, 5, T, 8): each product in float64, each partial sum in float32.
    products = weights.double().unsqueeze(3) * values.double().unsqueeze(1)
    one_by_one = torch.zeros(2, 5, 8)
    for k in range(tokens):
        one_by_one = (one_by_one + products[:, :, k]).float()
    with TermByTerm(0):
        found = weights @ values
    assert torch.equal(found, one_by_one) == (tokens >= MANY)


@pytest.mark.parametrize(("columns", "is_added"), [(2**9, True), (2**9 + 1, False)])
def test_more_products_than_take_a_moment_are_drawn(columns: int, is_added: bool) -> None:
    weights, values = torch.rand(1, 2**6, 2**9), torch.rand(1, 2**9, columns)
    found = []
    for seed in (0, 1):
        with TermByTerm(seed):
            found.append(weights @ values)
    assert torch.equal(*found) == is_added


def test_convolutions_of_many_rows_are_finite() -> None:
    """The squares of small values beside large ones have no negative sum."""
    x, convolution = torch.randn(80, 192, 5), torch.nn.Conv1d(192, 192, 4, groups=192, bias=False)
    x[..., :4] *= 1e-5
    with torch.no_grad():
        expected = convolution.double()(x.double())
        with TermByTerm(0):
            found = convolution.float()(x)
    assert 0 < rms((found - expected)[..., 0]) < 1e-11


def test_few_tokens_are_drawn_so_often_that_one_draw_more_is_within_twice_the_largest() -> None:
    """One of ten tokens, divided by a sum that nearly cancels, may be all of the error, which is then one number."""

    def found(mode: TermByTerm) -> float:
        with mode:
            return rms((x @ weight) / (x @ divisor) - exact)

    another, *modes = map(TermByTerm, range(1 + draws_of(10)))
    refused = 0
    for _ in range(150):
        x, weight, divisor = torch.randn(1, 64), torch.randn(64, 4), torch.randn(64, 1)
        exact = (x.double() @ weight.double()) / (x.double() @ divisor.double())
        refused += found(another) > 2 * max(map(found, modes))
    assert refused <= 1


@pytest.mark.parametrize("mixer", [Attention, LatentAttention, LinearAttention, Retention, RNN, LSTM, GRU, CausalConv])
def test_it_is_the_same_model_but_for_rounding(mixer: type[Mixer]) -> None:
    block: Any = toy(mixer, NoPositions).stack.blocks[0]
    x = torch.randn(3, 11, 16)
    with torch.no_grad():
        plain, _ = block.mixer(x)
        outputs = []
        for seed in (0, 0, 1):
            with TermByTerm(seed):
                outputs.append(block.mixer(x)[0])
    once, again, other = outputs
    assert torch.equal(once, again)
    for a, b in ((plain, once), (plain, other), (once, other)):
        assert 0 < (a - b).abs().max() < 100 * torch.finfo(torch.float32).eps * plain.abs().max()
    assert torch.backends.mkldnn.enabled


@pytest.mark.slow
def test_the_yardstick_is_the_same_where_pytorch_hardly_errs(tmp_path: Path) -> None:
    """Processors that sum in wide blocks hardly err: twice PyTorch's own error there would refuse another runtime."""
    block = partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=1024))
    model = DecoderLM(50, 8, d_model=512, num_layers=1, mixer=Attention, positions=Learned, block=block).eval()
    yardsticks = []
    for machine in (nullcontext(), Exact()):
        with machine:
            write_golden(plan_export(model, None, seq_len=8), tmp_path)
        with np.load(tmp_path / "golden.npz") as arrays:
            yardsticks.append([arrays[name].item() for name in arrays if "/torch/" in name and "counters" not in name])
    assert yardsticks[1] == pytest.approx(yardsticks[0], rel=0.05)


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
    """Other inputs give nearly the same error in each case; over ten rows of two classes often 1.5 of it. Over the one
    row that is read in one call it stays chance, and none of the other cases' errors is above it."""
    gru = partial(Encoder, d_model=64, num_layers=1, mixer=partial(GRU, bidirectional=True), positions=NoPositions)
    model = Classifier(30, 2, 40, encoder=gru).eval()
    errors = []
    for seed in (1, 2, 3):
        monkeypatch.setattr(golden, "_SEED", seed)
        write_golden(plan_export(model, None, seq_len=40), tmp_path)
        with np.load(tmp_path / "golden.npz") as arrays:
            found = {name: arrays[name].item() for name in arrays if name.endswith("torch/logits")}
        assert found.pop("encoder/one call/torch/logits") >= max(found.values())
        errors.append([*found.values()])
    assert np.all(np.max(errors, axis=0) < 1.35 * np.min(errors, axis=0))


def test_a_precision_in_which_pytorch_itself_overflows_is_refused(tmp_path: Path) -> None:
    model = BagOfWords(11, 3, 8, d_model=8).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(1e8)
    said = r"fp16 is not finite \(encoder/length 1, logits\): a number is too large for it; export in fp32"
    with pytest.raises(ValueError, match=f"PyTorch's own {said}"):
        write_golden(plan_export(model, None, seq_len=8, precision="fp16"), tmp_path)
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
