"""Bundles of toy models. An export takes seconds: those that several tests read are made once a process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contracts.subjects import randomized
from export.test_encoder_bundles import OF_TEXT, WRITING, exported
from export.toys import Export, Exported, Shared, export_toy, toy
from seqlab.attention import Attention
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import CharTokenizer

# A capture writes thousands of records there for pytest to keep.
logging.getLogger("torch.__trace").setLevel(logging.WARNING)


@pytest.fixture(scope="session", name="export")
def _export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    def export(mixer: Any, positions: Any, num_layers: int = 2) -> Exported:
        return export_toy(toy(mixer, positions, num_layers), tmp_path_factory.mktemp("export") / "bundle")

    return export


@pytest.fixture(scope="session", name="shared")
def _shared(export: Export) -> Shared:
    models = {"attention": (Attention, RoPE), "gru": (GRU, NoPositions)}
    return cache(lambda name: export(*models[name]))


@pytest.fixture(scope="session", name="served")
def _served(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The bundle of a generator, translator, classifier, tagger, or of an encoder of tokens without classes."""

    def export(name: str) -> Path:
        if name == "generator":
            return shared("attention").folder
        folder = tmp_path_factory.mktemp(name) / "bundle"
        models = {"translator": WRITING["rnn"], "classifier": OF_TEXT["bag of words"], "tagger": OF_TEXT["tagger"]}
        model = models.get(name, OF_TEXT["masked"])
        tokenizers = {"source_tokenizer": CharTokenizer("abcdefz")} if name == "translator" else {}
        exported(randomized(model()).float().eval(), folder, **tokenizers)
        return folder

    return cache(export)
