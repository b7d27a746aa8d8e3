"""The C++ and the web runtime decode what Python decodes, token for token, for any options, and refuse what it refuses.
The web's logits are those of another build of onnxruntime, and differ by rounding."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from export.toys import TOKENIZER
from runtime.conftest import SEQ_LEN, SOURCE, Bundle
from runtime.programs import ENVIRONMENT, answers, build
from seqlab.decoding import Repetition, Sampling, beam_search, generate
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.graph_runner import Bundle as Bundles
from seqlab_export.runner.graph_runner import BundleRunner, open_bundle
from web import programs as web

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
slow = pytest.mark.slow

V = TOKENIZER.vocab_size
CANCELLED = {"refused": "the callback has cancelled what was being written", "code": 5}
Asked = dict[str, Any]
nearly = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
"""Comparison up to the rounding of a few layers in float32."""


class Runtime(NamedTuple):
    ask: Callable[[Path, list[Asked]], list[Any]]
    """The answer to each question about a bundle."""
    invalid: int | str
    """The code of an invalid argument."""
    pad_mask: str
    """Its word for the mask."""
    check: Callable[[Any, Any], None]
    """The comparison of its logits with Python's."""
    scores: Callable[[Any, Any], None]
    """The comparison of its scores of beams with Python's."""


def ask_web(folder: Path, asked: list[Asked]) -> list[Any]:
    """A 64-bit seed does not fit in a JavaScript number."""
    return web.answers(folder, [one | {"seed": str(one.get("seed", 0))} for one in asked])


CPP = Runtime(
    answers, 1, "pad_mask", np.testing.assert_array_equal, partial(np.testing.assert_allclose, rtol=1e-13, atol=1e-13)
)
WEB = Runtime(ask_web, "invalid argument", "padMask", nearly, nearly)


@pytest.fixture(name="runtime", params=[CPP, WEB], ids=["C++", "web"])
def _runtime(request: pytest.FixtureRequest) -> Runtime:
    found: Runtime = request.param
    return found


