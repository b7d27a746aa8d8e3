"""Measurements of the two objectives, on models whose answer is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies.objective import (
    CONTEXT,
    MANY,
    NAMES,
    TESTED,
    frequency_nats,
    languages,
    masked_nats,
    next_nats,
    probe,
)

SIZE, MASK = 7, 7
WINDOWS = torch.arange(40).unsqueeze(1).add(torch.arange(CONTEXT)).remainder(SIZE)
"""Each character is one more than that before it."""


def after(tokens: Tensor) -> tuple[Tensor, None]:
    """Predicts the next character, all but certainly."""
    return 50.0 * torch.nn.functional.one_hot((tokens + 1) % SIZE, SIZE), None


class FindsByTheRight:
    """Predicts a hidden character from the one after it; knows nothing where none follows."""

    mask_id = MASK

    def __call__(self, tokens: Tensor) -> Tensor:
        right = torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], -1)), 1)
        known = 50.0 * torch.nn.functional.one_hot((right - 1).clamp(min=0) % SIZE, SIZE + 1)
        known[:, :, MASK] = -50.0
        return torch.where((right >= 1).unsqueeze(2), known, torch.zeros(SIZE + 1))


def test_nats_of_the_next_and_of_a_hidden_character() -> None:
    model: Any = FindsByTheRight()
    assert next_nats(after, WINDOWS, CONTEXT - 1) < 1e-6  # type: ignore[arg-type]
    assert masked_nats(model, WINDOWS, CONTEXT - 1) == pytest.approx(math.log(SIZE + 1))
    middle = WINDOWS[WINDOWS[:, CONTEXT // 2 + 1] != 0]
    assert masked_nats(model, middle, CONTEXT // 2) < 1e-6
    assert frequency_nats(torch.tensor([1, 0, 1]), torch.tensor([0, 1])) == pytest.approx(-math.log(2 / 5 * 1 / 5) / 2)


def test_a_probe_tells_what_can_be_told() -> None:
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 200, 6, generator=draw)
    apart = noise + 4 * torch.eye(4, 6).unsqueeze(1)
    assert probe(apart[:, :100], apart[:, 100:]) > 0.95
    assert abs(probe(noise[:, :100], noise[:, 100:]) - 1 / 4) < 0.1


def test_names_that_two_languages_have_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CORPORA", str(tmp_path))
    (tmp_path / NAMES).mkdir()
    enough = [f"n{k}" for k in range(MANY + TESTED)]
    texts = {"A": [*enough, "both"], "B": [f"m{name}" for name in enough] + ["both"], "C": ["few"]}
    for name, lines in texts.items():
        (tmp_path / NAMES / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = languages()
    assert [set(names) for names in found] == [set(texts["A"]) - {"both"}, set(texts["B"]) - {"both"}]
