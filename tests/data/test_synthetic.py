"""Synthetic tasks: right answers by another way, the same examples everywhere, nothing but answers counted."""

from __future__ import annotations

import hashlib
import inspect
import statistics
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch

from data.helpers import refused
from seqlab.batch import IGNORE, TokenBatch
from seqlab_data import AddingDataModule, synthetic
from seqlab_data.synthetic import (
    Addition,
    AssociativeRecall,
    Copy,
    Draw,
    ListOps,
    PermutationProduct,
    SelectiveCopy,
    SyntheticDataModule,
    SyntheticTask,
)

BOS, SEP, FIRST = 1, 2, 3
DIGESTS = {
    "Addition": "67bf9652a0a5131f",
    "AssociativeRecall": "6f14d0e24bcc3cee",
    "Copy": "df56ecd7da7f4825",
    "CycleNavigation": "76fd189076385913",
    "Delay": "29056653d775a495",
    "Dyck": "e3b74a98af3480bd",
    "EvenPairs": "4de8e3a985ad01d3",
    "InductionHeads": "6917b4ee0782ea9a",
    "ListOps": "67f200bb112f6288",
    "ModularArithmetic": "342fa42612b91a75",
    "NeedleInHaystack": "4efeb7e4c94e9ff3",
    "NeedleRetrieval": "4545ec88e3e2caa1",
    "Parity": "844d5d8485a98209",
    "PermutationProduct": "60bd8fe706ceb1c8",
    "Reverse": "a4a2208f1b2cda8e",
    "SelectiveCopy": "2099ccc109c88024",
    "Sort": "f09eebd973e52aec",
    "StackManipulation": "c28d806b0d59fdc9",
    "VariableTracking": "a3fe27117ba98ad6",
}
"""Each task, and the digest of its examples."""
tasks = pytest.mark.parametrize("name", DIGESTS)


def right_answer(task: SyntheticTask, question: list[int], asked: list[int]) -> list[int]:
    """Worked out from the tokens, as a reader would; for recall, `asked` is what stands before each answer."""
    given, last, name = [token - FIRST for token in question], task.vocab_size - 1, type(task).__name__
    plain: dict[str, Callable[[], list[int]]] = {
        "AssociativeRecall": lambda: [question[question.index(key) + 1] for key in asked],
        "Copy": lambda: question,
        "CycleNavigation": lambda: [FIRST + sum(step - 1 for step in given) % 5],
        "Delay": lambda: question[:10],
        "EvenPairs": lambda: [FIRST + sum(a != b for a, b in pairwise(given)) % 2],
        "InductionHeads": lambda: [question[question.index(SEP) + 1]],
        "ListOps": lambda: [FIRST + list_ops_value(given)],
        "NeedleInHaystack": lambda: [question[question.index(last) + 1]],
        "NeedleRetrieval": lambda: [question[question.index(key) + 1] for key in asked],
        "Parity": lambda: [FIRST + given.count(1) % 2],
        "Reverse": lambda: question[::-1],
        "SelectiveCopy": lambda: [token for token in question if token != last],
        "Sort": lambda: sorted(question),
        "VariableTracking": lambda: [question[[*pairwise(question)].index((last, one)) + 2] for one in asked],
    }
    if name in plain:
        return plain[name]()
    match name:
        case "Addition":
            first, second = "".join(str(digit) if digit < 10 else "+" for digit in given).split("+")
            return [FIRST + int(digit) for digit in f"{int(first) + int(second):0{len(first) + 1}}"]
        case "Dyck":
            text = "".join("([)]"[symbol] for symbol in given)
            while (shorter := text.replace("()", "").replace("[]", "")) != text:
                text = shorter
            return [FIRST + {"(": 2, "[": 3}[bracket] for bracket in reversed(text)] + [last]
        case "StackManipulation":
            stack: list[int] = []
            for symbol in given:
                stack = stack[:-1] if symbol == 4 else [*stack, symbol % 2]
            return [FIRST + symbol for symbol in reversed(stack)] + [last]
    assert name == "ModularArithmetic"
    text = "".join("01234+-*"[symbol] for symbol in given)
    value = int(text[0])
    for operator, number in zip(text[1::2], text[2::2], strict=True):
        value = eval(f"({value}) {operator} {number}")
    return [FIRST + value % 5]


