"""RULER's tasks: which needles are asked for, where they are, and what is random."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from data.helpers import refused
from seqlab.batch import IGNORE
from seqlab_data.synthetic import Draw, NeedleRetrieval, SyntheticDataModule, VariableTracking

SEP, FIRST = 2, 3


@pytest.mark.parametrize(
    ("num_keys", "num_values", "num_queries"), [(1, 1, 1), (5, 1, 1), (1, 4, 1), (5, 1, 3), (4, 3, 2), (8, 8, 8)]
)
def test_every_value_of_every_key_that_is_asked(num_keys: int, num_values: int, num_queries: int) -> None:
    """RULER's single, multi-key, multi-value and multi-query needles: each key with its values, in their order."""
    n, every, seen, noise = 8, 1 + num_values, set(), set[int]()
    task = NeedleRetrieval((num_keys, num_keys), num_values, num_queries, n)
    for index in range(50):
        length = index % 7
        tokens, targets = task.example(Draw(5, index), length)
        end = tokens.index(SEP)
        assert len(tokens) == len(targets) == task.longest(length) and max(tokens) < task.vocab_size
        symbols = [token - FIRST for token in tokens[1:end]]
        assert sum(symbol < n for symbol in symbols) == length
        values: dict[int, list[int]] = {}
        for key, value in pairwise(symbols):
            if n <= key < 2 * n:
                values.setdefault(key + FIRST, []).append(value + FIRST)
        assert len(values) == num_keys and all(len({*found}) == num_values for found in values.values())
        asked = tokens[end + 1 :: every]
        assert len({*asked}) == num_queries
        expected = [token for key in asked for token in (*values[key], IGNORE)]
        assert targets == [IGNORE] * (end + 1) + expected[:-1]
        assert all(
            tokens[place + 1] == target
            for place, target in enumerate(targets[:-1])
            if target != IGNORE != targets[place + 1]
        )
        seen.add(tuple(asked))
        noise |= {*tokens[end + every :: every]}
    assert len(seen) > 7 and (num_queries == 1 or len(noise) == n)


@pytest.mark.parametrize("depth", [(0.0, 0.0), (0.25, 0.5), (1.0, 1.0)])
def test_the_depth_of_a_needle(depth: tuple[float, float]) -> None:
    """The filler symbols before a needle that is asked for, as a share of all; the others are anywhere."""
    task, places, others = NeedleRetrieval((3, 3), num_symbols=8, depth=depth), set[int](), set[int]()
    for index in range(200):
        tokens, _ = task.example(Draw(6, index), 40)
        for place, token in enumerate(tokens[: tokens.index(SEP)]):
            if FIRST + 8 <= token < FIRST + 16:
                before = sum(FIRST <= other < FIRST + 8 for other in tokens[:place])
                (places if token == tokens[-1] else others).add(before)
    assert (min(places), max(places)) == (40 * depth[0], 40 * depth[1])
    assert (min(others), max(others)) == (0, 40)


def test_the_number_of_keys_is_drawn_and_all_are_asked_if_they_are_few() -> None:
    task, found = NeedleRetrieval((2, 5), num_queries=3, num_symbols=8), []
    for index in range(400):
        tokens, _ = task.example(Draw(8, index), 4)
        keys = sum(FIRST + 8 <= token < FIRST + 16 for token in tokens[: tokens.index(SEP)])
        assert len(tokens[tokens.index(SEP) + 1 :: 2]) == min(keys, 3)
        found.append(keys)
    assert all(found.count(keys) == pytest.approx(100, abs=30) for keys in (2, 3, 4, 5)) and len({*found}) == 4


@pytest.mark.parametrize("changed", [{"depth": (0.5, 1.0)}, {"num_keys": (1, 4)}])
def test_what_a_test_may_change_and_a_resumed_fit_may_not(changed: dict[str, Any]) -> None:
    trained, other = SyntheticDataModule(NeedleRetrieval), SyntheticDataModule(partial(NeedleRetrieval, **changed))
    assert trained.task_name == other.task_name != SyntheticDataModule(partial(NeedleRetrieval, num_values=2)).task_name
    assert trained.identity() != other.identity() == SyntheticDataModule(partial(NeedleRetrieval, **changed)).identity()


def test_a_chain_of_variables_is_in_the_order_of_its_assignments() -> None:
    task = VariableTracking(num_chains=3, num_hops=4, num_symbols=15)
    for index in range(50):
        tokens, targets = task.example(Draw(7, index), index % 9)
        assert len(tokens) == len(targets) == task.longest(index % 9)
        end = tokens.index(SEP)
        assigned = [tokens[place + 1 : place + 3] for place in range(end) if tokens[place] == task.assign]
        assert len(assigned) == 12 and len({name for pair in assigned for name in pair}) == 15
        chain = [*tokens[end + 1 :], targets[-1]]
        places = [assigned.index(list(pair)) for pair in pairwise(chain)]
        assert len(chain) == 5 and places == sorted(places)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NeedleRetrieval(num_values=0), "num_values must be at least 1, got 0"),
        (lambda: NeedleRetrieval((0, 4)), r"num_keys must be a least and a greatest .* at least 1, got \(0, 4\)"),
        (lambda: NeedleRetrieval((4, 3)), r"num_keys must be a least and a greatest .* at least 1, got \(4, 3\)"),
        (lambda: NeedleRetrieval((1, 9), 2, num_symbols=8), "num_symbols must be at least .*, 9; got 8"),
        (lambda: NeedleRetrieval((1, 2), 9, num_symbols=8), "num_symbols must be at least .*, 9; got 8"),
        (lambda: NeedleRetrieval(depth=(0.5, 0.4)), r"depth must be .* from 0 to 1, got \(0.5, 0.4\)"),
        (lambda: NeedleRetrieval(depth=(0.5, 1.1)), r"depth must be .* from 0 to 1, got \(0.5, 1.1\)"),
        (lambda: VariableTracking(num_hops=0), "num_hops must be at least 1, got 0"),
        (lambda: VariableTracking(2, 4, 9), "num_symbols must be at least .*, 10; got 9"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with refused(message):
        make()
