"""The web runtime chooses what Python chooses from the same logits, bit for bit."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seqlab.decoding import Repetition, Sampling
from seqlab.decoding.sampling import choose
from web.programs import answers

Logits = NDArray[np.float64]


def sent(logits: Logits) -> dict[str, Any]:
    return {"choose": base64.b64encode(logits.tobytes()).decode()}


def drawn(dice: random.Random) -> tuple[Logits, dict[str, Any]]:
    """Logits with ties and minus infinities, and any options."""
    draws = np.random.default_rng(dice.randrange(2**32))
    size = dice.choice([1, 2, 5, 40, 40, 1000])
    logits = draws.normal(size=size) * dice.choice([0.1, 1, 30])
    if dice.random() < 0.5:
        logits = np.round(logits)
    if dice.random() < 0.3:
        logits[draws.random(size) < 0.5] = -np.inf
        logits[dice.randrange(size)] = 0.25
    logits = logits.astype(dice.choice([np.float32, np.float64])).astype(np.float64)
    return logits, sent(logits) | {
        "text": [dice.randrange(size) for _ in range(dice.choice([1, 3, 12]))],
        "penalty": dice.choice([1.0, 1.0, 1.3, 0.7]),
        "ngram": dice.choice([None, 1, 2, 3]),
        "temperature": dice.choice([0.0, 0.3, 1.0, 2.5]),
        "top_k": dice.choice([None, None, 1, 3, 100]),
        "top_p": dice.choice([1.0, 0.9, 0.5, 0.01]),
        "min_p": dice.choice([0.0, 0.05, 0.5]),
        "seed": str(dice.choice([0, 2**32, 2**53 + 1, 2**64 - 1, dice.randrange(2**64)])),
        "step": dice.randrange(1000),
        "row": dice.randrange(10),
    }


def of_python(logits: Logits, asked: dict[str, Any]) -> Any:
    options = {name: asked[name] for name in ("temperature", "top_k", "top_p", "min_p")}
    scores = Repetition(penalty=asked["penalty"], ngram=asked["ngram"]).apply(logits, asked["text"])
    if not np.isfinite(scores).any():
        return {"refused": "cannot choose a token: the model's largest logit is -Infinity", "code": "internal"}
    return choose(scores, Sampling(**options, seed=int(asked["seed"])), step=asked["step"], row=asked["row"])


@pytest.mark.parametrize("number", [4000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_the_same_choice(number: int) -> None:
    dice = random.Random(number)
    asked = [drawn(dice) for _ in range(number)]
    expected = [of_python(*one) for one in asked]
    found = answers("-", [question for _, question in asked])
    assert [one for one in zip(asked, found, expected, strict=True) if one[1] != one[2]] == []
    likeliest = [int(logits.argmax()) for logits, _ in asked]
    assert sum(a != b for a, b in zip(expected, likeliest, strict=True)) > number // 6, "the options matter"


def test_logits_of_a_broken_model_are_refused() -> None:
    question = drawn(random.Random(1))[1] | {"text": [], "penalty": 1.0, "ngram": None}
    broken = [np.array(logits) for logits in ([np.nan, 1.0], [0.0, np.inf], [-np.inf, -np.inf])]
    for found in answers("-", [question | sent(logits) for logits in broken]):
        assert found["code"] == "internal" and found["refused"].startswith("cannot choose a token: the model's largest")
