"""Figures of the explanations against the stored numbers that they speak of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from repository.source_tree import ROOT
from seqlab.budgets.devices import DEVICES
from seqlab_studies import cost, memory, price, recall, sums
from seqlab_studies.book import STUDIES

FIGURE = re.compile(r"(?<!\w)\d[\d,]*(?:\.\d+)?%?(?!\w)")


@cache
def stored(name: str) -> Any:
    scales = json.loads((ROOT / f"docs/studies/{name}.json").read_text(encoding="utf-8"))["scales"]
    return scales[STUDIES[name].explained]


def value(name: str, case: str) -> Callable[[], float]:
    """Mean over the seeds of a case."""
    return lambda: fmean(seed[case] for seed in stored(name)["values"])


def rows(name: str, column: str, **of: Any) -> list[float]:
    """Numbers of a column in the stored rows with these values, in their order."""
    points = stored(name)["points"]
    return [row[column] for row in points if column in row and all(row.get(key) == one for key, one in of.items())]


def mean(name: str, column: str, **of: Any) -> Callable[[], float]:
    return lambda: fmean(rows(name, column, **of))


def gap(model: str) -> Callable[[], float]:
    """Nats that reading its own words costs a model at a position."""
    places = {row["position"] for row in stored("exposure")["points"] if "position" in row}
    return lambda: fmean(fmean(rows("exposure", "value", case=model, position=place)) for place in places)


def bleu(model: str) -> float:
    points = [row for row in stored("exposure")["points"] if not {"position", "after"} & row.keys()]
    return fmean(row["value"] for row in points if row["case"] == model)


def follows() -> list[float]:
    return rows("state-tracking", "right", model="GRU", length=48)


def right_to(model: str) -> float:
    """Longest strings of which a model gets 99 in 100 right."""
    lengths = {row["length"] for row in stored("state-tracking")["points"]}
    return max(at for at in lengths if mean("state-tracking", "right", model=model, length=at)() >= 0.99)


def printed(case: str, place: int) -> Callable[[], float]:
    return lambda: float(price.printed_and_ours()[case][place])


def constant(number: float) -> Callable[[], float]:
    """A number that is not measured: a size, or a threshold of the task."""
    return lambda: number


OWN = ", own words too"
FIGURES: dict[str, list[Callable[[], float]]] = {
    "bottleneck": [value("bottleneck", "twice the vector")],
    "cost": [constant(6), constant(6 * cost.WIDTH), constant(2)],
    "exposure": [
        *(value("exposure", f"{name}, thrown") for name in ("RNN", "Transformer")),
        *(gap(name) for name in (f"RNN{OWN}", "RNN", f"Transformer{OWN}", "Transformer")),
        *(lambda name=name: bleu(name) for name in (f"RNN{OWN}", "RNN")),
    ],
    "heads": [value("heads", "from one head to 8")],
    "long-dates": [mean("long-dates", "right", model=name, length=26) for name in ("Sinusoidal", "Learned")],
    "longer": [lambda: 6 * value("longer", "ALiBi")()],
    "look-up": [constant(1)],
    "memory": [
        constant(100),
        lambda: sum(error <= memory.LEARNT.high for error in rows("memory", "error", trained="LSTM over 100 steps")),
        lambda: stored("memory")["seeds"],
    ],
    "price": [
        lambda: printed("work of 45 days at 5% with attention", 0)() / 90,
        constant(0.90),
        *(constant(5120), lambda: DEVICES["A100"].half / 1e12, printed("cores where 312 TFLOP/s are", 1)),
    ],
    "recall": [lambda: recall.PAIRS * (recall.SYMBOLS - 1).bit_length()],
    "saturation": [constant(0), constant(1)],
    "scale-of-scores": [
        *(constant(64), value("scale-of-scores", "trained, d_k 64")),
        *(constant(256), value("scale-of-scores", "trained, d_k 256")),
    ],
    "shuffled": [value("shuffled", "translation, Transformer")],
    "state-tracking": [
        constant(48),
        *(lambda seed=seed: follows()[seed] for seed in range(3)),
        *(lambda: stored("state-tracking")["seeds"], lambda: right_to("LSTM")),
    ],
    "sums": [constant(10**4), lambda: 64 * 1500 / sums.TRAINED / 10**4],
}
"""Numbers that the figures of an explanation speak of, in their order."""


@pytest.mark.parametrize("name", STUDIES)
def test_each_figure_of_an_explanation_is_that_of_the_stored_numbers(name: str) -> None:
    said = [figure.rstrip(",") for figure in FIGURE.findall(STUDIES[name].why)]
    numbers = [of() for of in FIGURES.get(name, [])]
    assert len(said) == len(numbers), said
    for figure, number in zip(said, numbers, strict=True):
        digits = len(figure.rstrip("%").partition(".")[2])
        shown = f"{number:.{digits}%}" if figure.endswith("%") else f"{number:,.{digits}f}"
        assert shown == figure, number
