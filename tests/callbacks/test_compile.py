"""A compiled fit: the same numbers, its time said, and checkpoints that load in an uncompiled one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from callbacks.tiny_fit import TinyData, TinyTask, tiny_trainer
from contracts.cases import MIXERS, MixerCase
from seqlab.attention import Attention, Bidirectional, CrossAttention
from seqlab.callbacks.compile_time import CompileTime
from seqlab.checkpoints.io import read_checkpoint
from seqlab.models import DecoderLM, Encoder, EncoderDecoder, Tagger
from seqlab.positions import NoPositions, RoPE
from seqlab_export.reports.conformance import all_mixers, model_named

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
TOKENS = torch.arange(21).view(3, 7) % 11
REAL = torch.arange(7) < torch.tensor([[7], [5], [4]])


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def of(name: str) -> MixerCase:
    return next(case for case in MIXERS if case.name == name)


def decoder(case: MixerCase) -> DecoderLM:
    positions = RoPE if case.attends else NoPositions
    return DecoderLM(11, 8, d_model=16, num_layers=1, mixer=case.factory, positions=positions)


def step(case: MixerCase, **compiled: Any) -> list[Tensor]:
    """The logits of a model around a mixer, and the gradients of its weights."""
    torch.manual_seed(0)
    encoder = partial(Encoder, d_model=16, num_layers=1, mixer=partial(Attention, num_heads=2, pattern=Bidirectional))
    if case.memory:
        crosses = isinstance(case.factory(16, 0), CrossAttention)
        role = {"cross" if crosses else "mixer": case.factory}
        model: Any = EncoderDecoder(11, 11, 8, encoder=encoder, num_layers=1, **role)  # type: ignore[arg-type]
    elif case.causal:
        model = decoder(case)
    else:
        model = Tagger(11, 11, 8, encoder=partial(encoder, mixer=case.factory))
    if compiled:
        model.compile(**compiled)
    state = {"state": model.begin(TOKENS, REAL)} if case.memory else {}
    said = model(TOKENS, pad_mask=REAL, **state)
    y = said if isinstance(said, Tensor) else said[0]
    y.square().sum().backward()
    return [y.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def check(name: str, backend: str) -> None:
    plain, found = step(of(name)), step(of(name), backend=backend)
    largest = max(float(gradient.abs().max()) for gradient in plain)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-6 * largest)


LOOPS = ("AdditiveAttention", "GRU", "LSTM", "MultiplicativeAttention", "RNN", "SLSTM")
"""Mixers with graph breaks: a step of `scan_over_time` is compiled alone, and PyTorch does not capture its own RNNs."""
CHUNKED = (
    "DeltaNet",
    "GatedDeltaNet",
    "GatedDeltaNet2",
    "GatedDeltaProduct",
    "GatedLinearAttention",
    "HGRN2",
    "KimiDeltaAttention",
    "LinearAttention",
    "MLSTM",
    "Mamba2",
    "Mamba3",
    "RWKV7",
    "Retention",
)
"""Mixers with one graph for each size and number of chunks, and for a last chunk that is full."""
FAST = {"Attention": (), "LRU": ()}


@pytest.mark.parametrize("name", [pytest.param(name, marks=FAST.get(name, pytest.mark.slow)) for name in all_mixers()])
def test_a_model_is_one_graph_and_another_for_all_other_lengths(name: str) -> None:
    model, graphs = model_named(name), 0

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    model.compile(backend=backend, fullgraph=name not in LOOPS)
    found = []
    for length in (9, 16, 40, 64):
        tokens = torch.zeros(2, length, dtype=torch.int64)
        model(tokens, *([model.begin(tokens)] if model.kind.reads == "sources" else []))
        found.append(graphs)
    if name in LOOPS:
        assert found[1:] == [found[1]] * 3, found
    else:
        assert found[:2] == [1, 2] and found[-1] <= (4 if name in CHUNKED else 2), found


OTHER_GRAPHS = (
    *("attention-window", "attention-prefix", "attention-sink", "attention-top-k", "attention-parts"),
    *("gru-stacked", "gru-both-ways", "rnn-looped", "multiplicative-local-fed-gru", "causal-conv-dilated"),
)
# torch 2.13 captures the gradient of elu with strides that it has not when it is run so; compiled it is right.
FIRST = {type(case.factory(16, 0)): case.name for case in reversed(MIXERS) if case.name != "linear-elu"}


@pytest.mark.slow
@pytest.mark.parametrize("name", (*FIRST.values(), *OTHER_GRAPHS))
def test_every_mixer_is_captured_or_runs_as_it_is(name: str) -> None:
    """Forwards and backwards, without the seconds of C++ that each of the graphs would take."""
    check(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "mamba", "gated-delta-net", "cross-attention", "linear-elu"])
def test_code_of_a_kind_of_mixers(name: str) -> None:
    check(name, "inductor")


class Own(nn.Module):
    """A model of ours: what is all PyTorch's own is not compiled."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).tanh()


def own_task() -> TinyTask:
    task = TinyTask()
    task.model = Own(task.model)  # type: ignore[assignment]
    return task


def test_the_time_is_said_and_the_checkpoint_loads_uncompiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, plain = own_task(), own_task()
    task.model.compile(backend="eager")
    tiny_trainer(tmp_path, [CompileTime()], max_epochs=1).fit(task, datamodule=TinyData())
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("compiled for ")]
    assert any(line.startswith("compiled for step 1: ") and line.endswith(" s") for line in said)
    assert all(float(line.split()[-2]) < 60 for line in said)
    assert len(said) <= 3, "only what is new is compiled"
    path = tmp_path / "checkpoints" / "last.ckpt"
    assert list(read_checkpoint(path)["state_dict"]) == list(plain.state_dict())
    tiny_trainer(tmp_path, max_epochs=2).fit(plain, datamodule=TinyData(), ckpt_path=str(path))
    assert plain.trainer.global_step == 14
