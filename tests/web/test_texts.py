"""The web runtime chooses what Python chooses from the same logits, bit for bit, and reads and writes the texts that
Python does; tests/runtime/test_decoding.py has tokens."""

from __future__ import annotations

import base64
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from once import SEED
from runtime.conftest import Bundle
from seqlab.decoding import Repetition, Sampling
from seqlab.decoding.sampling import choose
from seqlab_export.runner.bundle_text_model import open_text_model
from web.programs import answers

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
slow = pytest.mark.slow
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


def test_the_same_choice() -> None:
    dice = random.Random(SEED)
    asked = [drawn(dice) for _ in range(4000)]
    expected = [of_python(*one) for one in asked]
    found = answers("-", [question for _, question in asked])
    assert [one for one in zip(asked, found, expected, strict=True) if one[1] != one[2]] == []
    likeliest = [int(logits.argmax()) for logits, _ in asked]
    assert sum(a != b for a, b in zip(expected, likeliest, strict=True)) > len(asked) // 6, "the options matter"


def test_logits_of_a_broken_model_are_refused() -> None:
    question = drawn(random.Random(1))[1] | {"text": [], "penalty": 1.0, "ngram": None}
    broken = [np.array(logits) for logits in ([np.nan, 1.0], [0.0, np.inf], [-np.inf, -np.inf])]
    for found in answers("-", [question | sent(logits) for logits in broken]):
        assert found["code"] == "internal" and found["refused"].startswith("cannot choose a token: the model's largest")


@slow
def test_a_prompt_is_continued_as_a_text(bundle: Bundle) -> None:
    """Piece by piece, which join to it; a callback cancels."""
    options: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0.8, "top_k": None, "top_p": 1.0, "min_p": 0.0}
    asked = {"write": "fed ", "penalty": 1.2, "ngram": 2, **options}
    seeds = range(2**33 + 1, 2**33 + 9)
    *found, empty = answers(
        bundle("gru"), [*(asked | {"seed": str(of)} for of in seeds), asked | {"write": "", "seed": 1}]
    )
    write: Any = partial(open_text_model(bundle("gru")).write, repetition_penalty=1.2, no_repeat_ngram=2, **options)
    for seed, one in zip(seeds, found, strict=True):
        assert one["text"] == write("fed ", seed=seed) == "".join(one["pieces"])
    assert empty["text"] == write("", seed=1)
    longest = max(seeds, key=lambda seed: len(found[seeds.index(seed)]["pieces"]))
    [cancelled] = answers(bundle("gru"), [asked | {"seed": str(longest), "cancel": 2}])
    assert cancelled == {"refused": "the callback has cancelled what was being written", "code": "cancelled"}


@slow
@pytest.mark.parametrize("name", ["translator", "attentive translator"])
def test_sources_are_translated(name: str, bundle: Bundle) -> None:
    asked: dict[str, Any] = {"translate": ["uvw", "zz y", "w"], "penalty": 1.0, "ngram": 3, "prefix": ""}
    asks = [asked | {"beams": beams, "length_penalty": length} for beams in (1, 4) for length in (0.0, 1.0)]
    asks.append(asks[-1] | {"prefix": "ab"})
    model = open_text_model(bundle(name))
    for one, found in zip(asks, answers(bundle(name), asks), strict=True):
        options = {key: one[key] for key in ("beams", "length_penalty", "prefix")}
        assert found == model.translate(one["translate"], no_repeat_ngram=3, **options)


def test_texts_and_words_are_classified(bundle: Bundle) -> None:
    for name, texts in {"classifier": ["abc", "f", "a b"], "tagger": ["the cat sat", "mat dog", " a\u00a0b\n"]}.items():
        model = open_text_model(bundle(name))
        for text, found in zip(texts, answers(bundle(name), [{"classify": text} for text in texts]), strict=True):
            expected = model.probabilities(text)
            assert found["words"] == (text.split() if name == "tagger" else [])
            np.testing.assert_allclose(np.reshape(found["probabilities"], expected.shape), expected, 1e-4, 1e-5)
    [empty], [wrong] = answers(bundle("tagger"), [{"classify": " \n"}]), answers(bundle("gru"), [{"classify": "a"}])
    [unread] = answers(bundle("translator"), [{"batch": {"rows": 1, "length": 1, "tokens": [4], "pad_mask": [1]}}])
    assert unread["refused"] == "this model writes what a source says; use a session"
    assert empty["refused"] == "the text is empty; give one with a word at least"
    assert wrong["refused"] == "classify reads texts: it needs a bundle with classes"
