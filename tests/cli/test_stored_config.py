"""A fit whose run could not be loaded again does not begin."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import lightning as L
import pytest
import yaml
from jsonargparse import ArgumentParser

from cli.conftest import TINY, Seqlab, write_text
from seqlab.config.stored_config import check_reads_back

MODULE = """
from collections.abc import Callable

from torch import nn

from seqlab.mixer import Mixer
from seqlab.recurrence import GRU


class AnInstance(GRU):
    def __init__(self, d_model: int, layer: int = 0, *, act=nn.ReLU()):
        super().__init__(d_model, layer)


class ListsLast(GRU):
    def __init__(
        self, d_model: int, layer: int = 0, *, inner: Callable[[int], Mixer] | list[Callable[[int], Mixer]] = GRU
    ):
        super().__init__(d_model, layer)
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["AnInstance"], "mixer.init_args.act is ReLU() and would be stored as 'Unable to serialize"),
        (["ListsLast", "--model.model.mixer.inner=[GRU, LSTM]"], "mixer.inner: "),
    ],
)
def test_what_is_not_stored_as_it_is_is_named(
    options: list[str],
    said: str,
    tmp_path: Path,
    inside: Callable[[Path], Seqlab],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "unstored.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    write_text(tmp_path)
    mixer, *others = options
    fit = ["fit", "--config", "lm/gru", *TINY, f"--model.model.mixer=unstored.{mixer}", *others]
    (line,) = inside(tmp_path)(*fit, code=2).stderr.strip().splitlines()
    assert line.startswith("seqlab: a run of this config could not be loaded again: ") and said in line
    assert not list(tmp_path.glob("mlruns/*/*"))


def test_reading_it_back_leaves_it_as_it_is() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(L.Trainer, "trainer", instantiate=False, fail_untyped=False)
    callbacks = [{"class_path": "lightning.pytorch.callbacks.LearningRateMonitor"}]
    given = parser.parse_object({"trainer": {"callbacks": callbacks}})
    stored = yaml.safe_load(parser.dump(given, format="yaml"))
    kept = deepcopy(stored)
    check_reads_back(parser, stored, given)
    assert stored == kept
