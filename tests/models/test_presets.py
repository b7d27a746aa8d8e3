"""The packaged presets have exactly the published parameter counts (Radford et al. 2019; Brown et al. 2020)."""

from __future__ import annotations

import pytest
import torch

from seqlab.training.config import build, config_path, load_short_yaml

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3": 174_604_259_328,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameter_count(name: str, count: int) -> None:
    config = load_short_yaml(config_path(f"presets/{name}").read_text(encoding="utf-8"))
    with torch.device("meta"):
        task, _ = build(config, vocab_size=50_257)
    assert sum(parameter.numel() for parameter in task.model.parameters()) == count


def test_the_quickstarts_models_are_of_one_size() -> None:
    counts = []
    for name in ("lm/gru", "lm/attention-nope", "lm/attention-rope"):
        task, _ = build(load_short_yaml(config_path(name).read_text(encoding="utf-8")), vocab_size=107)
        counts.append(sum(parameter.numel() for parameter in task.model.parameters()))
    assert max(counts) <= 1.05 * min(counts)
