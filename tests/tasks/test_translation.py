"""Translation and scheduled sampling: scores against sacrebleu and by hand, what the decoder reads, rows of nothing."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from torch import Tensor, nn

from models.test_sequence_to_sequence import built
from seqlab.batch import IGNORE, PairBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.tasks import ScheduledSampling, Translation
from seqlab.tasks.scheduled_sampling import _drawn
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


class Sure(nn.Module):
    """A model whose draws are its likeliest tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, state: Any, *, pad_mask: Tensor | None = None) -> Any:
        logits, state = self.model(tokens, state, pad_mask=pad_mask)
        return 1e6 * logits, state

    def step(self, tokens: Tensor, state: Any) -> Any:
        logits, state = self.model.step(tokens, state)
        return 1e6 * logits, state


@pytest.fixture(params=["transformer", "gru"], name="case")
def _case(request: pytest.FixtureRequest) -> tuple[Any, Any, PairBatch]:
    model, source, mask, _ = built(request.param)
    target = torch.randint(3, 9, (len(source), 7))
    tokens = torch.cat((torch.ones(len(source), 1, dtype=torch.int64), target), dim=1)
    targets = torch.cat((target, torch.full((len(source), 1), 2)), dim=1)
    targets[0, 5:] = IGNORE
    return model, model.begin(source, mask), PairBatch(source, mask, tokens, targets, torch.arange(len(source)))


def test_what_is_read_at_both_ends_of_the_ratio(case: Any) -> None:
    """All true tokens give nothing else; none give the model's own text in sequence, and in parallel its
    choices after true tokens."""
    model, state, batch = case
    sampling = ScheduledSampling(last=0.0)
    assert torch.equal(sampling.tokens(model, batch, state, 0.0), batch.tokens)
    read = sampling.tokens(Sure(model), batch, state, 1.0)
    written = generate(TorchDecoder(model, state), batch.tokens[:, :1].tolist(), max_new_tokens=7)
    real = batch.targets != IGNORE
    assert torch.equal(read[:, 1:][real[:, 1:]], torch.tensor(written)[real[:, 1:]])
    assert torch.equal(read[~real], batch.tokens[~real]) and torch.equal(read[:, 0], batch.tokens[:, 0])
    read = ScheduledSampling(first=0.0, last=0.0, passes="parallel").tokens(Sure(model), batch, state, 0.3)
    for length in range(1, 5):
        logits = model(batch.tokens[:, :length], state)[0][:, -1]
        assert torch.equal(read[:, length], logits.argmax(dim=-1))


@pytest.mark.parametrize("passes", ["sequential", "parallel"])
def test_the_ratio_falls_with_the_fit(passes: Any) -> None:
    model = Repeats(9, 9, 99)
    batch = pairs([[3] * 50] * 40, [[8] * 50] * 40, list(range(40)))
    state = model.begin(batch.source, batch.source_mask)
    sampling = ScheduledSampling(first=0.9, last=0.5, passes=passes)
    for progress, ratio in ((0.0, 0.9), (0.5, 0.7), (1.0, 0.5)):
        read = sampling.tokens(model, batch, state, progress)
        # Of its own tokens one in 32 is the true one by chance.
        share = float((read[:, 1:] == batch.tokens[:, 1:]).double().mean())
        assert share == pytest.approx(ratio + (1 - ratio) / 32, abs=0.04)


def test_draws_have_the_models_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = _drawn(probabilities.log().expand(40_000, 4))
    torch.testing.assert_close(drawn.bincount() / 40_000, probabilities, rtol=0, atol=0.01)


def test_a_training_step_learns_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Translation(9, 9, 6, model=Repeats, sampling=lambda: ScheduledSampling(first=0.0, last=0.0))
    monkeypatch.setattr(task, "_total_steps", lambda: 10)
    loss = trained(task, pairs([[3, 4]], [[3, 5]], [0]))
    loss.backward()
    assert loss.isfinite() and task.model.weight.grad.isfinite()
