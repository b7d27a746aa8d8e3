"""Laws of every data module: the order of its batches, what is too long, and what a checkpoint is held to."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data.helpers import QUIET, refused
from data.modules import MODULES, SHARES
from data.order import check_order
from data.test_resume import SaveAfter, fit
from seqlab_data.tokenizers import ByteTokenizer

pytestmark = QUIET
every = pytest.mark.parametrize("name", MODULES)


@every
def test_the_order_is_shared_resumed_and_the_same_for_workers(name: str, tmp_path: Path) -> None:
    data = MODULES[name](tmp_path)
    data.setup("fit")
    check_order(lambda **options: MODULES[name](tmp_path, **options), len(data.rows("val")))


@every
def test_a_resumed_fit_sees_the_same_batches(name: str, tmp_path: Path) -> None:
    path, make = tmp_path / "some.ckpt", MODULES[name]
    n = len(make(tmp_path).train_dataloader())
    assert n > 3
    whole = fit(make(tmp_path), None, SaveAfter(path, "on_train_batch_end", n + 3))
    assert len(whole) == 3 * n and [batch for _, batch in whole[:n]] != [batch for _, batch in whole[n : 2 * n]]
    assert fit(make(tmp_path, num_workers=2 * (name == "parallel")), path) == whole[n + 3 :]


@every
def test_training_is_shuffled_by_the_seed_and_evaluation_keeps_its_order(name: str, tmp_path: Path) -> None:
    def rows(split: str, **options: Any) -> list[list[int]]:
        data = MODULES[name](tmp_path, **options)
        return [batch.rows.tolist() for batch in getattr(data, f"{split}_dataloader")()]

    first, other = rows("train"), rows("train", seed=1)
    assert first == rows("train") != other != sorted(other)
    assert name == "mixture" or sorted(chain(*first)) == sorted(chain(*other))
    assert rows("val") == rows("val", seed=9)


@pytest.mark.parametrize(
    ("name", "option", "values"), [("labelled", "max_tokens", (20, 60)), ("documents", "batch_size", (3, 6))]
)
def test_batches_follow_their_size(name: str, option: str, values: tuple[int, int], tmp_path: Path) -> None:
    """Changed between epochs, or by Lightning's BatchSizeFinder."""
    data = MODULES[name](tmp_path)
    for value in values:
        setattr(data, option, value)
        expected = MODULES[name](tmp_path, **{option: value}).groups("train")
        assert [*map(list, data.groups("train"))] == [*map(list, expected)]


@pytest.mark.parametrize("on_long", ["drop", "cut"])
@pytest.mark.parametrize("name", ["labelled", "tagged", "table"])
def test_long_rows_dropped_or_cut(name: str, on_long: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"targets": [[[k % 2, 0] for k in range(1 + i % 5)] for i in range(60)]}
    options = options if name == "table" else {"val": [("w0x0", "a")] if name == "labelled" else "w0x0 O\n"}
    whole = MODULES[name](tmp_path, **options)._rows["train"]
    data = MODULES[name](tmp_path, max_len=3, on_long=on_long, **options)
    data.setup("fit")
    kept = [row for row, some in enumerate(whole.inputs) if on_long == "cut" or len(some) <= 3]
    count = sum(len(some) > 3 for some in whole.inputs)
    found, unit = data._rows["train"], "frames" if name == "table" else "tokens"
    reason = f"train: over 3 {unit}, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == data.describe()["dropped"] and data.dropped[reason] == count > 0
    assert f"data: {reason}: {count}" in capsys.readouterr().err
    assert [data.place("train", row) for row in range(len(kept))] == [whole.places[row] for row in kept]
    assert all(np.array_equal(some, whole.inputs[row][:3]) for some, row in zip(found.inputs, kept, strict=True))
    targets = [whole.targets[row] if name == "labelled" else whole.targets[row][:3] for row in kept]
    assert all(np.array_equal(*both) for both in zip(found.targets, targets, strict=True))


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"seq_len": 0}, "data.seq_len must be at least 1, got 0"),
    ("text", {"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
    ("text", {"num_workers": -1}, "data.num_workers must be at least 0, got -1"),
    ("text", {"seed": -1}, "data.seed must be at least 0, got -1"),
    ("text", {"split": (0.9, 0.1, 0.1)}, "data.split must be three positive shares that sum to 1"),
    ("text", {"split": (0.9, 0.1, 0.0)}, "data.split must be three positive shares that sum to 1"),
    ("text", {"packing": "sentences"}, r"data\.packing must be stream, documents or packed, got sentences"),
    ("text", {"word_order": "sorted"}, r"data\.word_order must be natural or shuffled, got sorted"),
    ("labelled", {"word_order": "sorted"}, r"data\.word_order must be natural or shuffled, got sorted"),
    ("parallel", {"word_order": "sorted"}, r"data\.word_order must be natural or shuffled, got sorted"),
    ("parallel", {"max_len": 1}, "data.max_len must be at least 2, got 1"),
    ("parallel", {"max_tokens": 9}, "data.max_tokens must be at least 10, got 9"),
    ("parallel", {"on_long": "warn"}, "data.on_long must be refuse, drop or cut, got warn"),
    ("parallel", {"seed": -1}, "data.seed must be at least 0, got -1"),
    ("parallel", {"val_share": 1.0}, "data.val_share must be between 0 and 1, got 1.0"),
    ("table", {"split": (0.5, 0.5, 0.5)}, r"data\.split must be three positive shares"),
    ("images", {"split": (0.5, 0.5, 0.5)}, r"data\.split must be three positive shares"),
    ("images", {"patch_size": 0}, r"data\.patch_size must be at least 1, got 0"),
    *(
        (name, {"encoding": encoding}, r"data\.encoding")
        for name in ("text", "labelled", "tagged", "parallel")
        for encoding in ("klingon", "rot13", "", "base64")
    ),
]


@pytest.mark.parametrize(("name", "option", "message"), WRONG)
def test_a_wrong_option_is_refused(name: str, option: dict[str, Any], message: str, tmp_path: Path) -> None:
    with refused(message):
        MODULES[name](tmp_path, **option)


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"seq_len": 8}, "seq_len 16, but this data has seq_len 8"),
    ("text", {"seed": 1}, "seed 0, but this data has seed 1"),
    ("text", {"split": (0.5, 0.25, 0.25)}, r"split 0\.6, 0\.2, 0\.2, but this data has split 0\.5"),
    ("text", {"batch_size": 2}, "batch_size 4, but this data has batch_size 2"),
    ("text", {"tokenizer": ByteTokenizer}, "tokenizer [0-9a-f]{64}, but this"),
    ("text", {"path": "{folder}/text/0.txt"}, "data [0-9a-f]{64}, but this data has data"),
    ("documents", {"packing": "stream"}, "seq_len 16 of one document, but this data has seq_len 16"),
    ("documents", {"packing": "packed"}, "seq_len 16 of one document, but this data has seq_len 16 of whole documents"),
    (
        "mixture",
        {"mixture": {**SHARES, "web": 0.6, "code": 0.2}},
        r"mixture .*0\.7.*, but this data has mixture .*0\.6",
    ),
    ("mixture", {"path": "{folder}/web.txt", "mixture": None}, "data"),
    ("parallel", {"max_len": 12}, "max_len 10, but this data has max_len 12"),
    ("parallel", {"on_long": "cut"}, "on_long refuse, but this data has on_long cut"),
    ("parallel", {"max_tokens": 19}, "max_tokens 20, but this data has max_tokens 19"),
    ("parallel", {"seed": 1}, "seed 0, but this data has seed 1"),
    (
        "parallel",
        {"source_tokenizer": ByteTokenizer, "max_len": 99, "max_tokens": 99},
        "tokenizer [0-9a-f]{64}, but this",
    ),
    ("parallel", {"train": "a\tb\n"}, "data [0-9a-f]{64}, but this data has data"),
    ("table", {"targets": [(i + 1) % 3 for i in range(60)]}, "data"),
    ("labelled", {"train": [("good film", "a"), ("x", "b")]}, "data"),
]


