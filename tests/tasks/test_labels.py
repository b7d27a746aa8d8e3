"""Classification and tagging: the corpus's scores by hand, what counts for nothing, predictions and the figure."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks import Classification, Tagging
from seqlab.tasks.drawings import confusion_matrix
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


def test_data_that_tells_neither_tokens_nor_features_is_refused() -> None:
    with pytest.raises(ValueError, match="needs data that tells its vocab_size or its num_features"):
        Classification(3, 1, model=Echo)


def test_the_figure_says_what_it_shows() -> None:
    page = confusion_matrix(np.array([[7, 3], [1, 95]]), ["noun", "verb"])
    assert page.count("<svg") == 1 and page.rstrip().endswith("</svg>")
    for text in ("noun", "verb", "predicted", "true", "95"):
        assert text in page


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
