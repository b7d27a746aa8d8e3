"""The packaged presets have exactly the published parameter counts (Radford et al. 2019; Brown et al. 2020)."""

from __future__ import annotations

import pytest
import torch

from seqlab.config.configs import build, config_path, load_short_yaml

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3": 174_604_259_328,
}
VASWANI = {"transformer-base": 63_082_496, "transformer-big": 214_245_376}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameter_count(name: str, count: int) -> None:
    config = load_short_yaml(config_path(f"presets/{name}").read_text(encoding="utf-8"))
    with torch.device("meta"):
        task, _ = build(config, {"vocab_size": 50_257, "seq_len": config["data"]["init_args"]["seq_len"]})
    assert sum(parameter.numel() for parameter in task.model.parameters()) == count


@pytest.mark.parametrize(("name", "count"), VASWANI.items())
def test_parameter_count_of_an_encoder_decoder(name: str, count: int) -> None:
    """At a joint vocabulary of 37,000 tokens; the paper rounds to 65M and 213M (Vaswani et al. 2017, table 3)."""
    config = load_short_yaml(config_path(f"presets/{name}").read_text(encoding="utf-8"))
    with torch.device("meta"):
        task, _ = build(config, {"vocab_size": 37_000, "target_vocab_size": 37_000, "seq_len": 256})
    assert sum(parameter.numel() for parameter in task.model.parameters()) == count


def test_the_quickstarts_models_are_of_one_size() -> None:
    counts = []
    for name in ("lm/gru", "lm/attention-nope", "lm/attention-rope"):
        config = load_short_yaml(config_path(name).read_text(encoding="utf-8"))
        task, _ = build(config, {"vocab_size": 107, "seq_len": config["data"]["init_args"]["seq_len"]})
        counts.append(sum(parameter.numel() for parameter in task.model.parameters()))
    assert max(counts) <= 1.05 * min(counts)
