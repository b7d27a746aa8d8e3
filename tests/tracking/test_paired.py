"""Two models example by example."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]
from sacrebleu.significance import PairedTest
from scipy import stats

from seqlab.comparison.paired import Model, Pair, _numbers, compare_pairs
from seqlab.comparison.scores import bleu_of, bleu_parts, read_scores
from seqlab.comparison.statistics import resampled, seeds_needed

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box"]
SEEDS = ("0", "1", "2")


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(5)


def model(folder: Path, name: str, runs: list[list[Any]], seeds: tuple[str, ...] = SEEDS) -> Model:
    """A model whose runs have these predictions for each row."""
    scores = []
    for run in runs:
        path = folder / "said.jsonl"
        path.write_text("".join(json.dumps({"row": row, **said}) + "\n" for row, said in enumerate(run)))
        scores.append(read_scores(path, name, "13a"))
    return Model(name, seeds[: len(runs)], scores)


def losses(draw: np.random.Generator, means: list[float], examples: Any) -> list[list[Any]]:
    """Windows of four tokens; examples (N,) are as hard for every run."""
    return [[{"nats": (mean + its + 0.1 * draw.normal(size=4)).tolist()} for its in examples] for mean in means]


def only(first: Model, second: Model) -> Pair:
    (pair,) = compare_pairs(first, [second])
    return pair


def test_a_difference_over_seeds_and_examples_is_told(tmp_path: Path, draw: np.random.Generator) -> None:
    examples = draw.normal(3, 1, 200)
    better = model(tmp_path, "gru", losses(draw, [0.01, -0.01, 0.0], examples))
    worse = model(tmp_path, "rnn", losses(draw, [0.3, 0.32, 0.31], examples))
    pair = only(worse, better)
    assert pair.found.value == pytest.approx(0.31, abs=0.01) and pair.p < 0.01
    assert re.fullmatch(r"gru is better than rnn by 0\.31\d ± 0\.0\d+ nats \(3 seeds\)", pair.sentence)
    by_seed = np.array([[its.total(its.parts.sum(0)) for its in of.scores] for of in (worse, better)])
    of_seeds = stats.ttest_rel(*by_seed)
    assert of_seeds.confidence_interval().high - pair.found.value < pair.found.half_width
    same_seeds_elsewhere = Model("gru", ("2", "0", "1"), [better.scores[place] for place in (2, 0, 1)])
    assert only(worse, same_seeds_elsewhere).p == pytest.approx(pair.p)


def test_what_seeds_alone_would_tell_other_examples_may_not(tmp_path: Path, draw: np.random.Generator) -> None:
    """Ten examples, on which the first is better or worse at random, but each seed alike."""
    examples, apart = draw.normal(3, 1, 10), draw.normal(0.1, 1, 10)
    first = model(tmp_path, "a", losses(draw, [0.0] * 3, examples))
    second = model(tmp_path, "b", losses(draw, [0.0] * 3, examples + apart))
    pair = only(first, second)
    assert pair.p > 0.05
    assert re.search(r"told apart; about [\d,]+ test examples would be needed, there are 10 ", pair.sentence)


def test_the_seeds_that_would_be_needed(tmp_path: Path, draw: np.random.Generator) -> None:
    examples = draw.normal(3, 1, 500)
    noise = [0.0, 0.1, 0.2]
    first = model(tmp_path, "a", losses(draw, noise, examples))
    second = model(tmp_path, "b", losses(draw, [0.3, 0.05, 0.2], examples), ("7", "8", "9"))
    said = r"a and b: not told apart; about (\d\d) seeds would be needed \(3 seeds\)"
    alone, of_nine = (compare_pairs(first, [second] * times)[0].sentence for times in (1, 9))
    fewer, more = (re.fullmatch(said, sentence) for sentence in (alone, of_nine))
    assert fewer and more and int(more[1]) > 1.3 * int(fewer[1]), "by Holm more are needed"
    ours, theirs = (np.array([its.total(its.parts.sum(0)) for its in of.scores]) for of in (first, second))
    effect, spread = ours.mean() - theirs.mean(), np.hypot(ours.std(ddof=1), theirs.std(ddof=1))
    of_one, of_both = (seeds_needed(effect, spread, samples=samples) for samples in (1, 2))
    assert int(fewer[1]) == of_both != of_one, "Student's t of both models' seeds"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([0.0, 0.02], [0.1, 0.11, 0.12, 0.13, 0.1], "about 6 seeds would be needed (5 and 2 seeds)"),
        ([0.0, 2.0], [2.01, 0.03], "over 1,000 seeds would be needed"),
    ],
)
def test_more_seeds_would_be_needed_than_there_are_or_than_can_be(
    ours: list[float], theirs: list[float], said: str, tmp_path: Path, draw: np.random.Generator
) -> None:
    examples = draw.normal(3, 1, 500 if len(theirs) > 2 else 4000)
    seeds = ("4", "5", "6", "7", "8") if len(theirs) > 2 else SEEDS
    first = model(tmp_path, "a", losses(draw, ours, examples))
    second = model(tmp_path, "b", losses(draw, theirs, examples), seeds)
    sentence = only(first, second).sentence
    assert sentence.startswith("a and b: not told apart; ") and said in sentence


def test_single_runs_have_the_interval_of_the_examples(tmp_path: Path) -> None:
    right = [[k % 3 > 0 for k in range(300)], [k % 3 > 0 or k % 20 == 0 for k in range(300)]]
    said = [[[{"label": "x", "right": its} for its in run]] for run in right]
    worse, better = model(tmp_path, "a", said[0]), model(tmp_path, "b", said[1])
    pair = only(better, worse)
    expected = stats.ttest_rel(*np.array(right[::-1], dtype=float))
    assert pair.found.value == pytest.approx(5 / 300)
    assert pair.found.error == pytest.approx(5 / 300 / expected.statistic, rel=0.1)
    assert pair.p == pytest.approx(expected.pvalue, abs=0.02)
    assert pair.sentence == f"b beats a on these examples by {pair.numbers} of accuracy (1 seed: undecided)"
    assert only(better, better).p == 1 and "no difference" in only(better, better).sentence


@pytest.mark.parametrize(("field", "better"), [("nats", "b"), ("right", "a"), ("squared_error", "b")])
def test_a_row_may_have_several_places(field: str, better: str, tmp_path: Path, draw: np.random.Generator) -> None:
    """The score is the mean over places; what is resampled is rows."""
    lengths = draw.integers(1, 9, 40)
    runs = {name: [[far + draw.random() for _ in range(n)] for n in lengths] for name, far in (("a", 3.0), ("b", 1.0))}
    one, two = (model(tmp_path, name, [[{field: its} for its in run]]) for name, run in runs.items())
    pair = only(one, two)
    assert pair.found.value == pytest.approx(np.mean([*chain(*runs["a"])]) - np.mean([*chain(*runs["b"])]))
    assert pair.sentence.startswith(f"{better} beats ")


def test_rows_that_have_no_number_go_by_their_places(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    path.write_text('{"nats": [1.0, 2.0]}\n{"nats": [3.0]}\n')
    assert read_scores(path, "mine", "13a").examples == [(0, 2), (1, 1)]


def test_several_comparisons_are_holms(tmp_path: Path, draw: np.random.Generator) -> None:
    examples = draw.normal(3, 1, 100)
    means = {"a": 0, "b": 0.013, "c": 0.02}
    models = [model(tmp_path, name, losses(draw, [mean], examples)) for name, mean in means.items()]
    alone = [only(models[0], other).p for other in models[1:]]
    together = [pair.p for pair in compare_pairs(models[0], models[1:])]
    assert alone[0] > 2 * alone[1] > 1e-5
    assert together == pytest.approx([alone[0], 2 * alone[1]])


def test_bleu_and_its_bootstrap_are_sacrebleus(draw: np.random.Generator) -> None:
    references = [[" ".join(draw.choice(WORDS, 8)) for _ in range(1 + row % 2)] for row in range(60)]
    spoil = lambda text, share: " ".join(w if draw.random() > share else "x" for w in text.split())  # noqa: E731
    systems = [[spoil(its[0], share) for its in references] for share in (0.2, 0.26)]
    streams = [[its[k] if k < len(its) else None for its in references] for k in range(2)]
    parts = [bleu_parts(texts, references) for texts in systems]
    found = [float(bleu_of(its.sum(0))) for its in parts]
    assert found == pytest.approx([BLEU().corpus_score(texts, streams).score for texts in systems])  # type: ignore[arg-type]

    drawn = bleu_of(resampled(parts[0])) - bleu_of(resampled(parts[1]))
    named = list(zip(("first", "second"), systems, strict=True))
    _, results = PairedTest(named, {"BLEU": BLEU()}, streams, test_type="bs", n_samples=1000)()  # type: ignore[arg-type]
    one_sided = (np.sum(np.abs(drawn) - np.abs(drawn).mean() > abs(found[0] - found[1])) + 1) / 1001
    assert results["BLEU"][1].p_value == pytest.approx(one_sided)


def test_bleu_is_compared_by_resampled_texts(tmp_path: Path, draw: np.random.Generator) -> None:
    references = [" ".join(draw.choice(WORDS, 8)) for _ in range(60)]
    good = [[{"text": text, "references": [text]} for text in references]]
    bad = [[{"text": f"x {text[4:]}", "references": [text]} for text in references]]
    pair = only(model(tmp_path, "good", good), model(tmp_path, "bad", bad))
    by = r"good beats bad on these examples by \d\d\.?\d* ± [\d.]+ BLEU \(1 seed: undecided\)"
    assert re.fullmatch(by, pair.sentence)


def test_what_cannot_be_compared_is_refused(tmp_path: Path, draw: np.random.Generator) -> None:
    first, second = (model(tmp_path, "a", losses(draw, [0.0], np.ones(count))) for count in (4, 5))
    with pytest.raises(ValueError, match="not tested on the same examples"):
        compare_pairs(first, [second])
    with pytest.raises(ValueError, match=r"said.jsonl has row, number for a row; a can be compared by nats, right"):
        model(tmp_path, "a", [[{"number": 1}, {"number": 2}]])
    with pytest.raises(ValueError, match="a has nats that are not numbers: it has diverged"):
        model(tmp_path, "a", [[{"nats": [1.0]}, {"nats": [2.0, float("nan")]}]])
    with pytest.raises(ValueError, match="a has predictions of 1 rows"):
        model(tmp_path, "a", [[{"nats": [1]}]])


@pytest.mark.parametrize(
    ("value", "half_width", "said"),
    [
        (1234.5, 120.0, "1234 ± 120"),
        (123.4, 25.3, "123 ± 25"),
        (12.34, 9.96, "12.3 ± 10.0"),
        (1.2345, 0.0123, "1.234 ± 0.012"),
        (0.5, 1.1e-6, "0.5000000 ± 0.0000011"),
        (0.5, 1e-6, "0.5000 ± 0.0000"),
    ],
)
def test_a_half_width_has_two_digits(value: float, half_width: float, said: str) -> None:
    assert _numbers(value, half_width) == said
