"""Graphs of a mixture of experts: a step reads the chosen experts only, and both graphs are the model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnxscript import ir

from contracts.subjects import VOCAB_SIZE, decoder_subject
from export.toys import TOKENIZER
from seqlab.models import DecoderLM
from seqlab.nn import Block, MixtureOfExperts
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.plan import plan_export
from seqlab_export.graphs import export_graphs
from tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's exporter


def decoder(**options: Any) -> DecoderLM:
    """A decoder whose biases choose other experts than its affinities alone."""
    block = partial(Block, ffn=partial(MixtureOfExperts, num_experts=5, balance_rate=0.1, **options))
    model: DecoderLM = decoder_subject(GRU, NoPositions, num_layers=1, block=block).module.float()
    for part in model.modules():
        if isinstance(part, MixtureOfExperts):
            part.raises.copy_(torch.tensor([4, -4, 0, 2, -1]))
    return model


def test_graphs_are_the_model(tmp_path: Path) -> None:
    """Whole, and token by token."""
    model = decoder(router="sigmoid", num_shared=1)
    graphs = export_graphs(plan_export(model, TOKENIZER, seq_len=32), tmp_path).graphs
    tokens = torch.randint(VOCAB_SIZE, (3, 9))
    with torch.no_grad():
        expected, _ = model(tokens)
    step, whole = (ort.InferenceSession(tmp_path / graphs[name].file) for name in ("step", "model"))
    state = {f"state_{name}": entry.numpy() for name, entry in model.init_state(3).items()}
    given = {"tokens": tokens.numpy(), "pad_mask": np.ones((3, 9), dtype=np.bool_), "scored": np.arange(9)}
    assert_close(torch.from_numpy(whole.run(None, {**given, **state})[0]), expected)
    for t in range(9):
        given = {"tokens": tokens[:, t : t + 1].numpy(), "pad_mask": np.ones((3, 1), dtype=np.bool_)}
        logits, *entries = step.run(None, {**given, **state})
        state = dict(zip(state, entries, strict=True))
        assert_close(torch.from_numpy(logits[:, 0]), expected[:, t], f"step {t}")

    experts = {f"model.stack.blocks.0.ffn.{part}_proj.weight" for part in ("gate", "up", "down")}
    for name, reader in (("step", "GatherND"), ("model", "MatMul")):
        values = ir.load(tmp_path / graphs[name].file).graph.initializers
        assert {node.op_type for one in experts for node, _ in values[one].uses()} == {reader}


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_bundle_is_proven(precision: Any, top_k: int, tmp_path: Path) -> None:
    assert export_bundle(decoder(top_k=top_k), TOKENIZER, tmp_path / "bundle", seq_len=32, precision=precision).ok
