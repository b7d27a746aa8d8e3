"""Scores of entities: by hand and seqeval's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score

from seqlab.tasks.entities import EntityScores, spell_entities

TAGS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]


def scores_of(predicted: list[list[str]], true: list[list[str]]) -> dict[str, float]:
    metric = EntityScores()
    for guess, truth in zip(predicted, true, strict=True):
        metric.update([guess], [truth])
    return {name: float(value) for name, value in metric.compute().items()}


@pytest.mark.parametrize(
    ("predicted", "true", "precision", "recall"),
    [
        # PER 0-1, PER 3 for PER 0-1, LOC 3, and LOC 0, LOC 1 for LOC 0-1: an entity is right as a whole or not.
        (["B-PER I-PER O B-PER", "B-LOC B-LOC O"], ["B-PER I-PER O B-LOC", "B-LOC I-LOC O"], 1 / 4, 1 / 3),
        # As the CoNLL-2003 shared task counts: an I that follows no B of its type begins an entity.
        (["O I-PER I-LOC"], ["O B-PER B-LOC"], 1, 1),
        (["O O"], ["O O"], 0, 0),
        # Entities need no type: 0-1, 2 for 0, 2.
        (["B I B"], ["B O B"], 1 / 2, 1 / 2),
    ],
)
def test_entities_by_hand(predicted: list[str], true: list[str], precision: float, recall: float) -> None:
    found = scores_of([line.split() for line in predicted], [line.split() for line in true])
    f1 = 2 * precision * recall / (precision + recall) if precision else 0
    assert {name: value for name, value in found.items() if "by_length" not in name} == pytest.approx(
        {"precision": precision, "recall": recall, "f1": f1}
    )


SENTENCES = st.lists(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=12))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning", "ignore::UserWarning")
@settings(max_examples=50)
@given(SENTENCES, st.booleans())
def test_any_tags_score_as_seqeval_scores_the_corpus(pairs: list[list[tuple[str, str]]], same: bool) -> None:
    """Also of a corpus whose first sentence is right."""
    predicted, true = ([[pair[which] for pair in sentence] for sentence in pairs] for which in (0, 1))
    predicted[:same] = true[:same]
    found = scores_of(predicted, true)
    for name, score in {"precision": precision_score, "recall": recall_score, "f1": f1_score}.items():
        assert found[name] == pytest.approx(score(true, predicted) if pairs else 0, rel=1e-6), name
    for name, low, high in (("1-8", 1, 8), ("9-16", 9, 16)):
        rows = [row for row, sentence in enumerate(true) if low <= len(sentence) <= high]
        of_length = [[tags[row] for row in rows] for tags in (true, predicted)]
        if any(tag != "O" for tags in of_length for sentence in tags for tag in sentence):
            assert found[f"f1_by_length/{name}"] == pytest.approx(f1_score(*of_length), rel=1e-6)
        else:
            assert f"f1_by_length/{name}" not in found, "sentences without entities have no score"


def test_which_labels_spell_entities() -> None:
    for labels in (TAGS, ["O"], ["S-X-Y", "E-X-Y"], ["B", "I", "O"]):
        assert spell_entities(labels)
    for labels in (["NOUN", "O"], ["B-", "O"], ["IN", "O"], ["B-LOC", "ORG"]):
        assert not spell_entities(labels)
