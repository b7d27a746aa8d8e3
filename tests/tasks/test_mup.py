"""Maximal-update parametrisation against table 8 written out, and the changes of activations over widths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention import (
    AdditiveAttention,
    Attention,
    GatedDeltaNet,
    Mamba2,
    QueryKeyNorm,
    Retention,
)
from seqlab.mixer import Mixer
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq
from seqlab.nn import Block
from seqlab.optim import SGD, AdamW, DecayMatrices, LayerwiseDecay, Lion, Muon, ScaledGroups, trained_alike
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tasks.mup import begin_mup, scale_weights
from seqlab.tasks.translation import Translation

V, T = 8, 8
BASE = 64
WIDTHS = (64, 128, 256, 512, 1024)
MIXERS: dict[str, tuple[Callable[..., Mixer], Any]] = {
    "Attention": (Attention, RoPE),
    "GRU": (GRU, NoPositions),
    "Mamba2": (Mamba2, NoPositions),
    "GatedDeltaNet": (GatedDeltaNet, NoPositions),
}


def tokens(seed: int) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(V, (1, T + 1), generator=torch.Generator().manual_seed(seed))
    return drawn[:, :-1], drawn[:, 1:]


def made(width: int, seed: int, **options: Any) -> DecoderLM:
    torch.manual_seed(seed)
    return DecoderLM(V, T, d_model=width, **options)


def train(model: nn.Module, optimizer: Any, seed: int, steps: int) -> None:
    inputs, targets = tokens(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs)[0].flatten(0, 1), targets.flatten()).backward()
        optimizer.step()


def grouped(model: nn.Module, rule: Any, lr: float) -> Any:
    named = list(model.named_parameters())
    return trained_alike(rule(named), {weight: name for name, weight in named}, lr)


def outputs(model: DecoderLM, seed: int) -> list[Tensor]:
    """Outputs of the blocks, and the logits."""
    found: list[Tensor] = []
    hooks = [b.register_forward_hook(lambda *args: found.append(args[2][0])) for b in model.stack.blocks]
    with torch.no_grad():
        logits = model(tokens(seed)[0])[0]
    for hook in hooks:
        hook.remove()
    return [*found, logits]


def changes(name: str, width: int, seeds: int, *, mup: bool) -> Tensor:
    """Mean absolute change of each block's output and of the logits in ten steps, averaged over seeds: (3,)."""
    mixer, positions = MIXERS[name]
    found = torch.zeros(3)
    for seed in range(seeds):
        model = made(width, seed, mixer=mixer, positions=positions)
        rule: Any = DecayMatrices(0.1)
        if mup:
            rule = ScaledGroups(rule, scale_weights(model, made(BASE, 99, mixer=mixer, positions=positions)))
        before = outputs(model, seed)
        train(model, AdamW(grouped(model, rule, 2**-10), 2**-10), seed, 10)
        after = outputs(model, seed)
        found += torch.stack([(new - old).abs().mean() for new, old in zip(after, before, strict=True)]) / seeds
    return found


def check_flat(name: str, widths: tuple[int, ...]) -> None:
    """With the parametrisation each change is within 10% of its mean over the widths."""
    found = torch.stack([changes(name, width, 4, mup=True) for width in widths])
    print(f"{name}: blocks and logits, relative to width {widths[0]}", (found / found[0]).T.tolist())
    assert ((found / found.mean(dim=0)) - 1).abs().max() < 0.1


@pytest.mark.parametrize("name", ["Attention", "GRU"])
def test_activations_change_alike_at_each_width(name: str) -> None:
    check_flat(name, WIDTHS[:3])
    plain = [changes(name, width, 2, mup=False) for width in (WIDTHS[0], WIDTHS[2])]
    assert (plain[1] / plain[0]).min() > 1.8


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_activations_change_alike_from_64_to_1024(name: str) -> None:
    check_flat(name, WIDTHS)
    plain = [changes(name, width, 2, mup=False) for width in (WIDTHS[0], WIDTHS[-1])]
    print("without:", (plain[1] / plain[0]).tolist())
    assert (plain[1] / plain[0]).min() > 5


class Table8(nn.Module):
    """A model whose logits have table 8's multiplier."""

    def __init__(self, model: DecoderLM, multiplier: float) -> None:
        super().__init__()
        self.model, self.multiplier = model, multiplier

    def forward(self, inputs: Tensor) -> tuple[Tensor]:
        return (self.multiplier * self.model(inputs)[0],)


