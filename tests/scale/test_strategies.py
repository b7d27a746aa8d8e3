"""The strategy does not change what is trained: two and four ranks against one process at the same global batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scale.cases import BLOCKS, CASES, DRAWS, FAST, LAYOUTS, SLOW
from scale.fits import fit
from scale.forked import on_ranks
from scale.kinds import KINDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


def assert_same(found: dict[str, Any], alone: dict[str, Any], tolerance: float = 1e-5) -> None:
    """The losses of all steps on every rank, the last weights, the scores, the predictions and what was read."""
    assert len(alone["losses"][0]) > 3 and found["weights"].keys() == alone["weights"].keys()
    for losses in found["losses"]:
        assert losses == pytest.approx(alone["losses"][0], rel=tolerance, abs=tolerance)
    for name, weight in found["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=tolerance, abs=tolerance), name
    assert found["scores"] == pytest.approx(alone["scores"], rel=1e-4, abs=tolerance)
    assert found["norm"] == pytest.approx(alone["norm"], rel=tolerance)
    assert found["num_tokens"] == alone["num_tokens"]
    assert [row["row"] for row in found["said"]] == [row["row"] for row in alone["said"]]
    assert _numbers(found["said"]) == pytest.approx(_numbers(alone["said"]), rel=1e-3, abs=tolerance)


def _numbers(value: Any) -> list[float]:
    """All decimal numbers in what JSON has."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [number for part in parts for number in _numbers(part)]


CHOSEN = [
    pytest.param(layout, case, id=f"{case}, {layout}", marks=() if case in FAST.get(layout, ()) else pytest.mark.slow)
    for layout in LAYOUTS
    for case in dict.fromkeys((*FAST.get(layout, ()), *SLOW[layout]))
]


@pytest.mark.parametrize(("layout", "case"), CHOSEN)
def test_a_strategy_trains_what_one_process_does(layout: str, case: str, files: Path) -> None:
    """To 1e-6 in float64. Where ranks draw their own random numbers, as many of DDP draw the same."""
    (ranks, tp), strategy = LAYOUTS[layout], layout.partition(" ")[0]
    readers = {"tp": 1, "fsdp2+tp": ranks // 2}.get(strategy, ranks)
    found = on_ranks(ranks, partial(CASES[case], files, strategy=strategy, tp=tp))
    if case in DRAWS and readers > 1:
        alone = on_ranks(readers, partial(CASES[case], files, strategy="ddp"))
    else:
        alone = CASES[case](files, batches=readers, compiled=False)
    assert_same(found, alone, 1e-5 if case in KINDS else 1e-6)
    if strategy == "fsdp2" and case in KINDS:
        assert max(found["held"]) < 1.1 / ranks
    if strategy == "tp" and case in BLOCKS:
        assert max(found["held"]) < 0.57  # norms and the biases of what is added are whole on each
    if case in ("translation", "frames") and readers == ranks:  # the last batch has a row for some ranks alone
        assert len(found["rows"]) == ranks and sorted(row for rows in found["rows"] for row in rows) == list(range(41))


@pytest.mark.parametrize("strategy", ["fsdp2", "tp"])
def test_a_fit_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(strategy: str, files: Path, tmp_path: Path) -> None:
    """And one process from the same file: it is as one process would have written it."""
    kind, file = "language modelling", tmp_path / "last.ckpt"
    first = on_ranks(2, partial(fit, files, kind, strategy, saved=file, max_steps=5))
    found = on_ranks(2, partial(fit, files, kind, strategy, resumed=file))
    whole = fit(files, kind, batches=1 if strategy == "tp" else 2)
    assert_same(found | {"losses": [first["losses"][0] + found["losses"][0]]}, whole)
    if strategy == "tp":
        alone = fit(files, kind, resumed=file)
        assert alone["losses"][0] == pytest.approx(found["losses"][0], rel=1e-5)
