"""Attention weights and hidden states of the deployed graph are those of the model that was trained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from contracts.subjects import randomized
from export.planted import copy_of, edit_graph, failed, with_output_times, writing
from export.test_encoder_bundles import D_MODEL, SEQ_LEN, WRITING, C, encoder, exported
from export.test_targets import Bundle
from export.toys import TOKENIZER, toy
from repository.source_tree import python_blocks
from seqlab.attention import Attention
from seqlab.models import Classifier
from seqlab.positions import RoPE
from seqlab.probes.attention_weights import recorded_weights
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.plan import plan_export
from seqlab_export.proof.intermediate import check_intermediate
from seqlab_export.runner.graph_runner import Bundle as Opened
from seqlab_export.runner.graph_runner import open_bundle
from tolerances import assert_close
from web.test_proof import failed as failed_in_web

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="tapped")
def _tapped(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model, folder = toy(Attention, RoPE), tmp_path_factory.mktemp("taps") / "bundle"
    report = export_bundle(model, TOKENIZER, folder, taps=["attention", "state"], seq_len=32)
    assert sum(check.kind == "taps" for check in report.checks) == 12  # of two layers at three lengths
    return Bundle(model, folder)


def test_taps_are_given_as_the_page_shows(tapped: Bundle) -> None:
    (shown,) = (block for block in python_blocks("docs/bundle.md") if ".tap(" in block)
    given = {"tokens": np.array([[3, 4, 5]]), "pad_mask": np.ones((1, 3), dtype=np.bool_)}
    exec(shown.replace('"DIR"', repr(str(tapped.folder))), given)
    assert "state.stack.blocks.1" in given["found"]


def test_taps_are_what_the_model_attends_to_and_holds(tapped: Bundle) -> None:
    model, folder = tapped
    tokens, pad_mask = torch.randint(model.vocab_size, (3, 9)), torch.ones(3, 9, dtype=torch.bool)
    pad_mask[1, :4] = False
    pad_mask[2, 6:] = False
    found = open_bundle(folder).tap(tokens=tokens.numpy(), pad_mask=pad_mask.numpy())
    with torch.no_grad(), recorded_weights(model) as weights:
        logits, _ = model(tokens, pad_mask=pad_mask)
        # What follows the last block gives the logits.
        after = model.output(model.stack.norm(torch.from_numpy(found["state.stack.blocks.1"])))
    assert list(weights) == ["stack.blocks.0.mixer", "stack.blocks.1.mixer"]
    assert set(found) == {f"attention.{name}" for name in weights} | {"state.stack.blocks.0", "state.stack.blocks.1"}
    for name, expected in weights.items():
        ours = torch.from_numpy(found[f"attention.{name}"])
        assert_close(ours.transpose(1, 2)[pad_mask], expected.transpose(1, 2)[pad_mask], name)
        assert (expected.amax(dim=-1)[pad_mask[:, None].expand(-1, 4, -1)] > 0.6).any(), "the weights say nothing"
    assert_close(after[pad_mask], logits[pad_mask], "the logits of the last hidden state")


def test_wrong_taps_are_found(tapped: Bundle, tmp_path: Path) -> None:
    name, folder = "attention.stack.blocks.1.mixer", copy_of(tapped.folder, tmp_path)
    turned = writing("turned", name, f'"{name}" = Transpose <perm = [0, 1, 3, 2]> (right)')
    edit_graph(folder, "taps.onnx", turned)
    plan = plan_export(tapped.model, TOKENIZER, taps=["attention", "state"], seq_len=32)
    checks = [*check_intermediate(plan, folder)]
    assert {check.subject.split(", ")[1] for check in checks if not check.ok} == {name}


def test_taps_that_are_not_the_file_that_was_written_are_found(tapped: Bundle, tmp_path: Path) -> None:
    folder = copy_of(tapped.folder, tmp_path)
    assert not failed(folder)
    edit_graph(folder, "taps.onnx", with_output_times(1 + 1e-6, "state.stack.blocks.1"))
    assert failed(folder) == failed_in_web(folder) == {"twin"}


def of_features(longest: int = SEQ_LEN) -> Classifier:
    return Classifier(6, C, longest, encoder=encoder(embed=nn.Linear), pool="class")


@pytest.mark.parametrize(
    ("model", "taps"),
    [
        (WRITING["transformer"], ["attention", "state"]),
        (WRITING["additive"], ["attention"]),
        (WRITING["rnn"], ["state"]),
        (partial(of_features, 100), ["attention", "state"]),
    ],
    ids=["transformer", "additive", "rnn", "class token"],
)
def test_taps_of_every_kind_of_model(model: Callable[[], Any], taps: list[str], tmp_path: Path) -> None:
    made = model()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=D_MODEL**-0.5)
    report = exported(made, tmp_path / "bundle", taps=taps)
    subjects = {check.subject.split(", ")[1].split(".")[0] for check in report.checks if check.kind == "taps"}
    assert subjects == set(taps)


def test_a_class_token_stands_first(tmp_path: Path) -> None:
    """Whatever pads there are, and real positions behind it."""
    model = randomized(of_features()).float().eval()
    exported(model, tmp_path / "bundle", taps=["attention", "state"])
    patches, pad_mask = torch.randn(2, 5, 6), torch.tensor([[True] * 5, [False, False, True, True, False]])
    found = open_bundle(tmp_path / "bundle").tap(features=patches.numpy(), pad_mask=pad_mask.numpy())
    with torch.no_grad():
        logits = model(patches, pad_mask=pad_mask)
        hidden = model.encoder.stack.norm(torch.from_numpy(found["state.encoder.stack.blocks.0"]))
    assert hidden.shape[1] == 6
    assert_close(model.head(hidden[:, 0]), logits, "the logits of the class token")
    weights = found["attention.encoder.stack.blocks.0.mixer"]
    np.testing.assert_allclose(weights[1, :, 0, :3].sum(axis=-1), 1.0, rtol=1e-6)


def test_other_inputs_than_the_graph_takes_are_refused(tapped: Bundle) -> None:
    with pytest.raises(ValueError, match="take tokens, pad_mask; got source"):
        Opened(tapped.folder).tap(source=np.zeros((1, 1)))