def question(dice: random.Random, *, sources: bool, beams: bool) -> Asked:
    """Random prompts and options, some of them refused."""
    rows = dice.randint(1, 4)
    asked: Asked = {
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


def of_python(runner: BundleRunner, asked: Asked) -> Any:
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


DECODED = ("gru", "attention", "fused", "translator", "attentive translator", "fused translator", "bf16")


@pytest.mark.parametrize(
    ("name", "runtime", "provider", "number"),
    [
        ("gru", WEB, "cpu", 40),
        *(pytest.param(name, CPP, "cpu", 100, marks=slow) for name in (*DECODED, "fp16", "int8")),
        *(pytest.param(name, CPP, "cuda", 100, marks=[slow, pytest.mark.cuda]) for name in (*DECODED, "fp16", "int8")),
        *(pytest.param(name, WEB, "cpu", 40, marks=slow) for name in (*DECODED[1:], "mamba")),
    ],
)
def test_the_same_tokens(name: str, runtime: Runtime, provider: Any, number: int, bundle: Bundle) -> None:
    """Sampled and greedy texts, and beams."""
    folder, dice = bundle(name), random.Random(f"{name} {number}")
    ask = partial(answers, provider=provider) if runtime is CPP else runtime.ask
    runner = BundleRunner(folder, provider=provider, threads=1)
    for beams in (False, True):
        asked = [question(dice, sources="translator" in name, beams=beams) for _ in range(number)]
        found, expected = ask(folder, asked), [of_python(runner, one) for one in asked]
        assert len({str(some) for some in expected}) > number // 4, "the options matter, though many texts are short"
        if not beams:
            assert found == expected
            continue
        assert [*map(without_scores, found)] == [*map(without_scores, expected)]
        runtime.scores(*([one["score"] for of in some for rows in of for one in rows] for some in (found, expected)))


def array(answer: dict[str, Any]) -> NDArray[np.float32]:
    return np.array(answer["values"], dtype=np.float32).reshape(answer["dims"])


def batch_of(tokens: NDArray[np.int64], mask: Any) -> dict[str, Any]:
    rows, length = tokens.shape
    flat = np.asarray(mask).ravel().astype(int).tolist()
    return {"rows": rows, "length": length, "tokens": tokens.ravel().tolist(), "pad_mask": flat}


def test_a_batch_has_the_logits_of_python(runtime: Runtime, bundle: Bundle) -> None:
    """Padded batches of a language model and of a classifier."""
    dice = np.random.default_rng(5)
    tokens, pad_mask = dice.integers(3, V, size=(3, 6)), np.arange(6) < np.array([[6], [1], [4]])
    asked = batch_of(tokens, pad_mask)
    runner, classifier = BundleRunner(bundle("gru"), threads=1), Bundles(bundle("classifier"), threads=1)
    others: list[Asked] = [{}, {"tokens": [4]}, {"tokens": [V] * 18}]
    found, *wrong = runtime.ask(bundle("gru"), [{"batch": asked | other} for other in others])
    expected = runner.read("model", tokens, pad_mask, runner.init_state(3))[0]
    runtime.check(array(found)[pad_mask], expected[pad_mask])
    assert [answer["refused"] for answer in wrong] == [
        "a batch of 3 rows of 6 must have 18 numbers and 18 in its mask",
        f"token {V} is outside the vocabulary 0..{V - 1}",
    ]
    [found] = runtime.ask(bundle("classifier"), [{"batch": asked}])
    runtime.check(array(found), classifier.encode(tokens, pad_mask)["logits"])


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_row_is_the_same_alone_and_in_a_batch(name: str, runtime: Runtime, bundle: Bundle) -> None:
    """Bit for bit, in prompts and in steps; in C++ and in the web the scores of beams are of steps."""
    runner, tokens = BundleRunner(bundle(name), threads=1), np.random.default_rng(6).integers(3, V, size=(33, 5))

    def read(rows: NDArray[np.int64]) -> NDArray[Any]:
        prompt, state = runner.read("model", rows[:, :4], rows[:, :4] > 0, runner.init_state(len(rows)))
        return np.hstack([prompt, runner.read("step", rows[:, 4:], rows[:, 4:] > 0, state)[0]])

    alone = np.concatenate([read(row[None]) for row in tokens])
    for number in (2, 3, 8, 33):
        np.testing.assert_array_equal(read(tokens[:number]), alone[:number])
    of_rows: list[Asked] = [{"batch": batch_of(rows, rows > 0)} for rows in (tokens[:, :4], *tokens[:8, None, :4])]
    batch, *single = map(array, runtime.ask(bundle(name), of_rows))
    np.testing.assert_array_equal(np.concatenate(single), batch[:8])
    if runtime is CPP:
        np.testing.assert_array_equal(batch, alone[:, :4])
    beams: Asked = {
        "max_new_tokens": 5,
        "penalty": 1.0,
        "ngram": None,
        "stop_ids": [],
        "beams": 3,
        "length_penalty": 1.0,
    }
    prompts = tokens[:8, :4].tolist()
    together, *each = runtime.ask(
        bundle(name), [beams | {"prompts": some} for some in (prompts, *([one] for one in prompts))]
    )
    assert together == [found for [found] in each]


@slow
@pytest.mark.parametrize(("name", "most"), [("tagger", SEQ_LEN), ("limited", 8)])
def test_a_pad_is_no_token_of_a_batch(name: str, most: int, runtime: Runtime, bundle: Bundle) -> None:
    """A bundle reads its limit beside any number of pads, and not one token more."""
    length = most + 3
    tokens = np.random.default_rng(0).integers(3, 9, size=(2, length))
    masks = [np.arange(length) >= np.array([[length - real], [length - 2]]) for real in (most, most + 1)]
    found, refused = runtime.ask(bundle(name), [{"batch": batch_of(tokens, mask)} for mask in masks])
    runner = open_bundle(bundle(name), threads=1)

    def read(mask: NDArray[np.bool_]) -> Any:
        if isinstance(runner, BundleRunner):
            return runner.read("model", tokens, mask, runner.init_state(2))[0]
        return runner.encode(tokens, mask)["logits"]

    nearly(array(found)[masks[0]], read(masks[0])[masks[0]])
    with pytest.raises(ValueError, match=refused["refused"]):
        read(masks[1])
    assert f"{most + 1} tokens" in refused["refused"]


def test_padding_between_real_tokens_is_refused(runtime: Runtime, bundle: Bundle) -> None:
    """Padding before them, after them or on both sides changes nothing."""
    tokens = np.array([[4, 5, 6, 7, 8]])
    runner, classifier = BundleRunner(bundle("gru"), threads=1), Bundles(bundle("classifier"), threads=1)
    said = "row 0 of pad_mask has padding between real tokens; it may only stand before and after them"
    refusal = {"refused": said.replace("pad_mask", runtime.pad_mask), "code": runtime.invalid}
    masks = [np.array([[bool(number >> place & 1) for place in range(5)]]) for number in range(1, 32)]
    asked = [{"batch": batch_of(tokens, mask)} for mask in masks]
    of_decoder, of_encoder = (runtime.ask(bundle(name), asked) for name in ("gru", "classifier"))
    for mask, found, encoded in zip(masks, of_decoder, of_encoder, strict=True):
        if np.diff(np.flatnonzero(mask)).max(initial=1) > 1:
            assert found == encoded == refusal
            with pytest.raises(ValueError, match=said):
                runner.read("model", tokens, mask, runner.init_state(1))
            with pytest.raises(ValueError, match=said):
                classifier.encode(tokens, mask)
            continue
        real = tokens[mask][None]
        nearly(array(found)[mask], runner.read("model", real, real > 0, runner.init_state(1))[0][0])
        nearly(array(encoded), classifier.encode(real, real > 0)["logits"])


def test_a_mask_is_of_0_and_1(runtime: Runtime, bundle: Bundle) -> None:
    [mask] = runtime.ask(bundle("gru"), [{"batch": batch_of(np.array([[4, 5, 6]]), [1, 2, 1])}])
    assert mask == {"refused": f"{runtime.pad_mask} must be of 0 and 1", "code": runtime.invalid}


def test_a_step_needs_a_prompt(bundle: Bundle) -> None:
    [step] = answers(bundle("gru"), [{"prompts": [[]], "steps": [[4]]}])
    assert step[1] == {"refused": "a step continues a text; read a prompt first", "code": CPP.invalid}


def test_a_callback_cancels(bundle: Bundle) -> None:
    """At its first token or a later one; the session then goes on."""
    asked = question(random.Random(3), sources=False, beams=False) | {"stop_ids": [], "max_new_tokens": 5}
    whole, *others = answers(bundle("gru"), [asked, asked | {"cancel": 0}, asked | {"cancel": 3}, asked])
    assert others == [CANCELLED, CANCELLED, whole] and len(whole[0]) == 5


def test_steps_have_the_logits_of_python(runtime: Runtime, bundle: Bundle) -> None:
    """A session goes on after a refusal, and each prefill starts anew."""
    runner, steps = BundleRunner(bundle("attention"), threads=1), [[5, 6], [7, 4], [3, 3]]
    logits, state = runner.prefill(np.array([[4, 5, 6], [0, 0, 7]]), np.array([[True] * 3, [False, False, True]]))
    expected = [logits]
    for tokens in steps:
        logits, state = runner.step(np.array(tokens), state)
        expected.append(logits)
    asked = {"prompts": [[4, 5, 6], [7]], "steps": [*steps[:1], [9], [V, 0], *steps[1:]]}
    for found in runtime.ask(bundle("attention"), [asked, asked]):
        for said in ("there are 1 tokens for 2 rows; give one for each", f"token {V} is outside the vocabulary 0..10"):
            assert found.pop(2) == {"refused": said, "code": runtime.invalid}
        runtime.check([*map(array, found)], expected)


BAD: dict[str, Asked] = {
    "no prompt": {"prompts": []},
    "empty prompt": {"prompts": [[4], []]},
    "outside": {"prompts": [[4, V]]},
    "negative": {"prompts": [[-1]]},
    "nothing new": {"max_new_tokens": 0},
    "temperature": {"temperature": -0.5},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 0.0},
    "min_p": {"min_p": 1.5},
    "penalty": {"penalty": 0.0},
    "ngram": {"ngram": 0},
}