def list_ops_value(symbols: list[int]) -> int:
    """Value of the expression, evaluated by Python as nested calls."""
    names = {10: "MIN(", 11: "MAX(", 12: "MED(", 13: "SM(", 14: "),"}
    text = "".join(names.get(symbol, f"{symbol},") for symbol in symbols).rstrip(",")
    least, most = lambda *values: min(values), lambda *values: max(values)
    median, total = lambda *values: int(statistics.median(values)), lambda *values: sum(values) % 10
    return int(eval(text, {"MIN": least, "MAX": most, "MED": median, "SM": total}))


def test_list_ops_of_the_paper() -> None:
    assert list_ops_value([11, 2, 9, 10, 4, 7, 14, 0, 14]) == 9
    lengths = {len(ListOps().example(Draw(3, index), 12).tokens) for index in range(300)}
    assert len(lengths) > 5


@pytest.mark.parametrize("base", [2, 7])
def test_the_lowest_digits_of_a_sum_come_first(base: int) -> None:
    task = Addition(base, lowest_first=True)
    tokens, targets = task.example(Draw(5), 9)
    first, second = (tokens[1:10], tokens[11:20])
    numbers = [sum((token - FIRST) * base**place for place, token in enumerate(of)) for of in (first, second)]
    total = [target - FIRST for target in targets if target != IGNORE]
    assert sum(digit * base**place for place, digit in enumerate(total)) == sum(numbers) and len(total) == 10
    assert tokens[10] == task.plus == task.vocab_size - 1 and len(tokens) == task.longest(9)


def test_every_task_is_tested() -> None:
    found = [getattr(synthetic, name) for name in synthetic.__all__]
    found = [cls for cls in found if isinstance(cls, type) and issubclass(cls, SyntheticTask)]
    assert {cls.__name__ for cls in found if not inspect.isabstract(cls)} == set(DIGESTS)


FEW = {"Parity": 2, "EvenPairs": 2, "CycleNavigation": 5, "ModularArithmetic": 5, "Delay": 8, "ListOps": 10}
FEW |= {"Addition": 10, "Dyck": 3, "StackManipulation": 3}
"""Answers of tasks that have less than 14."""


@pytest.mark.parametrize("name", [name for name in DIGESTS if name != "PermutationProduct"])
def test_answers_are_right_and_every_one_occurs(name: str) -> None:
    made, found = getattr(synthetic, name)(), set()
    for index in range(400):
        length = 16 + index % 20
        tokens, targets = made.example(Draw(7, index), length)
        assert len(tokens) == len(targets) <= made.longest(length)
        assert tokens[0] == BOS and max(tokens) < made.vocab_size and min(tokens) > 0
        end = len(tokens) - 1 - tokens[::-1].index(SEP)
        asked = [before for before, target in zip(tokens, targets, strict=True) if target != IGNORE]
        answer = [target for target in targets if target != IGNORE]
        assert answer == right_answer(made, tokens[1:end], asked)
        assert set(targets[:end]) == {IGNORE}
        found |= {*answer}
    assert len(found) >= FEW.get(name, 14)


@pytest.mark.parametrize("num_items", [2, 5, 6])
def test_products_of_permutations_are_those_of_their_matrices(num_items: int) -> None:
    task, found = PermutationProduct(num_items), set()
    matrices = [np.eye(num_items, dtype=int)[:, list(one)] for one in permutations(range(num_items))]
    for index in range(40):
        tokens, targets = task.example(Draw(7, index), 30)
        assert len(tokens) == len(targets) == task.longest(30) and (tokens[0], targets[0]) == (BOS, IGNORE)
        product = np.eye(num_items, dtype=int)
        for token, target in zip(tokens[1:], targets[1:], strict=True):
            product = matrices[token - FIRST] @ product
            assert (matrices[target - FIRST] == product).all()
        found |= {*tokens[1:], *targets[1:]}
    assert max(found) < task.vocab_size and len(found) > 0.9 * len(matrices)


@pytest.mark.parametrize("num_items", [1, 7])
def test_permutations_of_too_few_or_too_many_items(num_items: int) -> None:
    with pytest.raises(ValueError, match=f"num_items must be from 2 to 6, got {num_items}"):
        PermutationProduct(num_items)


def test_recall_does_not_read_its_answers() -> None:
    """Else the values left over would tell the last answers: as often as chance, one of 16, it reads the right one."""
    found = [AssociativeRecall(16, 16).example(Draw(2, index), 8) for index in range(1000)]
    read = [
        after == target
        for tokens, targets in found
        for after, target in zip(tokens[1:], targets, strict=False)
        if target != IGNORE
    ]
    assert len(read) == 7000 and sum(read) / len(read) == pytest.approx(1 / 16, abs=0.01)


