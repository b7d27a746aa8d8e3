"""Distillation against its formula in NumPy, its limits, and a teacher that is no part of the task."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scale.kinds import characters, of_kind, told, write_teacher
from seqlab.attention import Attention
from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab.tasks import Distillation, LanguageModeling, large_vocabulary
from seqlab.tasks.distillation import summed_divergence
from tasks.evaluated import trained, with_batch
from trainers import quiet_trainer

V = 37
TARGETS = torch.arange(24).view(3, 8).masked_fill(torch.arange(8) > torch.tensor([[8], [4], [0]]), IGNORE)
TEXT = TokenBatch(torch.arange(24).view(3, 8) % 11, TARGETS, num_chars=torch.ones(3, dtype=torch.int64))
STUDENT = partial(DecoderLM, d_model=8, num_layers=1, mixer=GRU, positions=NoPositions, dropout=0.2)
TEACHER = partial(DecoderLM, d_model=12, num_layers=1, mixer=partial(Attention, num_heads=2), dropout=0.5)
CHUNKS = [large_vocabulary.AT_ONCE, 5 * (V + 1)]
"""All rows at once, and 5; the last chunk has fewer."""


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def distilled(teacher: Any = None, model: Any = STUDENT, **options: Any) -> Distillation:
    """Task in float64 of the same first weights each time; its teacher has large weights."""
    torch.manual_seed(0)
    task = Distillation(V, 8, model=model, teacher="unread", **options).double()
    if teacher is None:
        teacher = TEACHER(V, 8).double()
        for weight in teacher.parameters():
            weight.data.mul_(4)
    vars(task)["taught_by"] = teacher.eval().requires_grad_(False)
    return task


def step(task: LanguageModeling) -> list[Tensor]:
    """Loss of a batch, and the gradients of all weights."""
    torch.manual_seed(1)  # of dropout
    total, count = task.loss(TEXT)
    total.backward()
    gradients = [weight.grad for weight in task.parameters() if weight.grad is not None]
    assert count == 14 and len(gradients) > 5
    return [total.detach(), *gradients]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_divergence_and_gradient(temperature: float) -> None:
    """The gradient is tau (q - p). One row has logits of 1,000."""
    rng = np.random.default_rng(0)
    teacher, student = rng.normal(size=(2, 3, 8, V)) * 3
    teacher[0, 1] *= 1000
    counted = TARGETS.numpy() != IGNORE
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.nansum(p * (np.log(p) - np.log(q)), -1)[counted].sum() * temperature**2
    logits = torch.tensor(student, requires_grad=True)
    found = summed_divergence(torch.tensor(teacher), logits, TARGETS, temperature)
    found.backward()
    assert found.item() == pytest.approx(expected, rel=1e-12)
    assert logits.grad is not None
    torch.testing.assert_close(
        logits.grad, torch.tensor(temperature * (q - p) * counted[..., None]), atol=1e-13, rtol=0
    )


@pytest.mark.parametrize("at_once", CHUNKS)
@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_loss_is_the_mixture(z_loss: float, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", at_once)
    task = distilled(share=0.3, temperature=3.0, z_loss=z_loss)
    teacher, student = (model(TEXT.tokens)[0].detach().numpy() for model in (task.taught_by, task.model.eval()))
    p, q = softmax(teacher / 3), softmax(student / 3)
    counted = TARGETS.numpy() != IGNORE
    nats = -np.log(softmax(student))[counted, TARGETS.numpy()[counted]]
    divergence = (p * np.log(p / q)).sum(-1)[counted]
    normaliser = np.log(np.exp(student).sum(-1))[counted]
    expected = (0.7 * nats + 0.3 * 9 * divergence + z_loss * normaliser**2).sum()
    assert 9 * divergence.mean() > 0.1, "this test could not fail"
    total, count = task.loss(TEXT)
    assert total.item() == pytest.approx(expected, rel=1e-12) and count == counted.sum()


@pytest.mark.parametrize("options", [{}, {"share": 1.0, "z_loss": 0.1}, {"model": partial(STUDENT, mixer=Attention)}])
def test_gradients_by_rows(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = step(distilled(**options))
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", CHUNKS[1])
    torch.testing.assert_close(step(distilled(**options)), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("at_once", CHUNKS)
@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_without_a_share_it_is_language_modeling(z_loss: float, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", at_once)
    torch.manual_seed(0)
    plain = step(LanguageModeling(V, 8, model=STUDENT, z_loss=z_loss).double())
    found = step(distilled(share=0.0, z_loss=z_loss))
    assert len(found) == len(plain) and all(torch.equal(*pair) for pair in zip(found, plain, strict=True))


def test_a_student_equal_to_its_teacher_learns_nothing() -> None:
    model = DecoderLM(V, 8, d_model=8, num_layers=1).double()
    task = distilled(model, model=partial(DecoderLM, d_model=8, num_layers=1), share=1.0)
    task.model.load_state_dict(model.state_dict())
    total, *gradients = step(task)
    assert total.abs() < 1e-12 and all(gradient.abs().max() < 1e-12 for gradient in gradients)
    task.share = 0.5
    assert max(gradient.abs().max() for gradient in step(task)[1:]) > 0.1, "this test could not fail"


def test_a_model_of_logits_alone_and_a_teacher_of_features() -> None:
    class OfLogits(nn.Module):
        """The student without its `output`."""

        def __init__(self, *sizes: int) -> None:
            super().__init__()
            self.inner = STUDENT(*sizes)

        def forward(self, tokens: Tensor) -> Any:
            return self.inner(tokens)

    torch.testing.assert_close(step(distilled(model=OfLogits)), step(distilled()), rtol=1e-12, atol=1e-14)


def test_scores_are_those_of_language_modeling(files: Path) -> None:
    """Evaluation does not read the teacher, which has no file here."""
    torch.manual_seed(0)
    plain, task = LanguageModeling(V, 8, model=STUDENT), distilled(share=1.0).float()
    del vars(task)["taught_by"]
    for one in (plain, task):
        one.eval().requires_grad_(False)
    expected, found = (one.evaluate(TEXT) for one in (plain, task))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert torch.equal(task.losses(TEXT), plain.losses(TEXT))


def test_the_teacher_is_frozen_and_no_part_of_the_task(files: Path) -> None:
    task, batch = with_batch("distillation", files)
    before = list(task.state_dict())
    task.train()
    state = torch.get_rng_state()
    teacher = task.taught_by
    assert torch.equal(torch.get_rng_state(), state), "reading it draws no number that the fit would draw"
    trained(task, batch).backward()
    assert list(task.state_dict()) == before and not any(module is teacher for module in task.modules())
    assert not teacher.training and not any(w.requires_grad or w.grad is not None for w in teacher.parameters())
    optimised = [weight for group in task.new_optimizer().param_groups for weight in group["params"]]
    assert not {*map(id, teacher.parameters())} & {*map(id, (*optimised, *task.parameters()))}
    assert trained(task, batch) == trained(task, batch), "the teacher's dropout is off"


def test_the_teacher_has_the_precision_of_the_fit(files: Path) -> None:
    for precision, dtype in (("bf16-true", torch.bfloat16), ("64-true", torch.float64), ("bf16-mixed", torch.float32)):
        data, task = of_kind("distillation", files)
        trainer: Any = quiet_trainer(files, precision=precision, max_steps=1, limit_val_batches=0)
        trainer.fit(task, data)
        assert {weight.dtype for weight in task.taught_by.parameters()} == {dtype}


def test_a_teacher_of_another_vocabulary(files: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("zebras and quails\n" * 60)
    data, other = characters(files), characters(tmp_path)
    write_teacher(tmp_path / "other.ckpt", other)
    task = Distillation(**told(data), model=STUDENT, teacher=str(tmp_path / "other.ckpt"))
    trainer = quiet_trainer(tmp_path, max_steps=1)
    with pytest.raises(ValueError, match=r"other.ckpt was trained with another vocabulary: the vocabulary had .*new: "):
        trainer.fit(task, data)
    task = Distillation(vocab_size=7, seq_len=8, model=STUDENT, teacher=str(files / "teacher.ckpt"))
    with pytest.raises(ValueError, match=r"another vocabulary: vocab_size was \d+ and is 7"):
        _ = task.taught_by


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.0}, {"temperature": 1e-9}])
def test_options_at_their_limits(options: dict[str, float]) -> None:
    Distillation(V, 8, teacher="any", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"share": -0.01}, "share must be from 0 to 1, got -0.01"),
        ({"share": 1.01}, "share must be from 0 to 1, got 1.01"),
        ({"share": float("nan")}, "share must be from 0 to 1, got nan"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be above 0, got nan"),
        ({"z_loss": -1.0}, "z_loss must be at least 0"),
    ],
)
def test_options_out_of_range(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Distillation(V, 8, teacher="any", **options)
