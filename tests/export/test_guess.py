"""Bundles of models that guess tokens: every runtime writes the text that its steps write, in fewer passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from export.planted import copy_of
from export.toys import TOKENIZER
from runtime import programs
from seqlab.attention import Attention
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import GREEDY, Sampling
from seqlab.decoding.speculate import speculate
from seqlab.models import DecoderLM
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.capture.graph_forms import GuessForm
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.manifest import BundleError, load_manifest
from web import programs as web

pytestmark = pytest.mark.slow
MOST = 40
MODELS: dict[str, dict[str, Any]] = {
    "GRU": {"mixer": GRU, "positions": NoPositions},
    "attention": {"mixer": partial(Attention, num_heads=2), "positions": Learned},
}
Exported = Callable[..., Path]


def _model(name: str) -> DecoderLM:
    torch.manual_seed(0)
    model = DecoderLM(TOKENIZER.vocab_size, 64, d_model=16, num_ahead=2, **MODELS[name]).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture(scope="module", name="exported")
def _exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    made: dict[tuple[Any, ...], Path] = {}

    def export(name: str, **options: Any) -> Path:
        key = name, *options.values()
        if key not in made:
            made[key] = tmp_path_factory.mktemp("guess") / "bundle"
            report = export_bundle(_model(name), TOKENIZER, made[key], seq_len=64, **options)
            # In one call, in chunks and in greedy text, as `model`.
            kinds = {check.kind for check in report.checks if check.subject.startswith("guess.onnx, ")}
            assert kinds >= {"prefill", "chunks", "greedy"}
        return made[key]

    return export


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=3)], ids=["greedy", "drawn"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GRU", {}),
        ("attention", {}),
        ("attention", {"target": "ort"}),
        ("GRU", {"precision": "int8"}),
        ("attention", {"precision": "int4"}),
    ],
)
def test_every_runtime_writes_the_text_of_the_steps(
    name: str, options: dict[str, Any], sampling: Sampling, exported: Exported
) -> None:
    folder = exported(name, **options)
    runner = BundleRunner(folder)
    assert runner.num_ahead == 2
    prompt = TOKENIZER.encode("abc")
    [text] = generate(runner, [prompt], max_new_tokens=MOST, sampling=sampling)
    found = speculate(runner, prompt, max_new_tokens=MOST, sampling=sampling)
    # In int8 and int4 a pass and a step differ by more than rounding.
    assert found.tokens == text or "precision" in options

    written: dict[str, Any] = {"max_new_tokens": MOST, "temperature": sampling.temperature, "seed": sampling.seed}
    expected = open_text_model(folder).write("abc", **written)
    flags = ["--prompt", "abc", "--max-new-tokens", str(MOST), "--temperature", str(sampling.temperature)]
    done = programs.run("generate", folder, *flags, "--seed", str(sampling.seed))
    assert done.returncode == 0 and done.stdout.decode().removesuffix("\n") == expected
    asked = {"write": "abc", "top_k": None, "top_p": 1, "min_p": 0, "penalty": 1, "ngram": None, **written}
    [answer] = web.answers(folder, [asked])
    assert answer["text"] == expected


def test_a_pass_reads_several_tokens(exported: Exported) -> None:
    """A model whose heads know its text."""
    folder = exported("GRU")
    runner = copy(BundleRunner(folder))
    [text] = generate(runner, [[5]], max_new_tokens=MOST)
    guess = runner.guess

    def told(tokens: Any, state: Any, first: int) -> Any:
        logits, guesses, new_state = guess(tokens, state, first)
        begins = 0 if state is None else int(state["state_position"][0])
        for place in range(len(guesses)):
            after = [5, *text, 0, 0, 0, 0][begins + first + place + 2 :][:2]
            guesses[place] = after + [0] * (2 - len(after))
        return logits, guesses, new_state

    runner.guess = told  # type: ignore[method-assign]
    assert speculate(runner, [5], max_new_tokens=MOST) == (text, 1 + (MOST - 1) // 3)


def test_a_graph_that_guesses_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GuessForm.forward

    def wrong(self: GuessForm, tokens: Any, pad_mask: Any, state: Any, scored: Any) -> Any:
        logits, new_state, guesses = whole(self, tokens, pad_mask, state, scored)
        return 1.001 * logits, new_state, guesses

    monkeypatch.setattr(GuessForm, "forward", wrong)
    with pytest.raises(ParityError) as error:
        export_bundle(_model("GRU"), TOKENIZER, tmp_path / "bundle", seq_len=64)
    assert all(check.subject.startswith("guess.onnx, ") for check in error.value.report.checks if not check.ok)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda guess: guess["outputs"].pop(), "must have the inputs and outputs of model, and guesses"),
        (lambda guess: guess["inputs"].pop(), "must have the inputs and outputs of model, and guesses"),
        (lambda guess: guess["outputs"][-1].update(name="ids"), r"must end with guesses \(B, K, N\)"),
        (lambda guess: guess["outputs"][-1].update(dims=["B", "K", "K"]), r"must end with guesses \(B, K, N\)"),
        (lambda guess: guess.update(file="other.onnx"), "no sha256 of other.onnx"),
    ],
)
def test_a_wrong_declaration_is_refused(change: Any, message: str, exported: Exported, tmp_path: Path) -> None:
    folder = copy_of(exported("GRU"), tmp_path)
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content["guess"])
    path.write_text(json.dumps(content))
    with pytest.raises(BundleError, match=message):
        load_manifest(folder)
    said = message.replace("\\", "")
    assert said in web.refusal(folder)
    done = programs.run("generate", folder, "--prompt", "a")
    assert done.returncode == 2 and said in done.stderr.decode()
