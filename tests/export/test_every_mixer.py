"""Every mixer in every precision for every target, exported in one process, in any order."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
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
def test_a_mixer_is_exported_in_every_precision_for_every_target(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One model of one layer, 15 bundles, each proven; about two minutes. Those of the mixers before were made in this
    process too."""
    monkeypatch.setattr(conformance, "MAX_SEQ_LEN", 16)
    for place in np.random.default_rng(torch.initial_seed()).permutation(len(CELLS)):
        precision, target = CELLS[place]
        model = conformance.model_of(MIXERS[name], Learned)
        report = export_bundle(
            model, conformance.TOKENIZER, tmp_path / f"{place}", seq_len=16, precision=precision, target=target
        )
        assert report.ok, (name, precision, target)
