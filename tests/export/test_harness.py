"""Runs and bundles in lm-evaluation-harness: what it measures is what the model says, worked out token by token."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from cli.conftest import write_text
from data.helpers import refused
from export.toys import TOKENIZER, Exported
from once import once
from seqlab import load_run
from seqlab.attention import Attention, PrefixCausal
from seqlab.cli import main as seqlab
from seqlab.decoding import TextCodec
from seqlab.decoding.text_model import Generator
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from tolerances import assert_close

lm_eval: Any = pytest.importorskip("lm_eval", reason="lm-evaluation-harness needs the extra harness")
harness: Any = importlib.import_module("seqlab_export.harness")
HarnessModel = harness.HarnessModel
pytestmark = pytest.mark.filterwarnings("ignore")  # of the harness, its libraries and torch's exporter
LIMIT, BOS, STOP = 16, 1, "ro"
FIT = (
    *("fit", "--config", "lm/attention", "--data.path=text.txt", f"--data.seq_len={LIMIT}", "--data.batch_size=16"),
    *("--model.model.d_model=32", "--model.model.num_layers=1", "--model.lr=1e-2", "--model.warmup_steps=10"),
    *("--trainer.max_steps=150", "--trainer.val_check_interval=150", "--trainer.limit_val_batches=1"),
    "--run_name=tiny",
)
CHOICES: list[dict[str, Any]] = [
    {"context": "the quick", "choices": [" fox", " wizards", "x"], "gold": 0},
    {"context": "seven wizards jump over a ", "choices": ["lazy dog", "box"], "gold": 1},
    {"context": "", "choices": ["a", "the"], "gold": 1},
    {"context": " ", "choices": ["the"], "gold": 0},
]
TEXTS = ["the quick brown fox jumps over a lazy dog while", "a", "sixteen letters!", "seventeen letters"]
PROMPTS = ["the quick", "seven wizards jumps over a lazy", ""]
TASKS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "choice": (
        CHOICES,
        {
            "output_type": "multiple_choice",
            "doc_to_text": "{{context}}",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}],
        },
    ),
    "text": (
        [{"text": text} for text in TEXTS],
        {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "bits_per_byte"}],
        },
    ),
    "write": (
        [{"prompt": prompt} for prompt in PROMPTS],
        {
            "output_type": "generate_until",
            "doc_to_text": "{{prompt}}",
            "doc_to_target": "b",
            "generation_kwargs": {"until": [STOP, "zz"], "max_gen_toks": 9},
            "metric_list": [{"metric": "exact_match"}],
        },
    ),
}


@pytest.fixture(scope="module", name="fitted")
def _fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a character model of learned positions, as a checkpoint and as the bundle `bundle`."""

    def fit(folder: Path) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            write_text(folder)
            assert seqlab([*FIT]) == 0 and seqlab(["export", "tiny", "--out", "bundle"]) == 0
        (folder / "run").symlink_to(next(folder.glob("mlruns/**/best.ckpt")))
        return folder

    return once("harness", fit, tmp_path_factory)


@pytest.fixture(params=["run", "bundle"], name="path")
def _path(request: pytest.FixtureRequest, fitted: Path) -> Path:
    return (fitted / request.param).resolve()


