"""Classes, tags and entities: the corpus's scores by hand and seqeval's, what counts for nothing, and predictions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from torch import Tensor, nn

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks import Classification, Tagging
from seqlab.tasks.drawings import AttentionMap, attention_maps, confusion_matrix
from seqlab.tasks.entities import EntityScores, spell_entities
from tasks.evaluated import predicted, trained, validated

TAGS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]


class Echo(nn.Module):
    """Is sure that the class is the token, or of a whole text its first one, as sure as its parameter says."""

    def __init__(self, vocab_size: int, num_classes: int, seq_len: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.sure = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens: Tensor, *, pad_mask: Tensor) -> Tensor:
        meant = tokens if self.num_classes == 5 else tokens[:, 0]
        return self.sure * nn.functional.one_hot(meant, self.num_classes).float()


def classification(seq_len: int = 1) -> Classification:
    return Classification(3, seq_len, vocab_size=3, model=Echo)


def texts(first: list[int], classes: list[int]) -> LabelledBatch:
    tokens = torch.tensor(first)[:, None]
    return LabelledBatch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor(classes))


def tagged(tokens: list[list[int]], targets: list[list[int]]) -> LabelledBatch:
    classes = torch.tensor(targets)
    return LabelledBatch(torch.tensor(tokens), classes != IGNORE, classes)


def test_scores_of_texts_are_the_corpuss() -> None:
    """Six rows, of which four are right, in batches of 4, 2 and one that counts for nothing."""
    task = classification()
    scores = validated(task, [texts([0, 1, 2, 0], [0, 1, 2, 1]), texts([0, 1], [0, 2]), texts([1], [IGNORE])])
    right, wrong = (float(-torch.tensor([2.0, 0.0, 0.0]).log_softmax(0)[k]) for k in (0, 1))
    assert scores["val/loss"] == pytest.approx((4 * right + 2 * wrong) / 6)
    assert scores["val/accuracy"] == pytest.approx(4 / 6)
    # Precision and recall: 2/3 and 1; 1/2 and 1/2; 1 and 1/2.
    assert scores["val/f1"] == pytest.approx((4 / 5 + 1 / 2 + 2 / 3) / 3)
    assert scores["val/accuracy_by_length/1-8"] == pytest.approx(4 / 6)
    assert task._last_confusion is not None
    assert task._last_confusion.tolist() == [[2, 0, 0], [1, 1, 0], [0, 1, 1]]


def test_accuracy_by_length_counts_real_tokens() -> None:
    mask = torch.arange(12) < torch.tensor([[12], [3]])
    long = LabelledBatch(torch.tensor([[1] * 12, [2] * 12]), mask, torch.tensor([1, 0]))
    scores = validated(classification(12), [long])
    assert (scores["val/accuracy_by_length/1-8"], scores["val/accuracy_by_length/9-16"]) == (0, 1)


def test_predictions_have_the_labels_names() -> None:
    some = texts([2, 0, 1], [0, 0, IGNORE])._replace(rows=torch.tensor([3, 0, -1]))
    found = predicted(classification(), some, labels=["a", "b", "c"])
    assert [(said["row"], said["label"], said["right"]) for said in found] == [(3, "c", False), (0, "a", True)]
    wrong, right = (float(torch.tensor([2.0, 0.0, 0.0]).softmax(0)[k]) for k in (1, 0))
    assert found[0]["probabilities"] == pytest.approx({"a": wrong, "b": wrong, "c": right})
    assert predicted(classification(), some)[0]["label"] == "2"


def test_the_figure_says_what_it_shows() -> None:
    page = confusion_matrix(np.array([[7, 3], [1, 95]]), ["noun", "verb"])
    assert page.count("<svg") == 1 and page.rstrip().endswith("</svg>")
    for text in ("noun", "verb", "predicted", "true", "95"):
        assert text in page


@pytest.mark.filterwarnings("error")
def test_figures_show_labels_and_tokens_of_any_script() -> None:
    texts = ["日本語", "हिन्दी", "$x^$", "a_b"]
    for page in (
        confusion_matrix(np.eye(4, dtype=int), texts),
        attention_maps([AttentionMap("mixer", np.full((2, 4, 4), 0.25), texts, texts)]),
    ):
        assert all(f">{text}</text>" in page for text in texts)


SOME = tagged([[1, 3, 0, 4], [4, 0, 0, 0]], [[1, 3, 0, 4], [4, 4, IGNORE, IGNORE]])


@pytest.mark.parametrize("labels", [TAGS, ["ADJ", "ADV", "NOUN", "O", "VERB"]])
def test_scores_of_tags_are_the_corpuss(labels: list[str]) -> None:
    """Five of seven counted tokens are right, and two of three entities: PER 0-1 and LOC 2 are meant and said, and LOC
    once where there is none. Tags that spell no entities have no F1."""
    batches = [SOME, tagged([[4]], [[0]]), tagged([[1, 1]], [[IGNORE, IGNORE]])]
    scores = validated(Tagging(5, 5, 4, model=Echo), batches, SimpleNamespace(labels=labels))
    right, wrong = (float(-torch.tensor([2.0, 0, 0, 0, 0]).log_softmax(0)[k]) for k in (0, 1))
    of_tokens = {"val/loss": (5 * right + 2 * wrong) / 7, "val/accuracy": 5 / 7, "val/accuracy_by_length/1-8": 5 / 7}
    of_entities = dict.fromkeys(("val/precision", "val/recall", "val/f1", "val/f1_by_length/1-8"), 2 / 3)
    assert scores == pytest.approx(of_tokens | (of_entities if labels == TAGS else {}))


def test_label_smoothing_of_tags_is_torchs() -> None:
    task = Tagging(5, 5, 4, model=Echo, label_smoothing=0.2)
    expected = nn.CrossEntropyLoss(label_smoothing=0.2)(task._logits(SOME).flatten(0, 1), SOME.targets.flatten())
    assert trained(task, SOME).item() == pytest.approx(expected.item(), rel=1e-6)


def test_predictions_are_the_tags_of_the_real_tokens() -> None:
    some = tagged([[1, 3], [4, 0]], [[0, 3], [0, IGNORE]])
    assert predicted(Tagging(5, 5, 4, model=Echo), some, labels=["A", "B", "C", "D", "E"]) == [
        {"tags": ["B", "D"], "right": [False, True]},
        {"tags": ["E"], "right": [False]},
    ]


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
