"""The web runtime reads and writes the texts that Python does; tests/runtime/test_decoding.py has tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from runtime.conftest import Bundle
from seqlab_export.runner.text_model import open_text_model
from web.programs import answers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]


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
    assert empty["refused"] == "the text is empty; give one with a word at least"
    assert wrong["refused"] == "classify reads texts: it needs a bundle with classes"
