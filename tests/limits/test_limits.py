"""Constants that decide, each just inside and just outside."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import lightning as L
import pytest
import torch
from torch import nn

from seqlab.attention import MoBA, TopK
from seqlab.attention.cache import Keys
from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.callbacks.noise_scale import DECAY, GradientNoiseScale
from seqlab.comparison.fair import unfair
from seqlab.comparison.rows import Row, more_is_better
from seqlab.sweeps import queue
from seqlab.tracking.runs import TrackedRun


def keys_of(number: int) -> Keys:
    """Real keys, of which the last is the query's own."""
    places = torch.arange(number)[None]
    return Keys({}, places[:, -1:], places, None, places[:, -1:], {})


@pytest.mark.parametrize(("eps", "is_kept"), [(15, True), (17, False)])
def test_scores_within_16_eps_of_the_kth_tie_with_it(eps: int, is_kept: bool) -> None:
    below = 1 - eps * torch.finfo(torch.float32).eps
    scores = torch.tensor([[1.0, below, 0.5]])
    kept = TopK(8, 1, 8, k=1).scores(scores, keys_of(3), torch.ones(1, 3, dtype=torch.bool))
    assert torch.isfinite(kept).tolist() == [[True, is_kept, False]]


@pytest.mark.parametrize(("eps", "is_kept"), [(15, True), (17, False)])
def test_blocks_within_16_eps_of_the_kth_tie_with_it(eps: int, is_kept: bool) -> None:
    below = 1 - eps * torch.finfo(torch.float32).eps
    scores = torch.tensor([1.0, below, 0.5, 2.0]).repeat_interleave(2).view(1, 1, 1, 8)
    kept = MoBA(8, 1, 8, block=2, k=2).scores(scores, keys_of(8), torch.ones(1, 1, 1, 8, dtype=torch.bool))
    assert torch.isfinite(kept).flatten().tolist() == [True] * 2 + [is_kept] * 2 + [False] * 2 + [True] * 2


MORE = ("acc", "accuracy", "auc", "bleu", "chrf", "exact", "f1", "mfu", "tokens_per_s", "precision", "recall")
LESS = ("loss", "perplexity", "bits_per_char", "bits_per_second", "mae", "seconds", "num_params", "state_size")


@pytest.mark.parametrize("metric", MORE)
def test_a_larger_score_is_better(metric: str) -> None:
    assert more_is_better(f"val/{metric}")


@pytest.mark.parametrize("metric", LESS)
def test_a_smaller_loss_or_cost_is_better(metric: str) -> None:
    assert not more_is_better(f"val/{metric}")


def row(name: str, metrics: dict[str, float]) -> Row:
    run = TrackedRun(name, name, "e", "FINISHED", 0, {}, metrics, {}, cast(Any, None), cast(Any, None))
    return Row((run,), name, 1.0, (1.0,), None, None, None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("metric", "most", "said"),
    [
        ("num_params", 1050, "Parameters differ by 5%: 1k in a, 1.051k in b."),
        ("num_tokens", 1010, "Tokens read differ"),
    ],
)
def test_rows_as_large_within_a_share_are_alike(metric: str, most: int, said: str) -> None:
    def told(size: int) -> list[str]:
        rows = [row("a", {metric: 1000.0}), row("b", {metric: float(size)})]
        return [sentence for sentence in unfair(rows, "val/loss", []) if "differ by" in sentence]

    assert told(most) == []
    (sentence,) = told(most + 1)
    assert sentence.startswith(said)


@pytest.mark.parametrize(("silent", "is_lost"), [(299, False), (301, True)])
def test_a_worker_elsewhere_is_lost_after_five_minutes(
    silent: int, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    assert queue._is_lost({"host.id": "another machine", "beat": str(10_000 - silent)}) == is_lost


@pytest.mark.parametrize(("late", "received", "of_others"), [(True, 0, [0, 15]), (False, 2, [1, 0])])
def test_what_one_rank_is_asked_all_do(late: bool, received: int, of_others: list[int]) -> None:
    """The rule is the largest of the ranks' answers: whether a write is due, and the signal."""

    class Strategy:
        root_device = torch.device("cpu")

        @staticmethod
        def reduce(asked: torch.Tensor, reduce_op: str) -> torch.Tensor:
            both = torch.stack([asked, torch.tensor(of_others)])
            return both.amax(0) if reduce_op == "max" else both.amin(0)

    checkpoint = Checkpoints(every_n_minutes=1)
    checkpoint._saved_at = time.monotonic() - (61 if late else 0)
    checkpoint._signals = cast(Any, SimpleNamespace(received=received))
    asked = checkpoint._asked(cast(L.Trainer, SimpleNamespace(world_size=2, strategy=Strategy())))
    assert asked == (late or bool(of_others[0]), max(received, of_others[1]))


def test_the_noise_scale_takes_off_the_loss_scale() -> None:
    """The first micro-batch's gradient is read before the scaler is undone, the whole step's after."""
    module = nn.Linear(1, 1, bias=False)
    logged: dict[str, float] = {}
    task = cast(Any, SimpleNamespace(num_tokens=10, parameters=module.parameters, log=logged.__setitem__))
    scaler = SimpleNamespace(get_scale=lambda: 1024.0)
    trainer = cast(Any, SimpleNamespace(accumulate_grad_batches=2, precision_plugin=SimpleNamespace(scaler=scaler)))
    probe = GradientNoiseScale()
    probe.on_train_start(trainer, task)
    for gradient in (1024 * 2.0, 1024 * 3.0):
        module.weight.grad = torch.tensor([[gradient]])
        probe.on_after_backward(trainer, task)
    module.weight.grad = torch.tensor([[3.0]])
    probe.on_before_optimizer_step(trainer, task, cast(Any, None))
    # |first micro-batch| = 2 * 2 of 10 tokens, |step| = 3 of 20 tokens: McCandlish et al. 2018, equations A.2 and A.3.
    signal, noise = (20 * 3**2 - 10 * 4**2) / 10, (4**2 - 3**2) / (1 / 10 - 1 / 20)
    assert probe.state_dict() == pytest.approx({"signal": (1 - DECAY) * signal, "noise": (1 - DECAY) * noise})
    assert logged["train/noise_scale"] == pytest.approx(noise / signal)
