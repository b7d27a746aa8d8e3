"""At first neither the tokens nor their positions drown the other, whatever the model and the encoding."""

from __future__ import annotations

import argparse
import json
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from contracts.test_completeness import concrete_subclasses
from seqlab.attention import Attention, Bidirectional
from seqlab.cli import fit
from seqlab.config.configs import MOVED, build, load_short_yaml
from seqlab.models import DecoderLM, Encoder, EncoderDecoder
from seqlab.nn import ScaledEmbedding, TypedEmbedding
from seqlab.positions import Learned, NoPositions, PositionalEncoding, RoPE, Sinusoidal
from seqlab.probes.attention_maps import AttentionMaps

SIZE, LENGTH = 50, 64
encoder = partial(Encoder, d_model=128, num_layers=1, mixer=partial(Attention, pattern=Bidirectional))
MODELS: dict[str, Any] = {
    "decoder": partial(DecoderLM, SIZE, LENGTH, d_model=128, num_layers=1),
    "encoder": partial(encoder, SIZE, LENGTH),
    "target": partial(EncoderDecoder, SIZE, SIZE, LENGTH, encoder=encoder, num_layers=1),
}
ABSOLUTE = [
    cls
    for cls in sorted(concrete_subclasses(PositionalEncoding), key=lambda cls: cls.__name__)
    if cls.acts_on == "embeddings" and cls is not NoPositions
]


@pytest.mark.parametrize("encoding", ABSOLUTE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_both_can_be_seen(name: str, encoding: type[PositionalEncoding]) -> None:
    model = MODELS[name](positions=encoding).eval()
    tokens = model.embedding(torch.randint(SIZE, (1, LENGTH)))
    told = model.positions.embed(tokens, torch.arange(LENGTH)[None]) - tokens
    assert 1 / 2 < tokens.square().mean().sqrt() / told.square().mean().sqrt() < 10


def begins(part: Any, at: float) -> None:
    """Every table of it is drawn with this standard deviation."""
    tables = [module for module in part.modules() if isinstance(module, nn.Embedding)]
    assert [table.weight.std().item() for table in tables] == [pytest.approx(at, rel=0.15)] * len(tables) != []


def test_tables_begin_as_their_papers_have_them() -> None:
    """Tokens that are not scaled, their types and their positions at 0.02 (GPT-2, BERT); what is scaled, and positions
    of features, at 1 / sqrt(d_model)."""
    for model in MODELS.values():
        learned = model(positions=Learned)
        begins(nn.ModuleList([learned.embedding, learned.positions]), 0.02)
        begins(model(positions=Sinusoidal).embedding, 128**-0.5)
    both = EncoderDecoder(SIZE, SIZE, LENGTH, encoder=partial(encoder, positions=Learned, embed=TypedEmbedding))
    begins(both.encoder, 0.02)
    begins(both.embedding, 128**-0.5)
    begins(encoder(7, LENGTH, positions=Learned, embed=nn.Linear), 128**-0.5)


def test_where_it_does_not_matter_each_model_does_as_its_paper() -> None:
    for positions in (NoPositions, RoPE):
        assert type(MODELS["decoder"](positions=positions).embedding) is nn.Embedding
        assert type(MODELS["encoder"](positions=positions).embedding) is ScaledEmbedding


@pytest.mark.parametrize("name", MODELS)
def test_what_is_asked_for_is_taken(name: str) -> None:
    assert type(MODELS[name](positions=Sinusoidal, embed=nn.Embedding).embedding) is nn.Embedding
    assert type(MODELS[name](positions=Learned, embed=ScaledEmbedding).embedding) is ScaledEmbedding


def stored(positions: str, **embed: Any) -> dict[str, Any]:
    """The config that a run stores for a language model."""
    init_args = {"d_model": 8, "mixer": "seqlab.recurrence.GRU", "positions": f"seqlab.positions.{positions}", **embed}
    model = {"class_path": "seqlab.models.DecoderLM", "init_args": init_args}
    return {
        "data": {"class_path": "seqlab_data.TextDataModule"},
        "model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": model}},
    }


@pytest.mark.parametrize(("former", "now"), MOVED.items())
def test_a_former_class_path_is_read(former: str, now: str) -> None:
    callbacks = load_short_yaml(json.dumps({"callbacks": [{"class_path": former, "rows": 4}]}))["callbacks"]
    assert callbacks == [{"class_path": now, "init_args": {"rows": 4}}]
    module, _, name = now.rpartition(".")
    assert hasattr(import_module(module), name)


def test_a_run_from_before_there_was_a_choice_is_as_it_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"vocab_size": 9, "seq_len": 8}
    assert type(build(stored("Sinusoidal"), told)[0].model.embedding) is nn.Embedding
    assert type(build(stored("Sinusoidal", embed=None), told)[0].model.embedding) is ScaledEmbedding

    callback = {"class_path": "seqlab.training.attention_maps.AttentionMaps"}
    config = stored("Sinusoidal") | {"trainer": {"callbacks": callback}}
    run = SimpleNamespace(config=config, id="1", last_checkpoint="last.ckpt")
    given: list[str] = []
    # The checkpoint is not read: what is asked is what the config is taken for.
    for name in ("check_trust", "check_fits", "weights_of"):
        monkeypatch.setattr(f"seqlab.trained.load.{name}", lambda *args: None)
    monkeypatch.setattr("seqlab.tracking.runs.find_run", lambda target, store: run)
    monkeypatch.setattr(
        "seqlab.checkpoints.io.read_checkpoint", lambda path, **_: {"seqlab": {"config": {}, "told": {}}}
    )
    monkeypatch.setattr(fit, "lightning", lambda verb, args, **_: given.extend(args))
    fit.resume.run(argparse.Namespace(target="1", trust=[], overrides=[]))
    read = json.loads(given[0].removeprefix("--config="))
    assert read["model"]["init_args"]["model"]["init_args"]["embed"] == "torch.nn.Embedding"
    assert read["trainer"]["callbacks"]["class_path"] == f"{AttentionMaps.__module__}.AttentionMaps"
