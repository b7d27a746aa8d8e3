"""The translation task: scores against sacrebleu and by hand, and rows that count for nothing."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from torch import Tensor, nn

from seqlab.batch import IGNORE, PairBatch
from seqlab.tasks import Translation
from seqlab.tasks.text_scores import score_texts
from tasks.evaluated import trained, validated

EOS = 2


class Repeats(nn.Module):
    """Writes its source again, then eos; gives each token that it means a probability of 3/4."""

    vocab_size, max_seq_len = 9, None

    def __init__(self, vocab_size: int, target_vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def begin(self, source: Tensor, source_mask: Tensor) -> dict[str, Tensor]:
        ended = torch.where(source_mask, source, EOS)
        return {
            "position": torch.zeros(len(source), dtype=torch.int64),
            "source": nn.functional.pad(ended, (0, 1), value=EOS),
        }

    def forward(self, tokens: Tensor, state: dict[str, Tensor], *, pad_mask: Tensor | None = None) -> Any:
        at = state["position"][:, None] + torch.arange(tokens.shape[1])
        meant = state["source"].gather(1, at.clamp(max=state["source"].shape[1] - 1))
        logits = torch.full((*meant.shape, self.vocab_size), math.log(1 / 4 / 8)) + self.weight
        logits = logits.scatter(2, meant.unsqueeze(-1), math.log(3 / 4))
        return logits, {**state, "position": state["position"] + tokens.shape[1]}

    def step(self, tokens: Tensor, state: dict[str, Tensor]) -> Any:
        logits, state = self(tokens[:, None], state)
        return logits[:, 0], state


def pairs(sources: list[list[int]], targets: list[list[int]], rows: list[int]) -> PairBatch:
    def padded(texts: list[list[int]], value: int) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True, padding_value=value)

    source = padded(sources, 0)
    read = padded([[1, *target] for target in targets], 0)
    return PairBatch(source, source != 0, read, padded([[*t, EOS] for t in targets], IGNORE), torch.tensor(rows))


def decode(ids: list[int]) -> str:
    return " ".join(f"w{token}" for token in ids if token > EOS)


def scores_of(batches: list[PairBatch], references: list[list[str]], seq_len: int = 6) -> dict[str, float]:
    tokenizer = SimpleNamespace(bos_id=1, eos_id=EOS, decode=decode)
    data = SimpleNamespace(tokenizer=tokenizer, references=lambda split: references)
    return validated(Translation(9, 9, seq_len, model=Repeats), batches, data)


def test_scores_are_the_corpuss() -> None:
    """Row 1 is right by its second reference, rows 0 and 2 by their first; row 3 is wrong. One counts for nothing."""
    nothing = pairs([[3]], [[3]], [-1])
    nothing.targets.fill_(IGNORE)
    batches = [
        pairs([[5, 6, 7, 3], [3, 4]], [[8], [3, 4]], [1, 0]),
        pairs([[3], [4, 5]], [[3], [7, 7]], [2, 3]),
        nothing,
    ]
    scores = scores_of(batches, [["w3 w4"], ["w8", "w5 w6 w7 w3"], ["w3"], ["w7 w7"]])
    # Of the targets 8 </s>, 3 4 </s>, 3 </s> and 7 7 </s>: meant are 3 4 </s>, 3 </s> and the last </s>.
    right, wrong = -math.log(3 / 4), -math.log(1 / 32)
    assert scores["val/loss"] == pytest.approx((6 * right + 4 * wrong) / 10)
    assert scores["val/perplexity"] == pytest.approx(math.exp((6 * right + 4 * wrong) / 10))
    assert scores["val/token_accuracy"] == pytest.approx(6 / 10)
    assert scores["val/exact_match"] == pytest.approx(3 / 4)
    written = ["w3 w4", "w5 w6 w7 w3", "w3", "w4 w5"]
    references: Any = [["w3 w4", "w8", "w3", "w7 w7"], [None, "w5 w6 w7 w3", None, None]]
    assert scores["val/bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, references).score, rel=1e-5)
    assert scores["val/bleu_by_length/1-8"] == scores["val/bleu"]


def test_bleu_by_length_is_that_of_the_sources_of_this_length() -> None:
    batch = pairs([[5, 6, 7] * 3 + [5, 6, 8], [3, 4, 5, 6]], [[8], [3, 4]], [1, 0])
    scores = scores_of([batch], [["w3 w4 w5 w6"], [" ".join(["w5 w6 w7"] * 4)]], 20)
    long = sacrebleu.corpus_bleu([" ".join(["w5 w6 w7"] * 3 + ["w5 w6 w8"])], [[" ".join(["w5 w6 w7"] * 4)]])
    assert scores["val/bleu_by_length/1-8"] == pytest.approx(100)
    assert scores["val/bleu_by_length/9-16"] == pytest.approx(long.score, rel=1e-5) != scores["val/bleu"]


def test_bleu_by_hand_and_its_signature() -> None:
    """Precisions 3/4 and 1/3; none of 2 trigrams and of 1 four-gram, smoothed to 1/(2 x 2) and 1/(4 x 1)."""
    scores, signatures = score_texts(["a b c d"], [["a b x d"]])
    assert scores["bleu"] == pytest.approx(100 * (3 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** (1 / 4))
    assert scores["exact_match"] == 0
    assert "nrefs:1" in signatures["bleu"] and f"version:{sacrebleu.__version__}" in signatures["chrf"]
    several, signatures = score_texts(["a b c d", "e"], [["x"], ["f", "e", "g"]])
    assert several["exact_match"] == 1 / 2 and "nrefs:var" in signatures["bleu"]


def test_label_smoothing_is_torchs() -> None:
    batch = pairs([[3, 4]], [[3, 5]], [0])
    task = Translation(9, 9, 6, model=Repeats, label_smoothing=0.2)
    logits, _ = task.model(batch.tokens, task.model.begin(batch.source, batch.source_mask))
    expected = nn.CrossEntropyLoss(label_smoothing=0.2)(logits[0], batch.targets[0])
    assert trained(task, batch).item() == pytest.approx(expected.item(), rel=1e-6)
