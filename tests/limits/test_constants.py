"""Constants that decide, each at its own value and at the next: the product's own value, never a smaller one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest
import torch
import yaml
from matplotlib.figure import Figure
from requests.adapters import HTTPAdapter
from torch.distributed.constants import default_pg_timeout

from limits.edge import Edge
from seqlab import cli
from seqlab.batch import IGNORE
from seqlab.callbacks.rank_watchdog import TORCHS
from seqlab.cli import shown
from seqlab.cli.submit import sbatch_script
from seqlab.comparison import examples, lengths
from seqlab.files.plain_values import load_quickly
from seqlab.nn import fla
from seqlab.sweeps.plan import make_plan
from seqlab.tasks.drawings import AttentionMap, attention_maps, confusion_matrix
from seqlab.tasks.large_vocabulary import Logits
from seqlab.tracking import bounded_answers
from seqlab.tracking.params import _cut, accepted
from seqlab.tracking.readable import _searched
from seqlab.trained.foreign_logits import ForeignLogits
from seqlab_export.capture.weights import WeightFile
from seqlab_export.passes import int8_products
from seqlab_export.proof.rounding import draws_of
from seqlab_export.runner import cases


def time_of_a_job(given: str) -> None:
    try:
        sbatch_script(["lm/gru"], ["--trainer.devices=1"], 1, 1, given)
    except ValueError as refused:
        if "submit sets --trainer.devices itself" not in str(refused):  # refused right after the time
            raise


def pages(count: int) -> None:
    """A server whose search has so many pages of runs."""
    tokens = iter([*map(str, range(count - 1)), None])

    class Page(list[object]):
        token = None

    def search_runs(*args: Any, **options: Any) -> Page:
        page = Page()
        page.token = cast(Any, next(tokens))
        return page

    store: Any = SimpleNamespace(uri="s", calls=lambda **_: nullcontext(SimpleNamespace(search_runs=search_runs)))
    list(_searched(store, ["0"], ""))


def answers(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_answers._ASKED, "times", count - 1, raising=False)
        patch.setattr(HTTPAdapter, "send", lambda *_, **__: SimpleNamespace(iter_content=lambda _: []))
        bounded_answers.BoundedAdapter().send(cast(Any, SimpleNamespace(method="GET", body=None)))


def slow_file(at: tuple[float, int]) -> None:
    """A file of which so many bytes come in so many seconds."""
    seconds, size = at
    clock, chunks = iter([0.0, seconds, seconds]), iter([bytes(size), b""])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(clock))
        _read_file(lambda: next(chunks))


def room(free: int) -> None:
    """A file that arrives where so many bytes are free."""
    chunks = iter([b"x", b""])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        _read_file(lambda: next(chunks))


def _read_file(chunk: Callable[[], bytes]) -> None:
    raw = SimpleNamespace(read1=lambda *_, **__: chunk())
    response: Any = SimpleNamespace(headers={}, raw=raw, close=lambda: None)
    list(bounded_answers._keeps_coming(response, bounded_answers.Download(Path.cwd())))


def logits_off_by(relative: float) -> None:
    logits = torch.ones(1, 2, 4, dtype=torch.float64)
    ForeignLogits(Path("f"), torch.zeros(1, 2), logits).check(cast(Any, lambda _: (logits * (1 + relative),)))


def trials(count: int) -> None:
    make_plan({"config": "lm/gru", "vary": {"model.init_args.lr": [1, 2]}, "sampler": "random", "trials": count}, [])


EDGES = {
    "seconds of a job": Edge(time_of_a_job, "00:02:01", "00:02:00", "--time must exceed the 120 s before"),
    "pages of runs": Edge(pages, 1000, 1001, "more than 1000 pages of runs"),
    "answers of a call": Edge(answers, 1000, 1001, "more than 1000 pages"),
    "bytes of a file in a minute": Edge(slow_file, (60.1, 2**16), (60.1, 2**16 - 1), "only 65535 bytes of it"),
    "a minute of a file": Edge(slow_file, (60.0, 1), (60.1, 1), "only 1 bytes of it arrived in 60 s"),
    "room for a file": Edge(room, 2**28, 2**28 - 1, "less than 268435456 bytes free"),
    "logits of transformers": Edge(logits_off_by, 0.99e-4, 1.01e-4, "differ .* by 1.0e-04 .* below 1e-04"),
    "trials of a sweep": Edge(trials, 10**6, 10**6 + 1, "--trials must be from 1 to 1000000, got 1000001"),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_limit_accepts_its_own_value_and_refuses_the_next(name: str) -> None:
    EDGES[name].check()


def confusion(classes: int) -> bool:
    return "4711" in confusion_matrix(np.full((classes, classes), 4711), [""] * classes)


def token_of_a_map(number: int) -> bool:
    """True if the token of this number, from 1, is drawn."""
    texts = ["." for _ in range(number - 1)] + ["last"]
    return "last" in attention_maps([AttentionMap("m", np.ones((1, number, number)), texts, texts)])


def read_by_libyaml(depth: int) -> bool:
    """True if PyYAML's own parser is not asked about lists so deep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "safe_load", lambda _: None)
        return load_quickly("[" * depth + "]" * depth) is not None


