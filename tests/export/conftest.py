"""Bundles of toy models. An export takes seconds: those that several tests read are made once a process."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import pytest

from export.toys import Export, Exported, Shared, export_toy, toy
from seqlab.attention import Attention
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU

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
