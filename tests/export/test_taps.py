"""Attention weights and hidden states of the deployed graph are those of the model that was trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from contracts.subjects import randomized
from export.planted import constants, edit_graph, failed, written_in_place_of
from export.test_encoder_bundles import D_MODEL, OF_TEXT, SEQ_LEN, WRITING, C, encoder, exported
from export.test_targets import Bundle
from export.toys import TOKENIZER, toy
from repository.source_tree import python_blocks
from seqlab.attention import Attention
from seqlab.attention.recorded import recorded_weights
from seqlab.models import Classifier
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.proof.taps import check_taps
from seqlab_export.runner.graph_runner import Bundle as Opened
from seqlab_export.runner.graph_runner import open_bundle
from tolerances import assert_close
from web.test_proof import failed as failed_in_web

OPTIONS: dict[str, Any] = {"run_id": "", "commit": "", "seq_len": 32}


@pytest.fixture(scope="module", name="tapped")
def _tapped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bundle]:
    @cache
    def tapped() -> Bundle:
        model, folder = toy(Attention, RoPE), tmp_path_factory.mktemp("taps") / "bundle"
        report = export_bundle(model, TOKENIZER, folder, taps=["attention", "state"], **OPTIONS)
        assert sum(check.kind == "taps" for check in report.checks) == 12  # of two layers at three lengths
        return Bundle(model, folder)

    return tapped


@pytest.mark.slow
def test_taps_are_given_as_the_page_shows(tapped: Callable[[], Bundle]) -> None:
    tokens = np.array([[3, 4, 5]])
    (shown,) = (block for block in python_blocks("docs/bundle.md") if ".tap(" in block)
    given = {"tokens": tokens, "pad_mask": tokens > 0}
    exec(shown.replace('"DIR"', repr(str(tapped().folder))), given)
    assert "state.stack.blocks.1" in given["found"]


@pytest.mark.slow
def test_taps_are_what_the_model_attends_to_and_holds(tapped: Callable[[], Bundle]) -> None:
    model, folder = tapped()
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


@pytest.mark.slow
def test_wrong_taps_are_found(tapped: Callable[[], Bundle]) -> None:
    model, folder = tapped()
    path = folder / "taps.onnx"
    graph, before = onnx.load(path, load_external_data=False), path.read_bytes()
    name = "attention.stack.blocks.1.mixer"
    for node in graph.graph.node:
        node.output[:] = ["right" if output == name else output for output in node.output]
    graph.graph.node.append(helper.make_node("Transpose", ["right"], ["turned"], perm=[0, 1, 3, 2]))
    graph.graph.node.append(helper.make_node("Identity", ["turned"], [name]))
    path.write_bytes(graph.SerializeToString())
    checks = [*check_taps(model, ["attention", "state"], folder, precision="fp32", provider="cpu")]
    path.write_bytes(before)
    assert {check.subject.split(", ")[1] for check in checks if not check.ok} == {name}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.5, 1 + 1e-6])
def test_taps_that_are_not_the_file_that_was_written_are_found(
    factor: float, tapped: Callable[[], Bundle], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tapped().folder, tmp_path / "bundle"))
    assert not failed(folder)

    def edit(model: onnx.ModelProto) -> None:
        constants(model, factor=factor)
        node = helper.make_node("Mul", ["right", "factor"], ["state.stack.blocks.1"])
        written_in_place_of(model, "state.stack.blocks.1", [node], "right")

    edit_graph(folder, "taps.onnx", edit)
    assert failed(folder) == failed_in_web(folder) == {"twin"}


def of_features(pool: Any = "mean", longest: int = SEQ_LEN) -> Classifier:
    return Classifier(6, C, longest, encoder=encoder(embed=nn.Linear), pool=pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "taps"),
    [
        (WRITING["transformer"], ["attention", "state"]),
        (WRITING["additive"], ["attention"]),
        (WRITING["rnn"], ["state"]),
        (OF_TEXT["classifier"], ["attention", "state"]),
        (OF_TEXT["tagger"], ["state"]),
        (of_features, ["attention", "state"]),
        (partial(of_features, "class", 100), ["attention", "state"]),
    ],
    ids=["transformer", "additive", "rnn", "classifier", "tagger", "features", "class token"],
)
def test_taps_of_every_kind_of_model(model: Callable[[], Any], taps: list[str], tmp_path: Path) -> None:
    made = model()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=D_MODEL**-0.5)
    report = exported(made, tmp_path / "bundle", taps=taps)
    subjects = {check.subject.split(", ")[1].split(".")[0] for check in report.checks if check.kind == "taps"}
    assert subjects == set(taps)


@pytest.mark.slow
def test_a_class_token_stands_first(tmp_path: Path) -> None:
    """Whatever pads there are, and real positions behind it."""
    model = randomized(of_features("class")).float().eval()
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


def test_a_bundle_without_taps_says_how_to_have_some(shared: Any) -> None:
    with pytest.raises(ValueError, match="has no taps; export it with --taps attention,state"):
        Opened(shared("gru").folder).tap(tokens=np.zeros((1, 1)), pad_mask=np.ones((1, 1)))


@pytest.mark.slow
def test_other_inputs_than_the_graph_takes_are_refused(tapped: Callable[[], Bundle]) -> None:
    with pytest.raises(ValueError, match="take tokens, pad_mask; got source"):
        Opened(tapped().folder).tap(source=np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("mixer", "options", "message"),
    [
        (Attention, {"taps": ["weights"]}, "a tap is one of attention, state, got 'weights'"),
        (GRU, {"taps": ["attention"]}, "tap attention finds nothing in this model, a DecoderLM; leave it out"),
        (GRU, {"taps": ["state"], "precision": "int8"}, "taps are of fp32, fp16 and bf16 bundles; this one is int8"),
    ],
)
def test_what_cannot_be_tapped_is_refused(mixer: Any, options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_bundle(toy(mixer, NoPositions), TOKENIZER, tmp_path / "bundle", **OPTIONS, **options)
    assert not any(tmp_path.iterdir())