def test_all_refuse(runtime: Runtime, bundle: Bundle) -> None:
    """A refusal leaves the session as it was."""
    good = question(random.Random(1), sources=False, beams=False)
    runner = BundleRunner(bundle("gru"), threads=1)
    found = runtime.ask(bundle("gru"), [one for bad in BAD.values() for one in (good | bad, good)])
    for (what, bad), refused, after in zip(BAD.items(), found[::2], found[1::2], strict=True):
        assert refused["refused"] and refused["code"] == runtime.invalid, what
        with pytest.raises(ValueError, match=r"\w"):
            of_python(runner, good | bad)
        assert after == of_python(runner, good), what


def test_a_text_longer_than_the_model_reads_is_refused(runtime: Runtime, bundle: Bundle) -> None:
    good = question(random.Random(2), sources=True, beams=False) | {"prompts": [[4]], "sources": [[4, 2]]}
    others = (
        {"max_new_tokens": SEQ_LEN + 1},
        {"max_new_tokens": SEQ_LEN, "stop_ids": []},
        {"sources": [[4] * (SEQ_LEN + 1)]},
        {"sources": [[4, 2], [5, 2]]},
    )
    refused, tokens, of_source, of_several = runtime.ask(bundle("translator"), [good | other for other in others])
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
    said = [line.split("\t", 1) for line in done.stdout.decode().splitlines()]
    assert len({number for number, _ in said}) == len(said)
    return {int(number): text for number, text in said}, done.stderr.decode()


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


@slow
def test_threads_do_not_race(bundle: Bundle) -> None:
    """Under ThreadSanitizer, which exits with another code where it has something to say."""
    assert len(served(build("worker", "thread"), bundle("attention"), 4)[0]) == len(REQUESTS) - 1