def rows_at_once(rows: int) -> bool:
    """True if so many rows of 2^20 logits are computed at once."""
    task: Any = SimpleNamespace(by_rows=True, model=SimpleNamespace(vocab_size=2**20), said=torch.zeros(1, rows, 1))
    return len(list(Logits._chunks(task, torch.full((1, rows), IGNORE)))) == 1


def kernel(width: int) -> bool:
    tensor: Any = SimpleNamespace(dtype=torch.float16, is_cuda=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fla, "_installed", lambda: True)
        updates = SimpleNamespace(v=tensor, read=None, beta=None, log_decay=torch.empty(1, 2), q=torch.empty(1, width))
        return fla.usable(cast(Any, updates))


def kept_points(count: int) -> bool:
    run: Any = SimpleNamespace(history=lambda _: [(step, 0.0) for step in range(count)])
    return all(len(curve["points"]) == count for curve in shown._curves(run))


def score_of_predictions(value: float) -> bool:
    """True if a run's metric is taken for the score 1 of its predictions."""
    scores: Any = SimpleNamespace(unit="nats", total=lambda _: 1.0, parts=np.ones((1, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "kept_predictions", lambda _: SimpleNamespace(glob=lambda _: [Path("p")]))
        patch.setattr(examples, "read_scores", lambda *_: scores)
        run: Any = SimpleNamespace(name="r", params={})
        return examples._scores(run, "test/loss", value) is scores


def names_of_buckets(count: int) -> bool:
    axes = Figure().subplots()
    lengths._name_some(axes, ["b"] * count, 0.0)
    return len(axes.get_xticks()) == count


def weight_in_its_graph(elements: int, *, name: str = "w", dtype: Any = np.float32) -> bool:
    value = ir.Value(name=name, const_value=ir.tensor(np.ones(elements, dtype)))
    graph = ir.Graph([], [], nodes=[], initializers=[value], opset_imports={"": 23})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WeightFile, "_place", lambda *_: 0)
        WeightFile(Path("f")).take(ir.Model(graph, ir_version=10))
    return not isinstance(value.const_value, ir.ExternalTensor)


def products_as_int8(outputs: int) -> bool:
    node = ir.node("MatMulNBits", [], attributes={"K": 2**13, "N": outputs})
    rewritten: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_products, "rewrite", lambda *_: rewritten.append(1))
        int8_products.multiply_as_int8(cast(Any, SimpleNamespace(graph=[node])))
    return bool(rewritten)


