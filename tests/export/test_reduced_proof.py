"""The reduced proof of a large model: fewer cases that find the same defects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from export.planted import Edit, edit_graph, failed, with_logits_times_where, with_statement
from export.test_defects import GRAPH_DEFECTS
from export.test_reach import WRONG_SIZES
from export.toys import toy
from runtime.conftest import Bundle, Copy
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.capture.plan import MOST_WEIGHTS, plan_export
from seqlab_export.proof.rounding import draws_of
from seqlab_export.runner import cases
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.verify import verify_bundle

slow = pytest.mark.slow
NOT_READ: list[tuple[str, str, Edit, set[str]]] = [
    # docs/bundle.md says in its table which lengths a reduced proof does not read.
    ("gru", "model.onnx", with_logits_times_where(1, "Equal", 63), set()),
    ("gru", "model.onnx", with_logits_times_where(0, "Equal", 7), set()),
]
DEFECTS: list[tuple[str, str, Edit, set[str]]] = [
    *GRAPH_DEFECTS,
    *(("gru", *defect) for defect in WRONG_SIZES),
    *NOT_READ,
]
FAST = (1, 13)


@pytest.mark.parametrize(
    ("name", "file", "edit", "expected"),
    [pytest.param(*case, marks=[] if place in FAST else slow) for place, case in enumerate(DEFECTS)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_finds_what_the_full_proof_finds(name: str, file: str, edit: Edit, expected: set[str], copy: Copy) -> None:
    edit_graph(folder := copy(f"reduced {name}"), file, edit)
    assert failed(folder) == expected


@pytest.mark.parametrize(("more", "proof"), [(0, "full"), (1, "reduced")])
def test_a_model_of_more_than_2_to_22_weights_has_it(more: int, proof: str) -> None:
    model = toy(GRU, NoPositions, 1)
    num_weights = sum(given.numel() for given in model.parameters())
    model.register_parameter("more", torch.nn.Parameter(torch.zeros(2**22 - num_weights + more)))
    assert plan_export(model, None, seq_len=32).stated["proof"] == proof and MOST_WEIGHTS == 2**22


def test_it_takes_a_fifth_of_the_cells(bundle: Bundle) -> None:
    def num_tokens(name: str) -> int:
        reduced = load_manifest(bundle(name)).proof == "reduced"
        masks = dict(cases.cases(None, reduced=reduced))
        return sum(masks[case].size for _, case in cases.cells(masks, None, reduced=reduced))

    full, reduced = (verify_bundle(bundle(name)) for name in ("gru", "reduced gru"))
    assert full.ok and reduced.ok
    assert num_tokens("reduced gru") * 5 < num_tokens("gru") and len(reduced.checks) < len(full.checks) / 1.5


@pytest.mark.parametrize(
    ("sizes", "read"),
    [
        (lambda: [mask.shape for _, mask in cases.cases(None, reduced=True)], [(5, n) for n in (1, 2, 16, 17, 64)]),
        (lambda: [mask.shape for _, mask in cases.long_cases(2048, reduced=True)], [(1, 1024)]),
        (lambda: cases.one_call_lengths(300, reduced=True), [17, 33, 65, 129, 257, 299, 300]),
        (lambda: [draws_of(size, reduced=True) for size in (1, 40, 53, 54, 80, 81, 10**6)], [4, 4, 3, 2, 2, 1, 1]),
    ],
)
def test_its_cases(sizes: Callable[[], list[object]], read: list[object]) -> None:
    assert sizes() == read


def test_it_reads_one_case_in_batches_of_all_sizes() -> None:
    masks = dict(cases.cases(None, reduced=True))
    cells = [*cases.cells(masks, None, reduced=True)]
    assert cells[:5] == [(5, name) for name in masks]
    assert [size for size, name in cells[5:] if name == "length 2, padded"] == [1, 2, 9, 3, 4, 5, 8, 10, 16, 33]


def test_a_bundle_that_hides_it_is_refused(copy: Copy) -> None:
    with_statement(proof="full")(folder := copy("reduced gru"))
    assert failed(folder) == {"statements"}