def within(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    return {key: some.format(folder=folder) if isinstance(some, str) else some for key, some in options.items()}


@pytest.mark.parametrize(("name", "options", "message"), OTHERS)
def test_other_data_is_refused(name: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    state = {**MODULES[name](tmp_path).state_dict(), "batch": 1}
    other = MODULES[name](tmp_path, **within(tmp_path, options))
    with refused(f"the checkpoint was trained with {message}"):
        other.load_state_dict(state)


BYTES = {"tokenizer": ByteTokenizer, "max_len": 40, "max_tokens": 40}
IN_TESTS: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("labelled", BYTES, {"train": [("good film", "a"), ("x", "zz")]}, "labels a, b, but this data has labels a, zz"),
    ("labelled", BYTES, {"train": [("a", "b"), ("b", "a")]}, None),
    ("table", {}, {"targets": [0.5] * 60}, "target a class"),
    ("table", {}, {"targets": [i % 2 for i in range(60)]}, "labels 0, 1, 2"),
    ("table", {}, {"max_tokens": 30}, None),
    ("images", {"patch_size": 2}, {"patch_size": 1}, "patch_size 2"),
    ("images", {"patch_size": 2}, {"split_seed": 3}, "scale"),
    ("text", {"tokenizer": ByteTokenizer}, {"path": "{folder}/text/1.txt"}, None),
    ("text", {}, {"path": "{folder}/text/1.txt"}, "tokenizer"),
]


@pytest.mark.parametrize(("name", "options", "change", "message"), IN_TESTS)
def test_a_test_is_held_to_what_the_model_reads_and_answers(
    name: str, options: dict[str, Any], change: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    state = MODULES[name](tmp_path, **options).state_dict()
    data = MODULES[name](tmp_path, **{**options, **within(tmp_path, change)})
    data.trainer = SimpleNamespace(state=SimpleNamespace(fn="test"), distributed_sampler_kwargs=None)
    with refused(f"trained with {message}") if message else nullcontext():
        data.load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "option", "value", "batches"), [("text", "batch_size", 9, 3), ("parallel", "max_tokens", 50, 1)]
)
def test_batches_may_change_by_epoch(name: str, option: str, value: int, batches: int, tmp_path: Path) -> None:
    state, n = MODULES[name](tmp_path).state_dict(), len(MODULES[name](tmp_path).train_dataloader())
    data = MODULES[name](tmp_path, **{option: value})
    data.load_state_dict({**state, "epoch": batches, "batch": 0, "batches": batches * n})
    assert data.position == (batches, 0)
