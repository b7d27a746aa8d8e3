"""Parameters that decay, and those that learn at another rate."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from torch import nn

from seqlab.attention import Attention, Bidirectional
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder
from seqlab.optim import ByName, DecayMatrices, Groups, LayerwiseDecay, trained_alike
from seqlab.positions import Learned
from seqlab.recurrence import LSTM


def by_name(model: nn.Module, groups: Groups, key: str) -> dict[str, float]:
    """An option of each parameter; each must be in one group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[weight]: group[key] for group in groups for weight in group["params"]}
    assert found.keys() == set(names.values()) and sum(len(group["params"]) for group in groups) == len(names)
    return found


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_decay_groups(tie_embeddings: bool) -> None:
    """Matrices and embeddings decay; biases and gains do not; each parameter once, the tied embedding too."""
    model = DecoderLM(11, 16, d_model=8, mixer=[Attention, LSTM], positions=Learned, tie_embeddings=tie_embeddings)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[p] for p in group["params"]] for group in DecayMatrices(0.1)(model.named_parameters()))
    assert sorted(decayed + kept) == sorted(names.values())
    vectors = ("bias", "_norm.weight", "stack.norm.weight", "cell.bias_ih_l0", "cell.bias_hh_l0")
    assert sorted(kept) == sorted(name for name in names.values() if name.endswith(vectors))
    assert {"embedding.weight", "positions.table.weight", "stack.blocks.1.mixer.cell.weight_hh_l0"} <= set(decayed)
    assert ("head.weight" in decayed) == (not tie_embeddings)


def test_rules_by_name() -> None:
    """The first rule that is found in a name counts; what it leaves open is as without it."""
    model = DecoderLM(11, 16, d_model=8, mixer=[Attention, LSTM], positions=Learned)
    rules = {"blocks.0.*norm": {"weight_decay": 0.5}, r"blocks\.0\.": {"lr_ratio": 0.1}, "table": {"lr_ratio": 0.0}}
    groups = ByName(0.1, rules=rules)(model.named_parameters())
    rates, decays = by_name(model, groups, "lr_ratio"), by_name(model, groups, "weight_decay")
    assert rates["stack.blocks.0.mixer.q_proj.weight"] == 0.1 and decays["stack.blocks.0.mixer.q_proj.weight"] == 0.1
    assert rates["stack.blocks.0.mixer_norm.weight"] == 1.0 and decays["stack.blocks.0.mixer_norm.weight"] == 0.5
    assert rates["positions.table.weight"] == 0.0 and decays["positions.table.weight"] == 0.1
    assert rates["embedding.weight"] == 1.0 and decays["stack.norm.weight"] == 0.0


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"no such": {"lr_ratio": 1.0}}, "the rule 'no such' matches no parameter left by the rules before it"),
        ({"norm": {"lr": 1.0}}, "the rule 'norm' must give an lr_ratio or weight_decay of at least 0, got {'lr': 1.0}"),
        ({"norm": {"lr_ratio": -1.0}}, "the rule 'norm' must give an lr_ratio or weight_decay of at least 0"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rules: Any, says: str) -> None:
    model = DecoderLM(11, 16, d_model=8, mixer=Attention)
    with pytest.raises(ValueError, match=says):
        ByName(0.1, rules=rules)(model.named_parameters())


def test_layers_learn_slower_towards_the_embedding() -> None:
    model = DecoderLM(11, 16, d_model=8, num_layers=3, mixer=Attention, positions=Learned, tie_embeddings=False)
    rates = by_name(model, LayerwiseDecay(0.1, ratio=0.5)(model.named_parameters()), "lr_ratio")
    assert [rates[f"stack.blocks.{i}.ffn.up_proj.weight"] for i in range(3)] == [1 / 8, 1 / 4, 1 / 2]
    assert rates["embedding.weight"] == rates["positions.table.weight"] == 1 / 16
    assert rates["stack.norm.weight"] == rates["head.weight"] == 1.0


ENCODER = partial(Encoder, d_model=8, num_layers=3, mixer=partial(Attention, num_heads=2, pattern=Bidirectional))


def test_an_encoder_and_a_decoder_have_their_own_blocks() -> None:
    """A decoder's layer has two: one attends to itself, one to the source."""
    model = EncoderDecoder(11, 13, 16, encoder=ENCODER, num_layers=1, mixer=Attention)
    rates = by_name(model, LayerwiseDecay(0.1, ratio=0.5)(model.named_parameters()), "lr_ratio")
    q_proj = "stack.blocks.{}.mixer.q_proj.weight"
    assert [rates[f"encoder.{q_proj.format(i)}"] for i in range(3)] == [1 / 8, 1 / 4, 1 / 2]
    assert [rates[q_proj.format(i)] for i in range(2)] == [1 / 4, 1 / 2]
    assert rates["encoder.embedding.weight"] == 1 / 16 and rates["embedding.weight"] == 1 / 8


def test_all_that_comes_before_the_blocks_is_below_them() -> None:
    """BERT's norm of embeddings and ViT's class token too."""
    model = Classifier(11, 3, 16, encoder=partial(ENCODER, embed_norm=nn.LayerNorm), pool="class")
    rates = by_name(model, LayerwiseDecay(0.1, ratio=0.5)(model.named_parameters()), "lr_ratio")
    for part in ("embedding.weight", "embed_norm.weight", "class_token"):
        assert [rate for name, rate in rates.items() if name.endswith(part)] == [1 / 16], part


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="LayerwiseDecay needs a model with a stack of blocks, but this one has none"):
        LayerwiseDecay(0.1)(nn.Linear(2, 2).named_parameters())


def test_rates_and_names_are_what_an_optimizer_takes() -> None:
    weight = nn.Parameter(nn.Linear(1, 1).weight)
    groups = [{"params": [weight], "weight_decay": 0.0, "lr_ratio": 0.5}]
    expected = {"params": [weight], "param_names": ["w"], "weight_decay": 0.0, "lr": 0.05}
    assert trained_alike(groups, {weight: "w"}, 0.1) == [expected]
