"""The web runtime writes what Python writes: greedy and sampled text, beams, targets, classes; and refuses what it
refuses. Its logits are those of another build of onnxruntime, and differ by rounding."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from export.toys import TOKENIZER
from runtime.conftest import SEQ_LEN, Bundle
from runtime.test_decoding import BAD, LIMITS, array, check_pads, of_python, question, without_scores
from seqlab_export.runner.graph_runner import Bundle as Bundles
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.text_model import open_text_model
from web.programs import answers

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

V = TOKENIZER.vocab_size
check_close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
"""Comparison up to the rounding of a few layers in float32."""


def sendable(asked: dict[str, Any]) -> dict[str, Any]:
    """A 64-bit seed does not fit in a JavaScript number."""
    return asked | {"seed": str(asked.get("seed", 0))}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("gru", "attention", "translator", "attentive translator"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mamba", "fused", "fused translator", "bf16")),
    ],
)
@pytest.mark.parametrize("beams", [False, True], ids=["generate", "beam"])
def test_the_same_tokens(name: str, beams: bool, bundle: Bundle) -> None:
    folder, dice = bundle(name), random.Random(f"{name} {beams} 100")
    asked = [question(dice, sources="translator" in name, beams=beams) for _ in range(100)]
    runner = BundleRunner(folder, threads=1)
    found, expected = answers(folder, map(sendable, asked)), [of_python(runner, one) for one in asked]
    assert len({str(some) for some in expected}) > 25, "the options matter, though many texts are short"
    if not beams:
        assert found == expected
        return
    assert [*map(without_scores, found)] == [*map(without_scores, expected)]
    scores = [[one["score"] for answer in some for rows in answer for one in rows] for some in (found, expected)]
    check_close(scores[0], scores[1])


@pytest.mark.slow
def test_a_prompt_is_continued_as_a_text(bundle: Bundle) -> None:
    """Piece by piece, which join to it; a callback cancels."""
    options: dict[str, Any] = {
        "max_new_tokens": 20,
        "temperature": 0.8,
        "top_k": None,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 2**33 + 1,
    }
    asked = sendable({"write": "fed ", "penalty": 1.2, "ngram": 2, **options})
    found, cancelled, empty = answers(bundle("gru"), [asked, asked | {"cancel": 2}, asked | {"write": ""}])
    model = open_text_model(bundle("gru"))
    told = options | {"repetition_penalty": 1.2, "no_repeat_ngram": 2}
    assert found["text"] == model.write("fed ", **told) == "".join(found["pieces"])
    assert len(found["pieces"]) > 2 and empty["text"] == model.write("", **told)
    assert cancelled == {"refused": "the callback has cancelled what was being written", "code": "cancelled"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translator", "attentive translator"])
def test_sources_are_translated(name: str, bundle: Bundle) -> None:
    asked: dict[str, Any] = {"translate": ["uvw", "zz y", "w"], "penalty": 1.0, "ngram": 3, "prefix": ""}
    asks = [asked | {"beams": beams, "length_penalty": length} for beams in (1, 4) for length in (0.0, 1.0)]
    asks.append(asks[-1] | {"prefix": "ab"})
    model = open_text_model(bundle(name))
    for one, found in zip(asks, answers(bundle(name), asks), strict=True):
        options = {key: one[key] for key in ("beams", "length_penalty", "prefix")}
        assert found == model.translate(one["translate"], no_repeat_ngram=3, **options)


@pytest.mark.slow
def test_texts_and_words_are_classified(bundle: Bundle) -> None:
    for name, texts in {"classifier": ["abc", "f", "a b"], "tagger": ["the cat sat", "mat dog", " a\u00a0b\n"]}.items():
        model = open_text_model(bundle(name))
        for text, found in zip(texts, answers(bundle(name), [{"classify": text} for text in texts]), strict=True):
            expected = model.probabilities(text)
            assert found["words"] == (text.split() if name == "tagger" else [])
            check_close(np.reshape(found["probabilities"], expected.shape), expected)
    [empty], [wrong] = answers(bundle("tagger"), [{"classify": " \n"}]), answers(bundle("gru"), [{"classify": "a"}])
    assert empty["refused"] == "the text is empty; give one with a word at least"
    assert wrong["refused"] == "classify reads texts: it needs a bundle with classes"


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_a_pad_is_no_token_of_a_batch(name: str, bundle: Bundle) -> None:
    check_pads(name, bundle(name), answers)


def test_a_batch_has_the_logits_of_python(bundle: Bundle) -> None:
    """Padded batches of a language model and of a classifier; an invalid mask is refused."""
    dice = np.random.default_rng(5)
    tokens, pad_mask = dice.integers(3, V, size=(3, 6)), np.arange(6) < np.array([[6], [1], [4]])
    batch = {
        "rows": 3,
        "length": 6,
        "tokens": tokens.ravel().tolist(),
        "pad_mask": pad_mask.ravel().astype(int).tolist(),
    }
    gap = batch | {"pad_mask": [1, 0, 1, 0, 0, 0] * 3}
    found, short, outside, between = answers(
        bundle("gru"), [{"batch": batch | extra} for extra in ({}, {"tokens": [4]}, {"tokens": [V] * 18}, gap)]
    )
    runner, classifier = BundleRunner(bundle("gru"), threads=1), Bundles(bundle("classifier"), threads=1)
    expected = runner.read("model", tokens, pad_mask, runner.init_state(3))[0]
    check_close(array(found)[pad_mask], expected[pad_mask])
    assert short["refused"] == "a batch of 3 rows of 6 must have 18 numbers and 18 in its mask"
    assert outside["refused"] == f"token {V} is outside the vocabulary 0..{V - 1}"
    assert between["refused"].startswith("row 0 of padMask has padding between real tokens")
    [found] = answers(bundle("classifier"), [{"batch": batch}])
    check_close(array(found), classifier.encode(tokens, pad_mask)["logits"])


@pytest.mark.slow
def test_steps_go_on_after_a_refusal(bundle: Bundle) -> None:
    runner, steps = BundleRunner(bundle("attention"), threads=1), [[5, 6], [7, 4]]
    logits, state = runner.prefill(np.array([[4, 5, 6], [0, 0, 7]]), np.array([[True] * 3, [False, False, True]]))
    expected = [logits]
    for tokens in steps:
        logits, state = runner.step(np.array(tokens), state)
        expected.append(logits)
    asked = {"prompts": [[4, 5, 6], [7]], "steps": [steps[0], [9], [V, 0], steps[1]]}
    [found] = answers(bundle("attention"), [asked])
    assert found.pop(2)["refused"] == "there are 1 tokens for 2 rows; give one for each"
    assert found.pop(2)["refused"] == f"token {V} is outside the vocabulary 0..{V - 1}"
    for ours, theirs in zip(map(array, found), expected, strict=True):
        check_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD)
def test_both_refuse(bad: str, bundle: Bundle) -> None:
    good = question(random.Random(1), sources=False, beams=False)
    answer, after = answers(bundle("gru"), map(sendable, [BAD[bad](good), good]))
    assert answer["refused"] and answer["code"] == "invalid argument"
    assert after == of_python(BundleRunner(bundle("gru"), threads=1), good)


@pytest.mark.slow
def test_a_text_longer_than_the_model_reads_is_refused(bundle: Bundle) -> None:
    good = question(random.Random(2), sources=True, beams=False) | {"prompts": [[4]], "sources": [[4, 2]]}
    asked = [
        good | {"max_new_tokens": SEQ_LEN + 1},
        good | {"max_new_tokens": SEQ_LEN, "stop_ids": []},
        good | {"sources": [[4] * (SEQ_LEN + 1)]},
        good | {"sources": [[4, 2], [5, 2]]},
    ]
    refused, tokens, of_source, of_several = answers(bundle("translator"), map(sendable, asked))
    said = "a prompt of 1 tokens and 25 new ones need more positions than the model has, 24"
    assert refused["refused"].startswith(said)
    assert len(tokens[0]) == SEQ_LEN
    assert of_source["refused"] == "an input has 25 tokens, this bundle reads at most 24"
    assert of_several["refused"] == "there are 1 prompts and 2 sources; give one prompt for each"
