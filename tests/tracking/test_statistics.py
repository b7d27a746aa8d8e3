from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from seqlab.comparison.statistics import (
    LEVEL,
    Estimate,
    better,
    difference,
    examples_needed,
    holm,
    joined,
    letters,
    mean,
    over_examples,
    ranks,
    resampled,
    seeds_needed,
)

EXPERIMENTS = 1000


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def test_mean_and_interval_are_students(draw: np.random.Generator) -> None:
    values = draw.normal(2, 0.3, 5)
    found = mean(values)
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert (found.value - found.half_width, found.value + found.half_width) == pytest.approx((low, high))


def test_differences_are_scipys(draw: np.random.Generator) -> None:
    ours, theirs = draw.normal(0, 1, 6), draw.normal(0.5, 2, 6)
    expected = stats.ttest_rel(ours, theirs)
    assert difference(ours, theirs, paired=True).p == pytest.approx(expected.pvalue)
    expected = stats.ttest_ind(ours, theirs[:4], equal_var=False)
    found = difference(ours, theirs[:4], paired=False)
    interval = expected.confidence_interval()
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.value - found.half_width, found.value + found.half_width) == pytest.approx(tuple(interval))


def test_what_does_not_differ_is_certain() -> None:
    same = difference([1.0, 1.0], [1.0, 1.0], paired=True)
    assert (same.p, same.half_width) == (1, 0)
    assert difference([1.0, 1.0], [2.0, 2.0], paired=True).p == difference([1, 1, 1], [2, 2, 2], paired=False).p == 0
    assert joined(same, Estimate(0.0, 0.0, 9)).p == 1


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0, 4.0])
def test_of_experiments_without_a_difference_at_most_6_percent_are_called_different(
    draw: np.random.Generator, paired: bool, seeds: int, noise: float
) -> None:
    """The noise of 50 test examples, which all seeds share, is so many times that of the seeds."""
    runs = draw.normal(size=(2, EXPERIMENTS, seeds))
    examples = noise * np.sqrt(50 / seeds) * draw.normal(size=(EXPERIMENTS, 50))
    of_seeds = difference(runs[0] + examples.mean(-1)[:, None], runs[1], paired=paired)
    of_examples = mean(examples)
    found = joined(of_seeds, Estimate(0.0, of_examples.error, of_examples.freedom))
    assert np.mean(found.p < LEVEL) <= 0.06
    assert ((np.abs(found.value) > found.half_width) == (found.p < LEVEL)).all()


def test_single_runs_without_a_difference_are_seldom_called_different(draw: np.random.Generator) -> None:
    examples = draw.normal(size=(100, 8 * EXPERIMENTS))
    found = over_examples(examples.mean(0), resampled(examples) / 100, 100)
    assert 0.03 <= np.mean(found.p < LEVEL) <= 0.06
    assert found.p == pytest.approx(stats.ttest_1samp(examples, 0).pvalue, abs=0.06)


def test_the_bootstrap_is_scipys(draw: np.random.Generator) -> None:
    values = draw.normal(1, 2, 300)
    expected = stats.bootstrap((values,), np.mean, n_resamples=4000, random_state=draw).standard_error
    assert (resampled(values) / 300).std() == pytest.approx(expected, rel=0.06)
    assert (resampled(values) == resampled(values)).all()
    found = over_examples(0.0, [1.0, 2.0, 3.0], 4)
    assert (found.error, found.freedom) == (pytest.approx(np.sqrt(4 / 3)), 3), "as a sample's, which is one less free"


@pytest.mark.parametrize(("effect", "samples", "expected"), [(1.0, 1, 10), (0.5, 1, 34), (1.0, 2, 17), (0.5, 2, 64)])
def test_the_seeds_needed_have_the_power_that_theory_says(
    draw: np.random.Generator, effect: float, samples: int, expected: int
) -> None:
    """Cohen 1988's tables; and of so many experiments four in five find the difference."""
    assert seeds_needed(effect, np.sqrt(samples), samples=samples) == expected
    ours, theirs = draw.normal(size=(2, 4 * EXPERIMENTS, expected))
    found = mean(ours + effect) if samples == 1 else difference(ours + effect, theirs, paired=False)
    assert np.mean(found.p < LEVEL) == pytest.approx(0.8, abs=0.035)