@pytest.mark.parametrize(
    ("is_within", "last"),
    [
        (lambda size: cli._folded("x" * size) == "x" * size, 900),
        (lambda size: _cut("x" * size) == "x" * size, 6000),
        (lambda size: accepted("x" * size) == "x" * size, 250),
        (confusion, 10),
        (token_of_a_map, 40),
        (read_by_libyaml, 100),
        (rows_at_once, 64),
        (kernel, 256),
        (kept_points, 199),
        (names_of_buckets, 12),
        (weight_in_its_graph, 255),
        (lambda size: weight_in_its_graph(size, name="w_scales", dtype=np.uint8), 0),
        (products_as_int8, 2**13),
    ],
    ids=[
        *("folded", "cut", "accepted", "confusion", "map", "yaml", "rows", "kernel", "curve", "buckets", "weight"),
        *("quantised weight", "int8"),
    ],
)
def test_it_changes_after_its_limit(is_within: Callable[[int], bool], last: int) -> None:
    assert is_within(last)
    assert not is_within(last + 1)


@pytest.mark.parametrize(("value", "is_score"), [(0.9991, True), (1.0009, True), (0.9989, False), (1.0012, False)])
def test_a_score_within_a_thousandth_is_that_of_the_predictions(value: float, is_score: bool) -> None:
    assert score_of_predictions(value) == is_score


def test_a_rank_waits_as_long_as_torch_says() -> None:
    assert default_pg_timeout.total_seconds() == TORCHS


@pytest.mark.parametrize(("tokens", "draws"), [(1, 16), (10, 16), (11, 14), (40, 4), (41, 3), (10**6, 3)])
def test_few_tokens_have_more_draws(tokens: int, draws: int) -> None:
    assert draws_of(tokens) == draws


@pytest.mark.parametrize(("longest", "tried"), [(None, 1024), (1025, 1024), (1024, 1024), (1023, 1023), (64, None)])
def test_the_proof_reads_texts_of_1024_positions_at_most(longest: int | None, tried: int | None) -> None:
    masks = [mask for _, mask in cases.long_cases(longest)]
    assert [mask.shape for mask in masks] == ([] if tried is None else [(2, tried)])
    assert cases.one_call_lengths(longest)[-1] == (tried or 64)


@pytest.mark.parametrize(("size", "rows"), [(400, 10), (40, 10), (39, 20), (1, 400)])
def test_small_outputs_of_an_encoder_have_more_rows(size: int, rows: int) -> None:
    output = SimpleNamespace(dtype="float32", dims=("B", size))
    info: Any = SimpleNamespace(inputs=[SimpleNamespace(name="tokens")], outputs=[output])
    assert {len(mask) for _, mask in cases.encoder_cases(info, None)} == {rows}


@pytest.mark.parametrize(("entries", "numbers"), [(1, 4096), (16, 256), (17, 256)])
def test_numbers_compared_of_a_state(entries: int, numbers: int) -> None:
    outputs = [SimpleNamespace(name=f"s{k}", dtype="float32", dims=("B", 1)) for k in range(entries)]
    assert cases.numbers_of(cast(Any, outputs[0]), cast(Any, SimpleNamespace(outputs=outputs))) == numbers


@pytest.mark.parametrize(("num_lengths", "numbers"), [(1, 1365), (84, 16), (85, 16), (86, 16)])
def test_numbers_compared_of_a_call(num_lengths: int, numbers: int) -> None:
    assert cases.numbers_of_call(num_lengths) == numbers


def test_an_answer_may_take_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Silent:
        def __init__(self, **options: Any) -> None: ...

        def start(self) -> None: ...

        def join(self, seconds: float) -> None:
            waits.append(seconds)

    bounded_answers.begin_call()
    monkeypatch.setattr(bounded_answers, "Thread", Silent)
    with pytest.raises(bounded_answers.OutOfBoundsError, match="more than 60 s"):
        bounded_answers.BoundedAdapter().send(cast(Any, SimpleNamespace(method="GET", body=None)))
    assert waits == [60.0]
