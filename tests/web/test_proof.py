"""The web runtime proves what Python proves, check for check, and refuses what was spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.planted import (
    Edit,
    edit_graph,
    flip,
    prove_less,
    reseal,
    round_weights,
    start_elsewhere,
    with_golden,
    with_statement,
    with_tokenizer,
)
from export.test_defects import GRAPH_DEFECTS, WRONG_GREEDY
from export.test_reach import WRONG_SIZES
from export.toys import Shared
from runtime.conftest import Bundle, Copy
from seqlab_export.reports import parity
from seqlab_export.reports.parity import parity_of_bundle
from seqlab_export.runner import program
from seqlab_export.runner.verify import verify_bundle
from web.programs import build, refusal, run

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def proven(folder: Path) -> dict[str, Any]:
    """The report of `tools/verify.ts`, whose exit code says the same."""
    done = run("tools/verify.ts", folder)
    assert done.returncode in (0, 1) and not done.stderr, done
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return report


def failures(folder: Path) -> list[tuple[str, str]]:
    """Kinds and subjects of the checks that fail."""
    return [(check["kind"], check["subject"]) for check in proven(folder)["checks"] if not check["ok"]]


def failed(folder: Path) -> set[str]:
    return {kind for kind, _ in failures(folder)}


@pytest.mark.parametrize(
    "name",
    [
        "gru",
        "reduced gru",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("attention", "attentive translator", "tagger", "fp16", "bf16", "int8", "int4", "fused")
        ),
    ],
)
def test_the_same_checks(name: str, bundle: Bundle) -> None:
    """Each with the limit that Python has, and an error that is not far from Python's."""
    expected, found = verify_bundle(bundle(name)), proven(bundle(name))
    assert expected.ok and found["ok"]
    ours = sorted(found["checks"], key=lambda check: (check["kind"], check["subject"]))
    theirs = sorted(expected.checks, key=lambda check: (check.kind, check.subject))
    assert [(one["kind"], one["subject"]) for one in ours] == [(one.kind, one.subject) for one in theirs]
    assert [one["limit"] for one in ours] == [one.limit for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if other.limit:
            assert one["error"] == pytest.approx(other.error, abs=other.limit / 2), one
    assert expected.divergence is not None
    assert found["divergence"] == pytest.approx(expected.divergence, rel=0.5, abs=1e-6)


ONE_OF_A_KIND = {(defect[0], *sorted(defect[-1])): defect for defect in reversed(GRAPH_DEFECTS)}
"""A defect for each bundle and set of checks: the graphs are the same that tests/export spoils."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "edit", "expected"),
    [*ONE_OF_A_KIND.values(), *(("gru", *wrong) for wrong in WRONG_SIZES[1:4:2])],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_graph_is_found(copy: Copy, name: str, file: str, edit: Edit, expected: set[str]) -> None:
    """The last two are wrong at some lengths, or in one batch."""
    folder = copy(name)
    edit_graph(folder, file, edit)
    assert failed(folder) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (round_weights, {"weights"}),
        (start_elsewhere, {"prefill", "chunks", "step", "long"}),
        (with_tokenizer(alphabet="abcdeg "), {"texts"}),
        (with_golden("tokenizer/special", change=lambda ids: ids + 1), {"texts"}),
        *((wrong, {"greedy"}) for wrong in WRONG_GREEDY.values()),
    ],
    ids=["weights", "state", "texts", "special", *WRONG_GREEDY],
)
def test_another_start_weight_or_text_is_found(spoil: Callable[[Path], None], expected: set[str], copy: Copy) -> None:
    folder = copy("gru")
    spoil(folder)
    assert failed(folder) == expected


@pytest.mark.parametrize("file", ["model.onnx", "step.onnx", "weights.bin", "golden.npz", "tokenizer/tokenizer.json"])
def test_one_flipped_bit_is_found_in_any_file(copy: Copy, file: str) -> None:
    folder = copy("attention")
    flip(folder / file)
    assert failures(folder) == [("files", file)]
    assert refusal(folder) == f"this bundle is not as it was written: {file}: its sha256 is not the manifest's"


@pytest.mark.slow
def test_a_golden_file_that_proves_less_is_found_and_a_compressed_one_refused(copy: Copy) -> None:
    prove_less(folder := copy("gru"))
    assert {subject for _, subject in failures(folder)} == {f"batch {size}, length 17" for size in (1, 2, 9)}
    with np.load(folder / "golden.npz") as file:
        np.savez_compressed(folder / "golden.npz", allow_pickle=False, **dict(file))
    reseal(folder)
    done = run("tools/verify.ts", folder)
    assert done.returncode == 2
    assert done.stderr == "the golden file is compressed, or would unpack to more than it is long\n"


@pytest.mark.parametrize(
    "spoil",
    [
        with_golden("greedy/likeliest", "greedy/logits", change=lambda best: best[..., :1]),
        with_golden("greedy/likeliest", change=lambda best: best + 1000),
    ],
    ids=["one", "outside"],
)
def test_a_golden_file_without_two_likeliest_tokens_is_refused(spoil: Callable[[Path], None], copy: Copy) -> None:
    spoil(folder := copy("gru"))
    said = "greedy/likeliest of the golden file holds no two tokens of the vocabulary"
    with pytest.raises(ValueError, match=said):
        verify_bundle(folder)
    done = run("tools/verify.ts", folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{said}\n")


@pytest.mark.slow
def test_wrong_statements_are_found(copy: Copy) -> None:
    folder = copy("gru")
    with_statement(seq_len=31, first_call=1.0)(folder)
    assert refusal(folder).endswith("first_call must be a whole number from 1 to 2^40, got 1")
    with_statement(seq_len=31, first_call=1)(folder)
    assert failures(folder) == [("statements", "seq_len")]


@pytest.mark.slow
def test_the_parity_matrix_has_its_cell(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "WEB_PROOF", build("tools/verify.ts"))
    monkeypatch.setattr(parity, "WEBGPU_PROOF", Path("no-such-program"))
    monkeypatch.setattr(program, "BUILT", Path("no-such-program"))
    cells = {cell.runtime: cell for cell in parity_of_bundle("a name", shared("gru").folder, None)}
    found, expected = cells["onnxruntime-web, wasm"], cells["onnxruntime CPU, Python"]
    assert found.ok and found.greedy == expected.greedy and found.error and expected.limit
    assert found.error < expected.limit
    assert cells["onnxruntime-web, WebGPU"].missing.startswith("not run: ")