def test_with_two_seeds_of_one_model_none_is_found_that_is_not_there(draw: np.random.Generator) -> None:
    ours, theirs = draw.normal(size=(4 * EXPERIMENTS, 2)), 0.2 * draw.normal(size=(4 * EXPERIMENTS, 5))
    assert np.mean(stats.ttest_ind(ours, theirs, axis=1, equal_var=False).pvalue < LEVEL) > 0.08
    assert np.mean(difference(ours, theirs, paired=False).p < LEVEL) <= 0.06


def test_no_number_of_seeds_is_enough_where_the_examples_are_too_few() -> None:
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1.0, 1.0, fixed=0.5) is None
    assert seeds_needed(1.0, 0.01) == 2
    assert examples_needed(Estimate(0.1, 0.1, 1e6), 100) == 785  # 7.85 = (1.96 + 0.84)^2
    assert examples_needed(Estimate(0.0, 0.1, 99), 100) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def draws(*means: float, seeds: int = 5, spread: float = 1.0) -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(np.array(means)[:, None], spread, (len(means), seeds))


def test_pairs_are_told_apart_by_scipys_test_and_holms_steps() -> None:
    values = draws(0, 0.1, 2, 3.5, 3.6, 9)
    ps = {(i, j): stats.ttest_ind(values[i], values[j], equal_var=False).pvalue for i in range(6) for j in range(i)}
    expected, left = np.zeros((6, 6), dtype=bool), len(ps)
    for (i, j), p in sorted(ps.items(), key=lambda pair: pair[1]):
        if p >= LEVEL / left:
            break
        expected[(i, j) if values[i].mean() < values[j].mean() else (j, i)] = True
        left -= 1
    assert 3 < left < 12
    np.testing.assert_array_equal(better(mean(values)), expected)


def test_a_rank_is_from_how_many_are_better_to_how_many_are_not_worse() -> None:
    """The second and third are between the first and the last; the fourth has no error, or may be anywhere."""
    told = better(Estimate(np.array([0.0, 5.0, 5.1, 3.0, 9.0]), np.array([0.1, 0.1, 0.1, np.nan, 0.1]), 9))
    assert ranks(told) == [(1, 2), (2, 4), (2, 4), (1, 5), (4, 5)]
    assert letters(told) == ["a", "b", "b", "abc", "c"]
    assert ranks(better(Estimate(np.zeros(3), np.zeros(3), 2))) == [(1, 3)] * 3, "equal numbers without spread"
    assert ranks(better(Estimate(np.arange(3.0), np.zeros(3), 2))) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_two_share_a_letter_if_and_only_if_they_are_not_told_apart(seed: int) -> None:
    told = np.triu(np.random.default_rng(seed).random((7, 7)) < 0.5, 1)
    found = letters(told)
    for i, j in zip(*np.triu_indices(7, 1), strict=True):
        assert bool({*found[i]} & {*found[j]}) != told[i, j]


def test_an_alphabet_that_is_too_short_gives_no_letters() -> None:
    apart = [np.triu(np.ones((count, count), dtype=bool), 1) for count in (52, 53)]
    assert [len({*letters(told)}) for told in apart] == [52, 0]
    assert [letters(np.zeros_like(told)) for told in apart] == [["a"] * 52, []]
    told = np.triu(np.random.default_rng(0).random((40, 40)) < 0.5, 1)  # of 40 rows, more than 52 groups
    assert letters(told) == []


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("spreads", [np.ones(17), 1.5 ** np.arange(17.0)])
def test_equal_models_are_seldom_told_apart(seeds: int, spreads: NDArray[np.float64]) -> None:
    draw = np.random.default_rng(0)
    splits = [better(mean(draw.normal(0, spreads[:, None], (17, seeds)))).any() for _ in range(1000)]
    assert np.mean(splits) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)
