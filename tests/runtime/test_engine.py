"""Requests that are decoded together have the texts that each has alone."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from export.planted import edit_graph
from export.toys import TOKENIZER
from runtime.conftest import SOURCE, Bundle, Copy
from runtime.programs import ENVIRONMENT, answers, build
from seqlab_export.runner.graph_runner import BundleRunner

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
V = TOKENIZER.vocab_size
STOP, LENGTH, CANCELLED = 0, 1, 2
INVALID, DAMAGED, NO_MEMORY, UNAVAILABLE = 1, 3, 6, 8
"""Values of `seqlab::StatusCode`."""
Asked = dict[str, Any]
DECODED = ("attention", "mamba", "fused", "hybrid", "translator", "attentive translator", "fused translator", "int8")


def engine(folder: Path, requests: list[Asked], **bounds: int) -> tuple[list[Any], dict[str, int]]:
    """The answer to each request, and the engine's counts."""
    found = _asked(folder, requests, bounds)
    return found["answers"], found["stats"]


def _asked(folder: Path, requests: list[Asked], bounds: dict[str, int]) -> Any:
    line = json.dumps({"requests": requests, "bounds": bounds})
    command = [build("answer_engine"), folder]
    done = subprocess.run(command, input=line, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def request(dice: random.Random, *, source: bool, most: int = 7) -> Asked:
    asked: Asked = {
        "prompt": [dice.randrange(V) for _ in range(dice.randint(1, most))],
        "max_new_tokens": dice.choice([1, 2, 5, 12, 17]),
        "penalty": dice.choice([1.0, 1.3]),
        "ngram": dice.choice([None, 3]),
        "stop_ids": dice.sample(range(V), dice.choice([0, 1])),
        "temperature": dice.choice([0.0, 0.0, 1.0, 2.5]),
        "top_k": dice.choice([None, 3]),
        "top_p": dice.choice([1.0, 0.9]),
        "min_p": dice.choice([0.0, 0.05]),
        "seed": dice.randrange(2**63),
    }
    if source:
        asked["source"] = [dice.randrange(SOURCE.vocab_size) for _ in range(dice.randint(1, 9))]
    return asked


def alone(folder: Path, requests: list[Asked]) -> list[list[int]]:
    """The tokens of each request, which `Session::Generate` continues by itself."""
    asked = [one | {"prompts": [one["prompt"]]} for one in requests]
    return [tokens for [tokens] in answers(folder, [one | _sources(one) for one in asked])]


def _sources(one: Asked) -> Asked:
    return {"sources": [one["source"]]} if "source" in one else {}


@pytest.mark.parametrize("name", ["gru", *(pytest.param(name, marks=pytest.mark.slow) for name in DECODED)])
def test_each_text_is_that_of_its_request_alone(name: str, bundle: Bundle) -> None:
    """Greedy and drawn texts of rows that come and go, whose prompts are read in chunks."""
    folder, dice = bundle(name), random.Random(name)
    requests = [request(dice, source="translator" in name) for _ in range(60)]
    expected = alone(folder, requests)
    for number, one in enumerate(requests):
        one["after"] = 2 * number
    for bounds in ({"chunk": 3, "max_running": 5}, {"chunk": 1, "prefix_memory": 0}, {}):
        found, stats = engine(folder, requests, **bounds)
        assert [answer["tokens"] for answer in found] == expected
        ends = [
            STOP if tokens[-1] in one["stop_ids"] else LENGTH for one, tokens in zip(requests, expected, strict=True)
        ]
        assert [answer["finish"] for answer in found] == ends
        tokens = sum(map(len, expected))
        assert stats["new_tokens"] == tokens and stats["steps"] < tokens - len(requests), "rows share steps"
        assert stats["finished"] == 60 and stats["running"] == stats["waiting"] == stats["memory"] == 0


def test_rows_draw_their_own_numbers_and_report_what_was_likely(bundle: Bundle) -> None:
    folder = bundle("gru")
    asked: Asked = {"max_new_tokens": 9, "temperature": 1.5, "seed": 3, "stop_ids": [], "likeliest": 2}
    plain = {"top_k": None, "top_p": 1, "min_p": 0, "penalty": 1, "ngram": None}
    found, _ = engine(folder, [asked | {"prompt": [5, 6], "row": row} for row in range(4)])
    [expected] = answers(folder, [asked | plain | {"prompts": [[5, 6]] * 4}])
    assert [answer["tokens"] for answer in found] == expected and len({*map(str, expected)}) == 4

    runner, tokens = BundleRunner(folder), np.array([[5, 6, *expected[0]]])
    logits = runner.read("model", tokens, tokens >= 0, runner.init_state(1))[0][0, 1:-1].astype(np.float64)
    known = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, token, (own, likeliest) in zip(known, expected[0], found[0]["known"], strict=True):
        assert own == pytest.approx(row[token], abs=1e-5)
        assert [one for one, _ in likeliest] == np.argsort(-row)[:2].tolist()
        assert [number for _, number in likeliest] == pytest.approx(sorted(row)[:-3:-1], abs=1e-5)


@pytest.mark.parametrize("name", ["gru", pytest.param("attention", marks=pytest.mark.slow)])
def test_a_prompt_that_begins_as_an_earlier_one_is_not_read_again(name: str, bundle: Bundle) -> None:
    """Nor does it change the text. The least recently used states are dropped."""
    folder, dice = bundle(name), random.Random(0)
    common, other = ([dice.randrange(V) for _ in range(17)] for _ in range(2))
    prompts = [[*common, 4], [*common, 5, 6], common, common[:8], [*other, 4], [*common, 4]]
    rest: Asked = {"max_new_tokens": 6, "temperature": 0.0, "penalty": 1, "ngram": None, "stop_ids": []}
    plain = {"top_k": None, "top_p": 1, "min_p": 0, "seed": 0}
    requests = [rest | plain | {"prompt": prompt} for prompt in prompts]
    expected = alone(folder, requests)
    staggered = [one | {"after": 6 * number} for number, one in enumerate(requests)]
    found, stats = engine(folder, staggered, chunk=4)
    assert [answer["tokens"] for answer in found] == expected
    assert [answer["cached"] for answer in found] == [0, 16, 16, 4, 0, 16]
    assert stats["cached_tokens"] == 52 and stats["prompt_tokens"] == sum(map(len, prompts))

    whole = stats["prefix_memory"]
    found, stats = engine(folder, staggered, chunk=4, prefix_memory=whole // 2)
    assert [answer["tokens"] for answer in found] == expected
    assert found[1]["cached"] == 16 and found[5]["cached"] == 0 and 0 < stats["prefix_memory"] <= whole // 2
    found, stats = engine(folder, staggered, chunk=4, prefix_memory=0)
    assert [answer["cached"] for answer in found] == [0] * 6 and stats["prefix_memory"] == 0


def test_an_engine_keeps_its_bounds(bundle: Bundle) -> None:
    """Requests wait for memory and for their turn; where nobody may wait, they are refused."""
    folder = bundle("attention")
    one: Asked = {"prompt": [5, 6], "max_new_tokens": 50, "temperature": 0.0}
    [alone], stats = engine(folder, [one])
    # One step reads a text at a time where there is memory for one alone.
    bytes_of_one = _least_memory(folder, one)
    found, stats = engine(folder, [one] * 3, memory=bytes_of_one)
    assert [answer["tokens"] for answer in found] == [alone["tokens"]] * 3 and stats["steps"] == 3 * 49
    _, stats = engine(folder, [one] * 3, memory=3 * bytes_of_one)
    assert stats["steps"] < 2 * 49
    _, stats = engine(folder, [one] * 3, max_running=1)
    assert stats["steps"] == 3 * 49
    [found], _ = engine(folder, [one], memory=bytes_of_one - 1)
    assert found["code"] == NO_MEMORY and found["refused"].startswith("the state of a text of 51 tokens takes ")
    found, stats = engine(folder, [one] * 20, max_running=1, max_waiting=2)
    refused = [answer for answer in found if "refused" in answer]
    assert 16 <= len(refused) <= 18 and {answer["code"] for answer in refused} == {UNAVAILABLE}
    assert refused[0]["refused"] == "2 requests are waiting, which is the most; try again later"


def _least_memory(folder: Path, asked: Asked) -> int:
    [found], _ = engine(folder, [asked], memory=1)
    return int(found["refused"].split(" takes ")[1].split(" ")[0])


def test_what_a_request_does_wrong_is_its_own(bundle: Bundle) -> None:
    folder = bundle("gru")
    one: Asked = {"prompt": [5, 6], "max_new_tokens": 20, "temperature": 0.0}
    wrong = [{"prompt": []}, {"prompt": [V]}, {"max_new_tokens": 0}, {"temperature": -1}, {"source": [4]}, {"row": -1}]
    found, stats = engine(folder, [one, *(one | other for other in wrong), one | {"cancel": 3}, one])
    assert found[0]["tokens"] == found[-1]["tokens"] and len(found[0]["tokens"]) == 20
    assert [answer["code"] for answer in found[1:-2]] == [INVALID] * len(wrong)
    assert found[-2]["finish"] == CANCELLED and found[-2]["tokens"] == found[0]["tokens"][:3]
    assert (stats["finished"], stats["cancelled"], stats["failed"]) == (2, 1, 0)
    for bounds in ({"memory": 0}, {"chunk": 0}, {"max_running": 0}, {"max_waiting": 0}, {"prefix_memory": -1}):
        found = _asked(folder, [], bounds)
        assert found["code"] == INVALID and found["refused"].startswith(f"{next(iter(bounds))} must be at least ")


def test_a_graph_that_gives_less_state_than_its_manifest_says_is_refused(copy: Copy) -> None:
    """Nothing beyond what it gave is read."""
    folder = copy("gru")
    edit_graph(folder, "model.onnx", _halved)
    [found], stats = engine(folder, [{"prompt": [5, 6], "max_new_tokens": 3}])
    assert found["code"] == DAMAGED and "which its manifest does not" in found["refused"] and stats["failed"] == 1


def _halved(model: ModelProto) -> None:
    """Gives the first half of a state's last axis."""
    [name] = [output.name for output in model.graph.output if output.name.endswith("_h")]
    [node] = [node for node in model.graph.node if name in node.output]
    node.output[[*node.output].index(name)] = "whole"
    model.graph.node.append(helper.make_node("Split", ["whole"], [name, "rest"], axis=-1, num_outputs=2))
