"""Every mixer in a precision for a target: each pair of these occurs, and all are exported in one process."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
import torch

from seqlab.positions import Learned
from seqlab.recurrence import RWKV7
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import Target
from seqlab_export.matrices import conformance

MIXERS = {name: mixer for name, mixer in conformance.all_mixers().items() if not name.startswith("Attention, ")}
MIXERS["RWKV7"] = partial(RWKV7, head_dim=conformance.D_MODEL // 2)
CELLS = [*product(get_args(Precision), get_args(Target))]


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_is_exported_in_a_precision_for_a_target(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The seed of the session chooses which."""
    monkeypatch.setattr(conformance, "MAX_SEQ_LEN", 16)
    precision, target = CELLS[([*MIXERS].index(name) + torch.initial_seed()) % len(CELLS)]
    model = conformance.model_of(MIXERS[name], Learned)
    options = {"seq_len": 16, "precision": precision, "target": target}
    assert export_bundle(model, conformance.TOKENIZER, tmp_path / "bundle", **options).ok