def table_8_groups(model: nn.Module, lr: float, growth: float, decay: float) -> list[dict[str, Any]]:
    """Learning rates of table 8 for Adam, and a decay that is the same at each width."""
    matrices = [w for name, w in model.named_parameters() if name.endswith("proj.weight")]
    tables = [w for name, w in model.named_parameters() if name.endswith(("embedding.weight", "table.weight"))]
    vectors = [w for w in model.parameters() if w.dim() == 1]
    assert len(matrices) + len(tables) + len(vectors) == len(list(model.parameters()))
    return [
        {"params": matrices, "lr": lr / growth, "weight_decay": decay * growth},
        {"params": tables, "lr": lr, "weight_decay": decay},
        {"params": vectors, "lr": lr, "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("optimizer", [partial(AdamW, eps=1e-30), Lion])
def test_steps_are_those_of_table_8_with_its_multipliers(optimizer: Callable[[Any, float], Any]) -> None:
    """Multipliers on scores and logits, or factors on initial weights and learning rates: the steps are the same."""
    growth, heads, lr = 4.0, 4, 0.01
    base = made(BASE // 4, 0, positions=Learned).double()
    model = made(BASE, 1, positions=Learned).double()
    factors = scale_weights(model, base)
    scale = (BASE // 4 / heads) ** 0.5 / (BASE / heads)  # 1/d, and 1/sqrt(d) at the base width
    table = made(BASE, 1, mixer=partial(Attention, scale=scale), positions=Learned).double()
    for name, weight in table.named_parameters():
        divisor = 0.5 if "q_proj" in name else 1 / growth if "stack.norm" in name else 1.0
        weight.data.copy_(model.get_parameter(name) / divisor)
    with_multipliers = Table8(table, 1 / growth)
    first = outputs(model, 0)[-1]
    assert torch.allclose(with_multipliers(tokens(0)[0])[0], first, rtol=1e-10, atol=1e-14)
    train(with_multipliers, optimizer(table_8_groups(table, lr, growth, 0.1), lr), 0, 5)
    train(model, optimizer(grouped(model, ScaledGroups(DecayMatrices(0.1), factors), lr), lr), 0, 5)
    trained = outputs(model, 0)[-1]
    assert torch.allclose(with_multipliers(tokens(0)[0])[0], trained, rtol=1e-8, atol=1e-12)
    assert (trained - first).abs().mean() > 0.1


def test_initial_weights_and_rates_of_each_kind_of_parameter() -> None:
    """Relative to the base width, of which this is four times as wide."""
    options: Any = {
        "mixer": [GRU, Mamba2, Retention],
        "num_layers": 3,
        "positions": NoPositions,
        "tie_embeddings": False,
    }
    base, model = made(BASE, 0, **options), made(4 * BASE, 1, **options)
    factors = scale_weights(model, base)
    expected = {  # the factor on the rate, and the root mean square of the initial weights over the base's
        "embedding.weight": (1, 1),
        "head.weight": (1 / 4, 1 / 4),
        "stack.blocks.0.mixer.cell.weight_hh_l0": (1 / 4, 1 / 2),
        "stack.blocks.0.mixer.cell.bias_hh_l0": (1, 1 / 2),  # PyTorch's, left as they are
        "stack.blocks.0.ffn.up_proj.weight": (1 / 4, 1 / 2),
        "stack.blocks.1.mixer.conv.conv.weight": (1, 1),
        "stack.blocks.1.mixer.out_proj.weight": (1 / 4, 1 / 2),
        "stack.blocks.2.mixer.head_norm.weight": (1, 1),
        "stack.norm.weight": (1, 1),
    }
    for name, (factor, size) in expected.items():
        assert factors[name] == factor, name
        rms = [one.get_parameter(name).square().mean().sqrt().item() for one in (model, base)]
        assert rms[0] / rms[1] == pytest.approx(size, rel=0.05 if "bias" in name else 1e-5), name


def test_queries_and_what_precedes_a_tied_output_take_the_multipliers() -> None:
    encoder = partial(Encoder, mixer=Attention, d_model=BASE)
    wide = partial(Encoder, mixer=Attention, d_model=4 * BASE)
    post = partial(Block, norm_place="post")
    normed = partial(Attention, parts=[QueryKeyNorm])
    unscaled = partial(Attention, scale=1.0)
    cases: list[tuple[Callable[[Any, Any], nn.Module], dict[str, float]]] = [
        (
            lambda d, e: DecoderLM(V, T, d_model=d),
            {"stack.norm.weight": 1 / 4, "stack.blocks.0.mixer.q_proj.bias": 1 / 2},
        ),
        (
            lambda d, e: DecoderLM(V, T, d_model=d, mixer=normed),
            {"stack.blocks.0.mixer.parts.0.q_norm.weight": 1 / 2, "stack.blocks.0.mixer.q_proj.weight": 1 / 4},
        ),
        (lambda d, e: DecoderLM(V, T, d_model=d, mixer=unscaled), {"stack.blocks.0.mixer.q_proj.weight": 1 / 16}),
        (lambda d, e: DecoderLM(V, T, d_model=d, block=post), {"stack.blocks.1.ffn_norm.bias": 1 / 4}),
        (lambda d, e: MaskedLM(V, T, encoder=e), {"norm.weight": 1 / 2, "encoder.embedding.weight": 1 / 2}),
        (
            lambda d, e: EncoderDecoder(V, V, T, encoder=e, tie_embeddings="all"),
            {
                "stack.norm.weight": 1 / 2,
                "encoder.embedding.weight": 1 / 2,
                "stack.blocks.1.mixer.q_proj.weight": 1 / 8,
            },
        ),
        (lambda d, e: Classifier(V, 3, T, encoder=e), {"head.weight": 1 / 4, "encoder.stack.norm.weight": 1}),
    ]
    for make, expected in cases:
        model, base = make(4 * BASE, wide), make(BASE, encoder)
        before = {name: weight.clone() for name, weight in model.named_parameters()}
        factors = scale_weights(model, base)
        assert {name: factors[name] for name in expected} == pytest.approx(expected)
        for name in (name for name in expected if name.endswith("norm.weight")):
            assert torch.equal(model.get_parameter(name), before[name] * factors[name])


def test_nothing_changes_at_the_base_width() -> None:
    model, same = made(BASE, 1), made(BASE, 1)
    assert set(scale_weights(model, made(BASE, 0)).values()) == {1.0}
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.parameters(), same.parameters(), strict=True))


def test_factors_multiply_the_rates_of_another_rule() -> None:
    model = made(16, 0)
    factors = {name: 0.5 if "q_proj" in name else 1.0 for name, _ in model.named_parameters()}
    for group in grouped(model, ScaledGroups(LayerwiseDecay(0.1, ratio=0.5), factors), 1.0):
        for name in group["param_names"]:
            depth = 1.0 if name.startswith("stack.norm") else 2 ** -(3 if "embed" in name else 2 - int(name[13]))
            factor = factors[name]
            decay = 0.1 if name.endswith("weight") and "norm" not in name else 0.0
            assert group["lr"] == depth * factor and group["weight_decay"] == decay / factor


def task_of(model: Callable[..., nn.Module], **options: Any) -> LanguageModeling:
    return LanguageModeling(V, T, model=model, **options)


def test_refusals() -> None:
    attentive = partial(EncoderDecoder, encoder=partial(Encoder, mixer=GRU, d_model=16), mixer=AdditiveAttention)
    bare = partial(DecoderLM, d_model=16, block=partial(Block, norm_place="none"))
    cases: list[tuple[Any, str]] = [
        (
            Translation(V, V, T, model=RNNSeq2Seq),
            "a Stack of blocks, which RNNSeq2Seq does not have",
        ),
        (nn.Linear(2, 2), "which Linear does not have"),
        (task_of(partial(DecoderLM, d_model=16), optimizer=SGD), "AdamW and Lion, but model.optimizer is SGD"),
        (task_of(partial(DecoderLM, d_model=16), optimizer=Muon), "AdamW and Lion, but model.optimizer is Muon"),
        (
            Translation(V, V, T, model=attentive),
            "scores of AdditiveAttention; accepted: CrossAttention",
        ),
        (task_of(bare), 'there is none with norm_place "none"'),
    ]
    for task, says in cases:
        before = [weight.clone() for weight in task.parameters()]
        with pytest.raises(ValueError, match=says):
            begin_mup(task, task)
        assert all(torch.equal(weight, old) for weight, old in zip(task.parameters(), before, strict=True))
    begin_mup(task_of(partial(DecoderLM, d_model=16), optimizer=Lion), task_of(partial(DecoderLM, d_model=8)))
