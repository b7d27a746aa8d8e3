"""LoRA of a language model: what is selected, trained, decayed, counted and merged."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from seqlab.attention import Attention
from seqlab.budgets.flops import decoding_flops, forward_flops
from seqlab.config.lora import Lora
from seqlab.models import DecoderLM
from seqlab.nn.lora import LowRankLinear, adapt, merged
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab_export.capture.precision import in_dtype

V, T = 11, 8


def made(**options: Any) -> LanguageModeling:
    torch.manual_seed(0)
    mixer = partial(Attention, num_heads=2)
    return LanguageModeling(V, T, model=partial(DecoderLM, d_model=8, num_layers=2, mixer=mixer, **options))


def trained(lora: Lora) -> LanguageModeling:
    """A task after a few steps with updates of its weights."""
    adapt(task := made(), lora)
    optimizer = task.new_optimizer()
    for _ in range(3):
        cross_entropy(logits(task).flatten(0, 1), drawn().flatten()).backward()
        optimizer.step()
    return task


def drawn() -> torch.Tensor:
    return torch.randint(V, (2, T), generator=torch.Generator().manual_seed(1))


def logits(task: LanguageModeling) -> torch.Tensor:
    found: torch.Tensor = task.model(drawn())[0]
    return found


def chosen(task: LanguageModeling) -> list[str]:
    return [name for name, part in task.model.named_modules() if isinstance(part, LowRankLinear)]


def test_the_default_is_every_linear_layer_of_the_blocks() -> None:
    adapt(task := made(tie_embeddings=False), Lora())
    linear = {name for name, part in task.model.named_modules() if isinstance(part, torch.nn.Linear)}
    assert {*chosen(task)} == linear - {"head"} and len(linear) > 8
    adapt(task := made(tie_embeddings=False), Lora(targets=r"1\.mixer\.q_proj|^head\.weight$"))
    assert chosen(task) == ["stack.blocks.1.mixer.q_proj", "head"]


def test_the_first_loss_is_that_of_the_model_before() -> None:
    """Bit for bit."""
    before = logits(task := made())
    adapt(task, Lora())
    assert torch.equal(logits(task), before)


def test_updates_alone_are_trained_and_decayed_as_matrices() -> None:
    before = made().model.state_dict()
    task = trained(Lora(rank=2))
    optimizer: Any = task.new_optimizer()
    matrices, others = optimizer.param_groups
    assert len(matrices["params"]) == 2 * len(chosen(task)) and matrices["weight_decay"] == 0.1
    assert others["params"] == [] and all(name[-2:] in ("_a", "_b") for name in matrices["param_names"])
    for name, weight in task.model.state_dict().items():
        if name[-2:] not in ("_a", "_b"):
            assert torch.equal(weight, before[name.replace("frozen", "weight")]), name
        elif name.endswith("_b"):
            assert weight.all()  # each entry has moved


def test_a_merged_model_is_a_plain_one() -> None:
    """It is that of an export and of its checkpoint's weights, bit for bit; the original keeps its updates."""
    lora = Lora(rank=3, alpha=0.7)
    task = trained(lora)
    copied = in_dtype(task.model, "fp32")
    assert len(chosen(task)) > 8 and type(copied.stack.blocks[0].mixer.q_proj) is torch.nn.Linear
    made().model.load_state_dict(copied.state_dict())
    of_checkpoint = merged(task.model.state_dict(), lora)
    assert of_checkpoint.keys() == copied.state_dict().keys()
    assert all(torch.equal(weight, of_checkpoint[name]) for name, weight in copied.state_dict().items())
    torch.testing.assert_close(copied(drawn())[0], logits(task), rtol=1e-5, atol=1e-6)
    assert torch.equal(pickle.loads(pickle.dumps(task.model))(drawn())[0], logits(task))


def test_flops_are_those_of_the_merged_model() -> None:
    plain, task = made().model, trained(Lora())
    assert forward_flops(task.model, T) == forward_flops(plain, T)
    assert decoding_flops(task.model, T) == decoding_flops(plain, T)


def test_what_cannot_be_updated_is_refused() -> None:
    adapt(made(), Lora(rank=8))
    with pytest.raises(ValueError, match=r"--lora.rank 9 is above 8, the smaller dimension of stack\.blocks\.0\.mixer"):
        adapt(task := made(), Lora(rank=9))
    assert all(weight.requires_grad for weight in task.parameters())
    with pytest.raises(ValueError, match=r"mixer\.z matches no weight .* in any block: stack\.blocks\.0\.mixer\.q_pro"):
        adapt(made(), Lora(targets="mixer.z"))
    for options, said in (
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"alpha": 0.0}, "alpha must be above 0, got 0.0"),
        ({"alpha": float("inf")}, "alpha must be above 0"),
        ({"targets": "("}, r"targets \( is not a regular expression: missing \)"),
    ):
        with pytest.raises(ValueError, match=f"--lora.{said}"):
            Lora(**options)
    assert Lora(rank=4).scale == 1 and Lora(rank=4, alpha=1e-9).scale == 2.5e-10
