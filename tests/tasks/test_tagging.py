"""The tagging task: scores by hand and against seqeval's of the corpus, and tokens that count for nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks import Tagging
from seqlab.tasks.entities import EntityScores, spell_entities
from trainers import loader, quiet_trainer

TAGS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]


def scores_of(predicted: list[list[str]], true: list[list[str]]) -> dict[str, float]:
    metric = EntityScores()
    for guess, truth in zip(predicted, true, strict=True):
        metric.update([guess], [truth])
    return {name: float(value) for name, value in metric.compute().items() if "by_length" not in name}


def test_entities_by_hand() -> None:
    """True: PER 0-1, LOC 3; LOC 0-1. Predicted: PER 0-1, PER 3; LOC 0, LOC 1: an entity is right as a whole or not."""
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC", "O"]]
    found = scores_of(predicted, true)
    assert found == pytest.approx({"precision": 1 / 4, "recall": 1 / 3, "f1": 2 / 7})


def test_an_i_that_follows_no_b_of_its_type_begins_an_entity() -> None:
    """Entities as the CoNLL-2003 shared task counts them: O I-PER, then I-LOC after it, are two."""
    assert scores_of([["O", "I-PER", "I-LOC"]], [["O", "B-PER", "B-LOC"]])["f1"] == 1


def test_without_entities_the_scores_are_zero() -> None:
    assert scores_of([["O", "O"]], [["O", "O"]]) == {"precision": 0, "recall": 0, "f1": 0}


def test_random_tags_score_as_seqeval_scores_the_corpus() -> None:
    draw = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 12, (60,), generator=draw).tolist()
    true, predicted = ([[TAGS[k] for k in torch.randint(5, (n,), generator=draw)] for n in lengths] for _ in range(2))
    predicted = [a if i % 3 else b for i, (a, b) in enumerate(zip(true, predicted, strict=True))]
    found = scores_of(predicted, true)
    assert 0.1 < found["f1"] < 0.95
    expected = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    assert found == pytest.approx({name: score(true, predicted) for name, score in expected.items()}, rel=1e-6)


def test_f1_by_length_is_that_of_the_sentences_of_this_length() -> None:
    """Short ones are all right, long ones half right; those of over 16 words have no entity."""
    true = [["B-LOC", "O"], ["B-PER"] * 9, ["O"] * 20]
    predicted = [["B-LOC", "O"], ["B-PER"] * 4 + ["B-LOC"] * 4 + ["O"], ["O"] * 20]
    metric = EntityScores()
    metric.update(predicted, true)
    found = {name: float(value) for name, value in metric.compute().items() if "by_length" in name}
    expected = f1_score(true[1:2], predicted[1:2])
    assert found == pytest.approx({"f1_by_length/1-8": 1, "f1_by_length/9-16": expected})


def test_which_labels_spell_entities() -> None:
    for labels in (TAGS, ["O"], ["S-X-Y", "E-X-Y"], ["B", "I", "O"]):
        assert spell_entities(labels)
    for labels in (["NOUN", "O"], ["B-", "O"], ["IN", "O"], ["B-LOC", "ORG"]):
        assert not spell_entities(labels)


def test_entities_need_no_type() -> None:
    """True: 0-1, 2; predicted: 0, 2."""
    assert scores_of([["B", "O", "B"]], [["B", "I", "B"]])["f1"] == 1 / 2


class Echo(nn.Module):
    """Predicts that the tag is the token, as confidently as its parameter says."""

    def __init__(self, vocab_size: int, num_classes: int, seq_len: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.sure = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens: Tensor, *, pad_mask: Tensor) -> Tensor:
        return self.sure * nn.functional.one_hot(tokens, self.num_classes).float()


def batch(tokens: list[list[int]], targets: list[list[int]]) -> LabelledBatch:
    classes = torch.tensor(targets)
    return LabelledBatch(torch.tensor(tokens), classes != IGNORE, classes)


class Data(L.LightningDataModule):
    """Five of seven counted tokens are right, and two of three entities; one more is predicted where there is none."""

    def __init__(self, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels

    def val_dataloader(self) -> DataLoader[LabelledBatch]:
        batches = [
            # PER 0-1, LOC 2 are meant; PER 0-1, LOC 2 are said, and at the pad what does not count.
            batch([[1, 3, 0, 4], [4, 0, 0, 0]], [[1, 3, 0, 4], [4, 4, IGNORE, IGNORE]]),
            batch([[4]], [[0]]),
            batch([[1, 1]], [[IGNORE, IGNORE]]),
        ]
        return loader(batches)


def validated(labels: list[str], folder: Path) -> dict[str, float]:
    trainer = quiet_trainer(folder)
    (scores,) = trainer.validate(Tagging(5, 5, 4, model=Echo), Data(labels), verbose=False)
    return dict(scores)


def test_scores_are_the_corpuss(tmp_path: Path) -> None:
    scores = validated(TAGS, tmp_path)
    right, wrong = (float(-torch.tensor([2.0, 0, 0, 0, 0]).log_softmax(0)[k]) for k in (0, 1))
    assert scores == pytest.approx(
        {
            "val/loss": (5 * right + 2 * wrong) / 7,
            "val/accuracy": 5 / 7,
            "val/accuracy_by_length/1-8": 5 / 7,
            "val/precision": 2 / 3,
            "val/recall": 2 / 3,
            "val/f1": 2 / 3,
            "val/f1_by_length/1-8": 2 / 3,
        }
    )


def test_tags_that_spell_no_entities_have_no_f1(tmp_path: Path) -> None:
    scores = validated(["ADJ", "ADV", "NOUN", "O", "VERB"], tmp_path)
    assert set(scores) == {"val/loss", "val/accuracy", "val/accuracy_by_length/1-8"}


def test_a_batch_that_counts_for_nothing_teaches_nothing_and_label_smoothing_is_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Tagging(5, 5, 4, model=Echo, label_smoothing=0.2)
    monkeypatch.setattr(task, "log", lambda *args, **kwargs: None)
    some = batch([[1, 3, 0, 4], [4, 0, 0, 0]], [[1, 3, 0, 4], [4, 4, IGNORE, IGNORE]])
    expected = nn.CrossEntropyLoss(label_smoothing=0.2)(task._logits(some).flatten(0, 1), some.targets.flatten())
    assert task.training_step(some, 0).item() == pytest.approx(expected.item(), rel=1e-6)
    loss = task.training_step(batch([[1, 1]], [[IGNORE, IGNORE]]), 0)
    loss.backward()
    assert loss == 0 and task.model.sure.grad == 0


def test_predictions_are_the_tags_of_the_real_tokens() -> None:
    task = Tagging(5, 5, 4, model=Echo)
    task._trainer = SimpleNamespace(datamodule=SimpleNamespace(labels=["A", "B", "C", "D", "E"]))  # type: ignore[assignment]
    some = batch([[1, 3], [4, 0]], [[0, 0], [0, IGNORE]])
    some.targets[0, 1] = 3
    assert task.predict_step(some, 0) == [
        {"tags": ["B", "D"], "right": [False, True]},
        {"tags": ["E"], "right": [False]},
    ]
