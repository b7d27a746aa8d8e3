"""A fit goes on from a checkpoint in another layout at an epoch's end, and in its own anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scale.kinds import write_files
from scale.on_ranks import on_ranks
from scale.resumed import go_on

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
ONE = ("auto", None)


def assert_same(found: dict[str, Any], alone: dict[str, Any]) -> None:
    assert len(found["losses"]) == len(alone["losses"]) and found["weights"].keys() == alone["weights"].keys()
    for name in ("losses", "moments"):
        assert found[name] == pytest.approx(alone[name], rel=1e-5, abs=1e-5)
    for name, weight in found["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=1e-5, abs=1e-5), name


@pytest.mark.slow
def test_fsdp2_ddp_and_tp_in_turns_train_what_one_process_does(
    plain: dict[str, Any], files: Path, tmp_path: Path
) -> None:
    alone = go_on(files, tmp_path, ONE, 3, rows=10)
    assert len(alone["losses"]) == 9
    assert_same(plain["in turns"], alone)


def test_a_fit_in_shards_that_is_killed_and_goes_on_is_the_one_that_was_not(plain: dict[str, Any]) -> None:
    found = plain["killed, fsdp2"]
    assert found["losses"] and found["weights"] and found["moments"]
    assert "in the middle of an epoch by fsdp2 over 2 processes" in found["refused"]
    assert "not by ddp over 2 processes" in found["refused"]


@pytest.mark.slow
def test_so_is_one_in_tp(tmp_path: Path) -> None:
    write_files(tmp_path)
    found = on_ranks(2, tmp_path, ["killed, tp"])["killed, tp"]
    assert found["losses"] and found["weights"] and found["moments"]
    assert "the checkpoint was trained with batch_size 10, this data has batch_size 5" in found["refused"]


@pytest.mark.slow
def test_two_ranks_then_one_then_four_then_two(files: Path, tmp_path: Path) -> None:
    """FSDP2, one process, FSDP2 and TP at once, and TP alone."""
    alone = go_on(files, tmp_path, ONE, 4, rows=8)
    turns = {"first in fsdp2": 2, "second in one process": 1, "third in fsdp2+tp": 4, "fourth in tp": 2}
    found = [on_ranks(ranks, files, [name])[name] for name, ranks in turns.items()]
    assert_same(found[-1] | {"losses": [loss for part in found for loss in part["losses"]]}, alone)
