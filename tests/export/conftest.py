"""Bundles of toy models. An export takes seconds: those that several tests read are made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from contracts.subjects import randomized
from export.test_encoder_bundles import OF_TEXT, WRITING, exported
from export.toys import Export, Exported, Shared, export_toy, shared_toy, toy
from once import once
from runtime.conftest import _bundle, _copy
from seqlab_data.tokenizers import CharTokenizer

__all__ = ["_bundle", "_copy"]


@pytest.fixture(scope="session", name="export")
def _export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    def export(mixer: Any, positions: Any, num_layers: int = 2) -> Exported:
        return export_toy(toy(mixer, positions, num_layers), tmp_path_factory.mktemp("export") / "bundle")

    return export


@pytest.fixture(scope="session", name="shared")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return cache(partial(shared_toy, factory=tmp_path_factory))


@pytest.fixture(scope="session", name="served")
def _served(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The bundle of a generator, translator, classifier, tagger, or of an encoder of tokens without classes."""

    def export(name: str) -> Path:
        if name == "generator":
            return shared("attention").folder
        models = {"translator": WRITING["rnn"], "classifier": OF_TEXT["bag of words"], "tagger": OF_TEXT["tagger"]}
        model = models.get(name, OF_TEXT["masked"])
        tokenizers = {"source_tokenizer": CharTokenizer("abcdefz")} if name == "translator" else {}

        def write(folder: Path) -> Path:
            exported(randomized(model()).float().eval(), folder / "bundle", **tokenizers)
            return folder / "bundle"

        return once(f"served-{name}", write, tmp_path_factory)

    return cache(export)