def module(task: Any, **options: Any) -> SyntheticDataModule:
    return SyntheticDataModule(task, **{"num_train": 60, "num_eval": 20, "batch_size": 8, **options})


def read(data: SyntheticDataModule, split: str) -> TokenBatch:
    return data.examples[split].read(np.arange(12))


@tasks
def test_a_seed_makes_the_same_examples_on_any_machine(name: str) -> None:
    first, other = (
        read(module(getattr(synthetic, name), seed=seed, train_lengths=(20, 40)), "train") for seed in (3, 4)
    )
    both = np.stack([first.tokens.numpy(), first.targets.numpy()]).astype("<i8")
    assert hashlib.sha256(both.tobytes()).hexdigest().startswith(DIGESTS[name])
    assert not torch.equal(first.tokens, other.tokens)


def test_splits_differ_and_test_is_longer() -> None:
    data = module(Copy, train_lengths=(2, 5), test_lengths=(6, 9))
    train, val, test = (read(data, split) for split in ("train", "val", "test"))
    assert train.tokens.tolist() != val.tokens.tolist()
    lengths = {name: (batch.targets != IGNORE).sum(1) for name, batch in (("val", val), ("test", test))}
    assert lengths["val"].min() >= 2 and lengths["val"].max() <= 5
    assert lengths["test"].min() >= 6 and lengths["test"].max() <= 9 and torch.equal(test.num_chars, lengths["test"])
    assert data.seq_len == 2 * 9 + 1 and test.tokens.shape[1] <= data.seq_len


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AddingDataModule(train_lengths=(1, 4)), r"data.train_lengths must be .* of at least 2, got \(1, 4\)"),
        (lambda: module(Copy, train_lengths=(5, 2)), r"data.train_lengths must be .* got \(5, 2\)"),
        (lambda: AssociativeRecall().example(Draw(0), 65), "AssociativeRecall has 64 keys, too few for 65 pairs"),
        (lambda: SelectiveCopy().example(Draw(0), 3), "SelectiveCopy hides 16 symbols, too many for a length of 3"),
        (lambda: Copy(0), "num_symbols must be at least 1, got 0"),
        (lambda: Addition(1), "base must be at least 2, got 1"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with refused(message):
        make()


def test_adding_has_as_its_target_the_sum_of_the_two_marked_numbers() -> None:
    data = AddingDataModule(train_lengths=(5, 30), num_train=300)
    inputs, pad_mask, targets, _ = data.examples["train"].read(np.arange(300))
    assert inputs.shape == (300, 30, 2) and inputs[..., 0].min() >= 0 and inputs[..., 0].max() < 1
    lengths, places = pad_mask.sum(dim=1), set()
    assert lengths.min() == 5 and lengths.max() == 30
    for row in range(300):
        length = int(lengths[row])
        first, second = inputs[row, :, 1].nonzero().flatten().tolist()
        assert first < length // 2 <= second < length
        assert targets[row] == inputs[row, first, 0] + inputs[row, second, 0]
        assert not inputs[row, length:].any()
        places.add((first, second))
    assert len(places) > 100
    assert float((targets - 1).square().mean()) == pytest.approx(1 / 6, abs=0.03)


def test_one_example_is_enough() -> None:
    data = AddingDataModule(num_train=1, num_eval=1)
    assert [len(data.examples[split]) for split in ("train", "val", "test")] == [1, 1, 1]
    for name in ("num_train", "num_eval"):
        with refused(f"{name} must be at least 1, got 0"):
            AddingDataModule(**{name: 0})  # type: ignore[arg-type]


def test_splits_of_adding_differ_and_a_seed_makes_the_same_examples() -> None:
    def read(split: str, seed: int) -> torch.Tensor:
        return AddingDataModule(seed=seed, test_lengths=(300, 300)).examples[split].read(np.arange(4)).inputs

    made = np.ascontiguousarray(read("train", 3).numpy(), dtype="<f4")
    assert hashlib.sha256(made.tobytes()).hexdigest().startswith("dc5e48afae687e91")
    assert torch.equal(read("train", 3), read("train", 3))
    assert not torch.equal(read("train", 3), read("val", 3)) and not torch.equal(read("train", 3), read("train", 4))
    assert read("test", 3).shape == (4, 300, 2)
    lengths = {split: examples.lengths for split, examples in AddingDataModule().examples.items()}
    assert lengths["test"][0] > lengths["train"][1] == lengths["val"][1]