@pytest.fixture(name="tasks")
def _tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tasks, each of a local file. The harness reads none of its own tasks and collects no facts of the
    machine, which takes seconds."""
    own_tasks = partial(importlib.import_module("lm_eval.tasks").TaskManager, include_defaults=False)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", own_tasks)
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
    for name, (rows, config) in TASKS.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = {"data_files": {"test": str(tmp_path / f"{name}.jsonl")}, "cache_dir": str(tmp_path / "cache")}
        stated = {"task": f"tiny_{name}", "dataset_path": "json", "dataset_kwargs": files, "test_split": "test"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(stated | config))
    return tmp_path


def expected_nats(model: Any, tokens: Sequence[int], begins: Callable[[int], int], first: int) -> tuple[float, bool]:
    """Log-probability of the tokens from `first` on, each in a call of its own: `begins` is where its context does."""
    nats, greedy = 0.0, True
    with torch.no_grad():
        for place in range(first, len(tokens)):
            logits = model(torch.tensor([tokens[begins(place) : place]]))[0][0, -1].log_softmax(dim=-1)
            nats += float(logits[tokens[place]])
            greedy &= int(logits.argmax()) == tokens[place]
    return nats, greedy


def of_pair(model: Any, tokenizer: Any, context: str, continuation: str, limit: int = LIMIT) -> tuple[float, bool]:
    tokens = tokenizer.encode(context + continuation)
    first = len(tokenizer.encode(context.rstrip()))
    if first == 0:
        tokens, first = [BOS, *tokens], 1
    return expected_nats(model, tokens, lambda _: max(0, len(tokens) - 1 - limit), first)


def of_text(model: Any, tokenizer: Any, text: str, limit: int = LIMIT) -> float:
    """Windows of `limit` tokens, the last of which ends with the text and scores only what is left."""
    tokens = [BOS, *tokenizer.encode(text)]
    ends = [min(end, len(tokens) - 1) for end in range(limit, len(tokens) - 1 + limit, limit)]
    window = {place: max(0, end - limit) for end in reversed(ends) for place in range(1, end + 1)}
    return expected_nats(model, tokens, window.__getitem__, 1)[0]


def close(found: Sequence[float], expected: Sequence[float]) -> None:
    """float32 models against float64 ones."""
    assert len(found) == len(expected)
    assert_close(torch.tensor(found, dtype=torch.float32), torch.tensor(expected))


def requests(*arguments: Any) -> list[Any]:
    return [SimpleNamespace(args=one) for one in arguments]


def samples(found: Any, task: str) -> list[list[Any]]:
    """Responses to the requests of each document, in order."""
    in_order = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    return [[response for [response] in sample["resps"]] for sample in in_order]


def test_it_measures_what_the_model_says(path: Path, tasks: Path, fitted: Path) -> None:
    names = [f"tiny_{name}" for name in TASKS]
    lm, manager = HarnessModel(str(path)), lm_eval.tasks.TaskManager(include_path=str(tasks))
    found = lm_eval.simple_evaluate(lm, tasks=names, task_manager=manager, bootstrap_iters=0)
    loaded = load_run(str((fitted / "run").resolve()))
    model, tokenizer = loaded.model.double(), loaded.tokenizer

    expected = [[of_pair(model, tokenizer, row["context"], choice) for choice in row["choices"]] for row in CHOICES]
    responses = samples(found, "tiny_choice")
    for own, theirs in zip(responses, expected, strict=True):
        close([nats for nats, _ in own], [nats for nats, _ in theirs])
        assert [greedy for _, greedy in own] == [greedy for _, greedy in theirs]
    right = [max(scored) == scored[row["gold"]] for scored, row in zip(expected, CHOICES, strict=True)]
    assert found["results"]["tiny_choice"]["acc,none"] == sum(right) / len(right)

    nats = [of_text(model, tokenizer, text) for text in TEXTS]
    close([response for [response] in samples(found, "tiny_text")], nats)
    bits = -sum(nats) / sum(map(len, TEXTS)) / torch.tensor(2.0).log().item()
    assert found["results"]["tiny_text"]["bits_per_byte,none"] == pytest.approx(bits, rel=1e-5)

    seen = [tokenizer.decode(tokenizer.encode(prompt)[-8:]) for prompt in PROMPTS]  # 8 tokens and 8 new ones
    whole = [lm.model.write(prompt, max_new_tokens=9, temperature=0.0) for prompt in seen]
    assert [response for [response] in samples(found, "tiny_write")] == [text.partition(STOP)[0] for text in whole]


def test_a_batch_changes_nothing(path: Path) -> None:
    pairs = [(row["context"], choice) for row in CHOICES for choice in row["choices"]]
    alone, together = (HarnessModel(str(path), batch_size=size).loglikelihood(requests(*pairs)) for size in (1, "3"))
    close([nats for nats, _ in together], [nats for nats, _ in alone])
    assert [greedy for _, greedy in together] == [greedy for _, greedy in alone]


def test_a_greedy_continuation_is_known(path: Path) -> None:
    lm = HarnessModel(str(path))
    written = lm.model.write("the quick", max_new_tokens=5, temperature=0.0)
    other = written[:-1] + ("x" if written[-1] != "x" else "y")
    found = lm.loglikelihood(requests(("the quick", written), ("the quick", other), ("the quick", written[:2])))
    assert [greedy for _, greedy in found] == [True, False, True]


@pytest.mark.parametrize("limit", [None, 5])
def test_a_model_without_a_limit(limit: int | None, shared: Callable[[str], Exported]) -> None:
    toy = shared("attention")
    lm, model, text = HarnessModel(str(toy.folder), max_length=limit), toy.model.double(), "abcdef fade a bed"
    try:
        length = limit or len(text)
        close(lm.loglikelihood_rolling(requests((text,))), [of_text(model, TOKENIZER, text, length)])
        [(nats, _)] = lm.loglikelihood(requests((text, "cab")))
        close([nats], [of_pair(model, TOKENIZER, text, "cab", limit or 99)[0]])
    finally:
        toy.model.float()
    assert lm.loglikelihood_rolling(requests(("",))) == [0]


def test_sampling_is_that_of_generate(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, steps = HarnessModel(str(path)), list[int]()
    given = {"until": [], "max_gen_toks": 6, "do_sample": True, "temperature": 0.9, "top_k": 5, "seed": 7}
    found = lm.generate_until(requests(*[("the ", given)] * 4))
    kept = {"max_new_tokens": 6, "temperature": 0.9, "top_k": 5}
    assert found == [lm.model.write("the ", **kept, seed=seed) for seed in (7, 8, 9, 10)] and len({*found}) > 1
    assert lm.generate_until(requests(("the ", given | {"do_sample": False}))) == [
        lm.model.write("the ", max_new_tokens=6, temperature=0.0)
    ]

    step, stop = lm.decoder.step, found[0][1:3]

    def counted(tokens: Any, state: Any) -> Any:
        steps.append(len(tokens))
        return step(tokens, state)

    monkeypatch.setattr(lm.decoder, "step", counted)
    [text] = lm.generate_until(requests(("the ", given | {"until": [stop, ""]})))
    assert text == found[0].partition(stop)[0] and len(steps) == len(text) + 1, "it ends with the stop string"


@pytest.fixture(name="reads_prefix")
def _reads_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = partial(Attention, num_heads=2, pattern=partial(PrefixCausal, 4))
    model = DecoderLM(TOKENIZER.vocab_size, LIMIT, d_model=16, num_layers=1, mixer=mixer)
    opened = Generator("a prefix model", TextCodec("prompts", TOKENIZER), TorchDecoder(model))
    monkeypatch.setattr(harness, "_open", lambda *_: opened)


def test_a_model_that_reads_its_prefix_in_both_directions(reads_prefix: None) -> None:
    with refused("reads the first 4 tokens of a text in both directions; the harness evaluates causal"):
        HarnessModel("any")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": "auto"}, "batch_size must be a whole number of at least 1, got auto"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"max_length": LIMIT + 1}, "max_length must be from 1 to 16, got 17"),
        ({"max_length": 0}, "max_length must be from 1 to 16, got 0"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], message: str, fitted: Path) -> None:
    with refused(message):
        HarnessModel(str(fitted / "bundle"), **options)


def test_requests_that_are_refused(fitted: Path, served: Callable[[str], Path], monkeypatch: Any) -> None:
    lm = HarnessModel(str(fitted / "bundle"))
    assert len(lm.loglikelihood(requests(("a", "b" * LIMIT)))) == 1
    with refused(f"the continuation '{'b' * 17}' has 17 tokens after its context; accepted: from 1 to 16"):
        lm.loglikelihood(requests(("a", "b" * (LIMIT + 1))))
    with refused("the continuation '' has 0 tokens after its context"):
        lm.loglikelihood(requests(("a", "")))
    assert lm.generate_until(requests(("the quick", {"max_gen_toks": LIMIT, "until": []})))
    with refused("max_gen_toks must be at most 16, the length that is read; got 17"):
        lm.generate_until(requests(("a", {"max_gen_toks": LIMIT + 1, "until": []})))
    with refused("there is no option 'num_beams'; accepted: max_new_tokens"):
        lm.generate_until(requests(("a", {"max_gen_toks": 2, "until": [], "num_beams": 2})))
    monkeypatch.setattr(lm.model.codec, "tokenizer", SimpleNamespace(bos_id=-1, eos_id=-1))
    with refused("bundle has no token that starts or ends a text; every text needs a context"):
        _ = lm.prefix_token_id
    with refused("is a model for `seqlab classify`; the harness evaluates language models"):
        HarnessModel(str(served("classifier")))


@pytest.fixture(name="typed")
def _typed(monkeypatch: pytest.MonkeyPatch, tasks: Path) -> Iterator[Callable[..., int]]:
    def typed(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["harness", "--include_path", str(tasks), *arguments])
        return harness.main()

    kept = dict(os.environ)
    yield typed
    os.environ.clear()
    os.environ.update(kept)


def test_its_command_is_that_of_the_harness(
    path: Path, typed: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("--model", "seqlab", "--model_args", f"path={path}", "--tasks", "tiny_choice", "--limit", "2") == 0
    assert "|tiny_choice|" in capsys.readouterr().out


def test_a_model_that_does_not_exist(typed: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--model", "seqlab", "--model_args", "path=nothing.ckpt", "--tasks", "tiny_choice") == 2
    assert "\nseqlab: " in "\n" + capsys.readouterr().err
