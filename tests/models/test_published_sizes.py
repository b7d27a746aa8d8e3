"""Parameter counts that others published, on the meta device."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from seqlab.attention import Attention, Bidirectional
from seqlab.config.configs import build, config_path, load_short_yaml
from seqlab.models import Classifier, Encoder
from seqlab.nn import GELU, Block
from seqlab.positions import Learned


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def built(name: str, **told: int) -> Any:
    """The model of a packaged config, at its own length if no other is told."""
    config = load_short_yaml(config_path(name).read_text(encoding="utf-8"))
    with torch.device("meta"):
        task, _ = build(config, {"seq_len": config["data"]["init_args"].get("seq_len")} | told)
    return task.model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3", 174_604_259_328),
    ],
)
def test_gpt(name: str, expected: int) -> None:
    """Radford et al. 2019; Brown et al. 2020."""
    assert count(built(f"presets/{name}", vocab_size=50_257)) == expected


@pytest.mark.parametrize(("name", "expected"), [("base", 63_082_496), ("big", 214_245_376)])
def test_transformer(name: str, expected: int) -> None:
    """At a joint vocabulary of 37,000 tokens; the paper rounds to 65M and 213M (Vaswani et al. 2017, table 3)."""
    told = {"vocab_size": 37_000, "target_vocab_size": 37_000, "seq_len": 256}
    assert count(built(f"presets/transformer-{name}", **told)) == expected


@pytest.mark.parametrize(("name", "expected"), [("base", 109_482_240), ("large", 335_141_888)])
def test_bert(name: str, expected: int) -> None:
    encoder = built(f"presets/bert-{name}", vocab_size=30_521, seq_len=512).encoder
    with torch.device("meta"):
        classifier = Classifier(8, 2, 8, encoder=lambda vocab_size, seq_len: encoder, pool="first", pooler=True)
    assert count(classifier.encoder) + count(classifier.pooler) == expected


def test_vit_b_16() -> None:
    """86,567,656 parameters at 224 x 224 pixels and 1,000 classes (torchvision's and timm's ViT-B/16)."""
    block = partial(Block, ffn=partial(GELU, d_ff=3072, exact=True))
    options: dict[str, Any] = {"mixer": partial(Attention, num_heads=12, pattern=Bidirectional), "block": block}
    encoder = partial(Encoder, embed=nn.Linear, d_model=768, num_layers=12, positions=Learned, **options)
    with torch.device("meta"):
        assert count(Classifier(16 * 16 * 3, 1000, 14 * 14, encoder=encoder, pool="class")) == 86_567_656


def test_the_quickstarts_models_are_of_one_size() -> None:
    counts = [count(built(name, vocab_size=107)) for name in ("lm/gru", "lm/attention-nope", "lm/attention-rope")]
    assert max(counts) <= 1.05 * min(counts)
