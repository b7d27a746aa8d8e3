"""The C++ runtime decodes what Python decodes with the same library: token for token, for any options."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from export.toys import TOKENIZER
from runtime.conftest import SEQ_LEN, SOURCE, Bundle
from runtime.programs import ENVIRONMENT, answers, build
from seqlab.decoding import Repetition, Sampling, beam_search, generate
from seqlab_export.runner.graph_runner import Bundle as Bundles
from seqlab_export.runner.graph_runner import BundleRunner, open_bundle
from seqlab_export.runner.text_model import open_text_model

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

V = TOKENIZER.vocab_size
INVALID_ARGUMENT, CANCELLED = 1, 5
"""Values of StatusCode."""


def question(dice: random.Random, *, sources: bool, beams: bool) -> dict[str, Any]:
    """Random prompts and options, some of them refused."""
    rows = dice.randint(1, 4)
    asked: dict[str, Any] = {
        "prompts": [[dice.randrange(V) for _ in range(dice.randint(1, 7))] for _ in range(rows)],
        "max_new_tokens": dice.choice([1, 2, 5, 12]),
        "penalty": dice.choice([1.0, 1.0, 1.3, 0.7]),
        "ngram": dice.choice([None, None, 1, 2, 3]),
        "stop_ids": dice.sample(range(V), dice.choice([0, 1, 2])),
    }
    if sources:
        lengths = [dice.randint(1, 9) for _ in range(rows)]
        asked["sources"] = [[dice.randrange(SOURCE.vocab_size) for _ in range(length)] for length in lengths]
    if beams:
        return asked | {"beams": dice.choice([1, 2, 3, 5, V + 2]), "length_penalty": dice.choice([0.0, 0.6, 1.0, 2.0])}
    return asked | {
        "temperature": dice.choice([0.0, 0.0, 0.3, 1.0, 2.5]),
        "top_k": dice.choice([None, 1, 3, 100]),
        "top_p": dice.choice([1.0, 0.9, 0.5, 0.01]),
        "min_p": dice.choice([0.0, 0.05, 0.5]),
        "seed": dice.choice([0, 7, 2**64 - 1, dice.randrange(2**63)]),
    }


def of_python(runner: BundleRunner, asked: dict[str, Any]) -> Any:
    decoder = runner
    if "sources" in asked:
        width = max(map(len, asked["sources"]))
        padded = np.array([[*source, *[0] * (width - len(source))] for source in asked["sources"]])
        lengths = np.array([[len(source)] for source in asked["sources"]])
        decoder = runner.begin(padded, np.arange(width) < lengths)
    repetition = Repetition(penalty=asked["penalty"], ngram=asked["ngram"])
    common = {name: asked[name] for name in ("max_new_tokens", "stop_ids")} | {"repetition": repetition}
    if "beams" in asked:
        beam = {name: asked[name] for name in ("beams", "length_penalty")}
        found = beam_search(decoder, asked["prompts"], **beam, **common)
        return [[{"tokens": one.tokens, "score": one.score} for one in some] for some in found]
    sampling = Sampling(**{name: asked[name] for name in ("temperature", "top_k", "top_p", "min_p", "seed")})
    return generate(decoder, asked["prompts"], sampling=sampling, **common)


def without_scores(answer: Any) -> Any:
    return [[one["tokens"] for one in some] for some in answer]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("gru", "attention", "fused", "translator", "attentive translator"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("fp16", "bf16", "int8", "fused translator")),
    ],
)
@pytest.mark.parametrize("beams", [False, True], ids=["generate", "beam"])
@pytest.mark.parametrize("number", [100, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("provider", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_same_tokens(name: str, beams: bool, number: int, provider: Any, bundle: Bundle) -> None:
    folder, dice = bundle(name), random.Random(f"{name} {beams} {number}")
    asked = [question(dice, sources="translator" in name, beams=beams) for _ in range(number)]
    runner = BundleRunner(folder, provider=provider, threads=1)
    found, expected = answers(folder, asked, provider), [of_python(runner, one) for one in asked]
    assert len(found) == number
    if not beams:
        assert found == expected
        assert len({str(some) for some in expected}) > number // 4, "the options matter, though many texts are short"
        return
    assert [*map(without_scores, found)] == [*map(without_scores, expected)]
    scores = [[one["score"] for answer in some for rows in answer for one in rows] for some in (found, expected)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-13, atol=1e-13)


def array(answer: dict[str, Any]) -> NDArray[np.float32]:
    return np.array(answer["values"], dtype=np.float32).reshape(answer["dims"])


@pytest.mark.slow
def test_a_batch_has_the_logits_of_python(bundle: Bundle) -> None:
    """Padded batches of a language model and of a classifier."""
    dice = np.random.default_rng(5)
    tokens, pad_mask = dice.integers(3, V, size=(3, 6)), np.arange(6) < np.array([[6], [1], [4]])
    asked = {"rows": 3, "length": 6, "tokens": tokens.ravel().tolist(), "pad_mask": pad_mask.ravel().tolist()}
    runner, classifier = BundleRunner(bundle("gru"), threads=1), Bundles(bundle("classifier"), threads=1)
    [found] = answers(bundle("gru"), [{"batch": asked}])
    expected = runner.read("model", tokens, pad_mask, runner.init_state(3))[0]
    np.testing.assert_array_equal(array(found)[pad_mask], expected[pad_mask])
    [found] = answers(bundle("classifier"), [{"batch": asked}])
    np.testing.assert_array_equal(array(found), classifier.encode(tokens, pad_mask)["logits"])
    short, outside = asked | {"tokens": [4]}, asked | {"tokens": [V] * 18}
    refused = [answer["refused"] for answer in answers(bundle("gru"), [{"batch": short}, {"batch": outside}])]
    assert refused[0] == "a batch of 3 rows of 6 must have 18 numbers and 18 in its mask"
    assert refused[1] == f"token {V} is outside the vocabulary 0..{V - 1}"


LIMITS = {"tagger": SEQ_LEN, "limited": 8}
"""The most tokens that a tagger and a language model read."""


def check_pads(name: str, folder: Path, ask: Callable[[Path, list[dict[str, Any]]], list[Any]]) -> None:
    """A bundle reads its limit beside any number of pads, and not one token more; `ask` is one of both `answers`."""
    most = LIMITS[name]
    length = most + 3
    tokens = np.random.default_rng(0).integers(3, 9, size=(2, length))
    masks = [np.arange(length) >= np.array([[length - real], [length - 2]]) for real in (most, most + 1)]
    batch = {"rows": 2, "length": length, "tokens": tokens.ravel().tolist()}
    flat = [mask.ravel().astype(int).tolist() for mask in masks]
    found, refused = ask(folder, [{"batch": batch | {"pad_mask": mask}} for mask in flat])
    runner = open_bundle(folder, threads=1)

    def read(mask: NDArray[np.bool_]) -> Any:
        if isinstance(runner, BundleRunner):
            return runner.read("model", tokens, mask, runner.init_state(2))[0]
        return runner.encode(tokens, mask)["logits"]

    np.testing.assert_allclose(array(found)[masks[0]], read(masks[0])[masks[0]], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=refused["refused"]):
        read(masks[1])
    assert f"{most + 1} tokens" in refused["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_a_pad_is_no_token_of_a_batch(name: str, bundle: Bundle) -> None:
    check_pads(name, bundle(name), answers)


def test_padding_between_real_tokens_is_refused(bundle: Bundle) -> None:
    """Padding before them, after them or on both sides changes nothing."""
    tokens = np.array([[4, 5, 6, 7, 8]])
    runner, classifier = BundleRunner(bundle("gru"), threads=1), Bundles(bundle("classifier"), threads=1)
    said = "row 0 of pad_mask has padding between real tokens; it may only stand before and after them"
    masks = [np.array([[bool(number >> place & 1) for place in range(5)]]) for number in range(1, 32)]
    batch = {"rows": 1, "length": 5, "tokens": tokens[0].tolist()}
    asked = [{"batch": batch | {"pad_mask": mask[0].astype(int).tolist()}} for mask in masks]
    of_encoder = answers(bundle("classifier"), asked)
    for mask, found, encoded in zip(masks, answers(bundle("gru"), asked), of_encoder, strict=True):
        if np.diff(np.flatnonzero(mask)).max(initial=1) > 1:
            assert found == encoded == {"refused": said, "code": INVALID_ARGUMENT}
            with pytest.raises(ValueError, match=said):
                runner.read("model", tokens, mask, runner.init_state(1))
            with pytest.raises(ValueError, match=said):
                classifier.encode(tokens, mask)
            continue
        real = tokens[mask][None]
        alone = runner.read("model", real, real > 0, runner.init_state(1))[0]
        np.testing.assert_allclose(array(found)[mask], alone[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(array(encoded), classifier.encode(real, real > 0)["logits"], rtol=1e-4, atol=1e-5)
    [refused] = answers(bundle("gru"), [{"batch": batch | {"pad_mask": [1, 1, 2, 1, 1]}}])
    assert refused == {"refused": "pad_mask must be of 0 and 1", "code": INVALID_ARGUMENT}


def test_a_callback_cancels(bundle: Bundle) -> None:
    """At its first token or a later one; the session then goes on."""
    asked = question(random.Random(3), sources=False, beams=False) | {"stop_ids": [], "max_new_tokens": 5}
    cancelled = {"refused": "the callback has cancelled what was being written", "code": CANCELLED}
    whole, *others = answers(bundle("gru"), [asked, asked | {"cancel": 0}, asked | {"cancel": 3}, asked])
    assert others == [cancelled, cancelled, whole] and len(whole[0]) == 5


def test_steps_have_the_logits_of_python(bundle: Bundle) -> None:
    """A session goes on after a refusal, and each prefill starts anew."""
    runner, steps = BundleRunner(bundle("attention"), threads=1), [[5, 6], [7, 4], [3, 3]]
    prompts = [[4, 5, 6], [7]]
    mask = np.array([[True, True, True], [False, False, True]])
    logits, state = runner.prefill(np.array([[4, 5, 6], [0, 0, 7]]), mask)
    expected = [logits]
    for tokens in steps:
        logits, state = runner.step(np.array(tokens), state)
        expected.append(logits)
    question = {"prompts": prompts, "steps": [*steps[:1], [9], *steps[1:]]}
    for found in answers(bundle("attention"), [question, question]):
        assert found.pop(2) == {
            "refused": "there are 1 tokens for 2 rows; give one for each",
            "code": INVALID_ARGUMENT,
        }
        assert [*map(np.ndarray.tolist, map(array, found))] == [*map(np.ndarray.tolist, expected)]
    before = answers(bundle("attention"), [{"prompts": [[]], "steps": [[4]]}])
    assert before[0][1] == {"refused": "a step continues a text; read a prompt first", "code": INVALID_ARGUMENT}


BAD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no prompt": lambda asked: asked | {"prompts": []},
    "empty prompt": lambda asked: asked | {"prompts": [[4], []]},
    "outside": lambda asked: asked | {"prompts": [[4, V]]},
    "negative": lambda asked: asked | {"prompts": [[-1]]},
    "nothing new": lambda asked: asked | {"max_new_tokens": 0},
    "temperature": lambda asked: asked | {"temperature": -0.5},
    "top_k": lambda asked: asked | {"top_k": 0},
    "top_p": lambda asked: asked | {"top_p": 0.0},
    "min_p": lambda asked: asked | {"min_p": 1.5},
    "penalty": lambda asked: asked | {"penalty": 0.0},
    "ngram": lambda asked: asked | {"ngram": 0},
}


@pytest.mark.parametrize("bad", BAD)
def test_both_refuse(bad: str, bundle: Bundle) -> None:
    folder = bundle("gru")
    good = question(random.Random(1), sources=False, beams=False)
    [answer, after] = answers(folder, [BAD[bad](good), good])
    assert answer["refused"] and answer["code"] == INVALID_ARGUMENT
    with pytest.raises(ValueError, match=r"\w"):
        of_python(BundleRunner(folder, threads=1), BAD[bad](good))
    assert after == of_python(BundleRunner(folder, threads=1), good), "a refusal leaves the session as it was"


def test_a_text_longer_than_the_model_reads_is_refused(bundle: Bundle) -> None:
    good = question(random.Random(2), sources=True, beams=False) | {"prompts": [[4]], "sources": [[4, 2]]}
    long, full = good | {"max_new_tokens": SEQ_LEN + 1}, good | {"max_new_tokens": SEQ_LEN, "stop_ids": []}
    source = good | {"sources": [[4] * (SEQ_LEN + 1)]}
    several = good | {"sources": [[4, 2], [5, 2]]}
    refused, tokens, of_source, of_several = answers(bundle("translator"), [long, full, source, several])
    said = "a prompt of 1 tokens and 25 new ones need more positions than the model has, 24"
    assert refused["refused"].startswith(said)
    assert len(tokens[0]) == SEQ_LEN
    assert of_source["refused"] == "an input has 25 tokens, this bundle reads at most 24"
    assert of_several["refused"] == "there are 1 prompts and 2 sources; give one prompt for each"


REQUESTS = [*(f"{text}{text[::-1]}" for text in ("abc", "fed", "a b", "", "d") for _ in range(6)), "\udcff", "cafe"]


def served(program: Path, folder: Path, threads: int) -> tuple[dict[int, str], str]:
    """The answers of the example server worker by request, and its error output."""
    lines = "\n".join(REQUESTS).encode(errors="surrogateescape")
    done = subprocess.run([program, folder, str(threads)], input=lines, capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    answers = [line.split("\t", 1) for line in done.stdout.decode().splitlines()]
    assert len({number for number, _ in answers}) == len(answers)
    return {int(number): text for number, text in answers}, done.stderr.decode()


@pytest.mark.parametrize("name", ["gru", "translator"])
def test_threads_share_a_model(name: str, bundle: Bundle) -> None:
    """Many sessions on many threads: each request has the answer of one session alone, and a bad one harms no other."""
    found, said = served(build("worker"), bundle(name), 4)
    assert found == served(build("worker"), bundle(name), 1)[0]
    assert {*range(1, len(REQUESTS) + 1)} - {*found} == {len(REQUESTS) - 1}
    assert said.startswith(f"request {len(REQUESTS) - 1}: the text is not UTF-8 at byte 0") and said.count("\n") == 1
    if name == "gru":
        model = open_text_model(bundle(name))
        for number, text in found.items():
            assert text == model.write(REQUESTS[number - 1], max_new_tokens=60, temperature=0.8, seed=number)


@pytest.mark.slow
def test_threads_do_not_race(bundle: Bundle) -> None:
    """Under ThreadSanitizer, which exits with another code where it has something to say."""
    assert len(served(build("worker", "thread"), bundle("attention"), 4)[0]) == len(REQUESTS) - 1
