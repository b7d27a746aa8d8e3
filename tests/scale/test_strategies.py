"""Whatever the strategy, what is trained is the same: two and four ranks against one process at the same global batch.

A plain run compares what one torchrun of two ranks has found (`scale.cases.PLAIN`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scale.cases import AVERAGED, BLOCKS, CASES, CLIPS, DRAWS, OF_CUDA, OF_RANKS, RESUMED, of_blocks
from scale.fits import fit
from scale.kinds import KINDS

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
CLOSE = 1e-5


def assert_same(found: dict[str, Any], alone: dict[str, Any], tolerance: float = CLOSE) -> None:
    """The losses of all steps on every rank, the last weights, the scores and the tokens that were read."""
    assert len(alone["losses"][0]) > 3 and found["weights"].keys() == alone["weights"].keys()
    for losses in found["losses"]:
        assert losses == pytest.approx(alone["losses"][0], rel=tolerance, abs=tolerance)
    for name, weight in found["weights"].items():
        assert weight == pytest.approx(alone["weights"][name], rel=tolerance, abs=tolerance), name
    assert found["scores"] == pytest.approx(alone["scores"], rel=1e-4, abs=tolerance)
    assert found["num_tokens"] == alone["num_tokens"]
    assert [row["row"] for row in found["said"]] == [row["row"] for row in alone["said"]]
    assert _numbers(found["said"]) == pytest.approx(_numbers(alone["said"]), rel=1e-3, abs=tolerance)


def _numbers(value: Any) -> list[float]:
    """All decimal numbers in what JSON has."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [number for part in parts for number in _numbers(part)]


@pytest.mark.parametrize("kind", KINDS)
def test_fsdp2_trains_what_one_process_does(kind: str, plain: dict[str, Any], files: Path) -> None:
    found = plain[f"{kind}, fsdp2"]
    assert max(found["held"]) < 0.55
    assert_same(found, plain[f"{kind}, ddp"] if kind in DRAWS else fit(files, kind, batches=2))


@pytest.mark.parametrize("name", ["RNNSeq2Seq", "LSTM", "Mamba"])
def test_fsdp2_trains_recurrences(name: str, plain: dict[str, Any], files: Path) -> None:
    """PyTorch keeps their weights in a list beside. The slow cases have every mixer."""
    assert_same(plain[f"{name}, fsdp2"], CASES[f"{name}, fsdp2"](files, strategy="auto", batches=2))


@pytest.mark.parametrize("kind", ["translation", "classification"])
def test_ddp_trains_what_one_process_does_with_unevenly_padded_rows(
    kind: str, plain: dict[str, Any], files: Path
) -> None:
    assert_same(plain[f"{kind}, ddp"], fit(files, kind, batches=2))


def test_every_row_is_seen_once_an_epoch(plain: dict[str, Any]) -> None:
    """Also where the last batch has a row for one rank alone."""
    for name, num_rows in {"translation, fsdp2": 41, "translation, ddp": 41, "frames, fsdp2": 41}.items():
        ranks = plain[name]["rows"]
        assert len(ranks) == 2 and sorted(ranks[0] + ranks[1]) == list(range(num_rows)), name


@pytest.mark.parametrize("blocks", BLOCKS)
def test_tensor_parallel_trains_what_one_process_does(blocks: str, plain: dict[str, Any], files: Path) -> None:
    """In float64, to 1e-6 a step; also dropout, whose draws are the same on both ranks, and the same as alone."""
    found = plain[f"{blocks}, tp"]
    assert max(found["held"]) < 0.57  # norms and the biases of what is added are whole on each
    assert_same(found, of_blocks(blocks)(files), 1e-6)


@pytest.mark.parametrize("kind", ["masked", "translation"])
def test_tensor_parallel_draws_and_writes_what_one_process_does(kind: str, plain: dict[str, Any], files: Path) -> None:
    assert_same(plain[f"{kind}, tp"], fit(files, kind))


@pytest.mark.parametrize(
    "case", ["clipped by norm, fsdp2", "clipped by norm, tp", "clipped by value, tp", "foreach, tp"]
)
def test_gradients_are_clipped_as_those_of_one_process(case: str, plain: dict[str, Any], files: Path) -> None:
    name, _, strategy = case.partition(", ")
    given: dict[str, Any] = CLIPS.get(name.removeprefix("clipped by "), {"options": OF_CUDA})
    alone = of_blocks("parts of heads", batches=1 if strategy == "tp" else 2, **given)(files)
    assert_same(plain[case], alone, 1e-6)
    if name == "clipped by norm":
        assert plain[case]["norm"] == pytest.approx(alone["norm"], rel=1e-6)


@pytest.mark.parametrize("strategy", ["fsdp2", "tp"])
def test_weights_are_averaged_as_those_of_one_process(strategy: str, plain: dict[str, Any], files: Path) -> None:
    alone = of_blocks("heads", batches=1 if strategy == "tp" else 2, **AVERAGED)(files)
    assert_same(plain[f"averaged, {strategy}"], alone, 1e-6)


@pytest.mark.parametrize("strategy", ["fsdp2", "tp"])
def test_a_fit_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(
    strategy: str, plain: dict[str, Any], files: Path
) -> None:
    """And one process from the same file: it is as one process would have written it."""
    found, batches = plain[f"resumed, {strategy}"], 1 if strategy == "tp" else 2
    whole = fit(files, "language modelling", batches=batches)
    assert_same(found | {"losses": [found["first"]["losses"][0] + found["losses"][0]]}, whole)
    if strategy == "tp":
        alone = fit(files, "language modelling", resumed=Path(found["checkpoint"]))
        assert alone["losses"][0] == pytest.approx(found["losses"][0], rel=CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", OF_RANKS)
@pytest.mark.parametrize("case", [case for case in CASES if case not in RESUMED and not case.startswith("resumed")])
def test_every_case(case: str, ranks: int, request: pytest.FixtureRequest, files: Path) -> None:
    """Every task and block under every strategy, against one process at the same global batch; where ranks draw their
    own random numbers, against as many of DDP."""
    name, _, strategy = case.partition(", ")
    if strategy not in OF_RANKS[ranks]:
        pytest.skip(f"{strategy} is not tried with {ranks} ranks")
    found = {2: "all_of_two", 4: "all_of_four"}
    readers = {"tp": 1, "fsdp2+tp": ranks // 2}.get(strategy, ranks)
    if name in DRAWS and readers > 1:
        alone = request.getfixturevalue(found[readers])[f"{name}, ddp"]
    else:
        alone = CASES[case](files, strategy="auto", tp=None, batches=readers, compiled=False)
    assert_same(request.getfixturevalue(found[ranks])[case], alone)
