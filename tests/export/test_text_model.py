"""Texts in, texts out: what the commands and the runner say, for every kind of bundle; and a bundle as an MLflow model,
which MLflow alone loads, without PyTorch and without the sources of this checkout."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from export.toys import TOKENIZER, run_bare
from repository.source_tree import python_blocks
from seqlab.config.text_options import GENERATE
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.graph_runner import Bundle
from seqlab_export.serving.mlflow_model import save_model

Served = Callable[[str], Path]
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch's exporter
    pytest.mark.filterwarnings("ignore:.*type hint:UserWarning"),  # of MLflow's own, when it is imported
]
slow = pytest.mark.slow
TEXTS = ["abc", "fed a cab", "b"]


def test_a_prompt_is_continued_whatever_the_others_are(served: Served) -> None:
    """(The C++ and the web runtime, which choose tokens in code of their own, write the same.)"""
    model = open_text_model(served("generator"))
    sampling: dict[str, Any] = {"temperature": 0.7, "top_k": 5, "seed": 3}
    options = {**sampling, "max_new_tokens": 12, "repetition_penalty": 1.2}
    expected = [model.write(text, **options) for text in TEXTS]
    assert [answer["text"] for answer in model.answer(TEXTS, options)] == expected
    assert model.answer(TEXTS, options | {"seed": 4}) != model.answer(TEXTS, options)
    assert model.answer(TEXTS[1:2], options) == [{"text": expected[1]}]
    assert model.answer([""], {"max_new_tokens": 3}) and model.answer([], {}) == []
    assert len(TOKENIZER.encode(model.example)) == 3 and model.answer([model.example])


def test_every_option_of_generate_changes_something(served: Served) -> None:
    model = open_text_model(served("generator"))
    other = {"max_new_tokens": 5, "temperature": 0.0, "top_k": 1, "top_p": 0.1, "min_p": 1.0, "seed": 9}
    other |= {"repetition_penalty": 9.0, "no_repeat_ngram": 1}
    assert set(other) == {option.name for option in model.options} and model.options is GENERATE
    plain = model.answer(TEXTS)
    assert all(model.answer(TEXTS, {name: value}) != plain for name, value in other.items())


@slow
def test_a_source_is_translated(served: Served) -> None:
    model = open_text_model(served("translator"))
    assert model.codec.source_tokenizer is not model.codec.tokenizer
    options: dict[str, Any] = {"beams": 3, "length_penalty": 0.5, "prefix": "ab"}
    expected = [best[0] for best in model.translate(TEXTS, **options)]
    assert [answer["text"] for answer in model.answer(TEXTS, options)] == expected
    assert all(text.startswith("ab") for text in expected)


def test_a_text_is_classified(served: Served) -> None:
    model, bundle = open_text_model(served("classifier")), Bundle(served("classifier"))
    for text, answer in zip(TEXTS, model.answer(TEXTS), strict=True):
        chances = bundle.probabilities(TOKENIZER.encode(text)).tolist()
        label = bundle.manifest.labels[chances.index(max(chances))]
        assert answer == {"label": label, "probability": max(chances)}
        assert model.classify(text) == [(label, max(chances), None)]
        assert model.probabilities(text).tolist() == chances
    assert len(TOKENIZER.encode(model.example)) == 3 and model.answer([model.example])


@pytest.mark.parametrize(
    ("name", "texts", "options", "message"),
    [
        ("generator", ["abc"], {"beams": 2}, "there is no option 'beams'; accepted: max_new_tokens, .*, seed"),
        ("generator", ["abc"], {"temperature": -1.0}, "temperature must be at least 0"),
        ("generator", ["abc", None], {}, "text 1 must be a string, got None"),
        pytest.param("translator", ["abc", " "], {}, "text 1 is empty", marks=slow),
        pytest.param("masked", ["abc"], {}, "does not read text: it has no tokenizer or no class names", marks=slow),
        ("classifier", [""], {}, "text 0 is empty"),
        ("classifier", ["abc"], {"seed": 1}, "there is no option 'seed'; accepted: none"),
    ],
)
def test_what_is_refused(name: str, texts: list[Any], options: dict[str, Any], message: str, served: Served) -> None:
    with pytest.raises(ValueError, match=message):
        open_text_model(served(name)).answer(texts, options)


@pytest.mark.parametrize("page", ["docs/bundle.md", "docs/serving.md"])
def test_the_pages_examples_run(page: str, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = (block for block in python_blocks(page) if "open_text_model" in block)
    of_toys = re.sub('"[Tt]he "', '"fed"', shown)
    exec(of_toys.replace('"DIR"', repr(str(served("generator")))), {})
    assert capsys.readouterr().out


REPORT = {"ok": True, "checks": []}

PROGRAM = """
import json, mlflow.pyfunc
model = mlflow.pyfunc.load_model(sys.argv[1])
import seqlab, seqlab_data, seqlab_export
answers = model.predict(["abc", "b"], params={"max_new_tokens": 9, "seed": 4})
print(json.dumps([answers, [package.__file__ for package in (seqlab, seqlab_data, seqlab_export)]]))
"""


@pytest.fixture(autouse=True)
def _path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow puts a model's code on the path for good: processes that later tests start would import it."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def load(folder: Path) -> Any:
    import mlflow.pyfunc  # with a warning of its own

    return mlflow.pyfunc.load_model(str(folder))


@pytest.fixture(name="saved")
def _saved(served: Served, tmp_path: Path) -> Callable[[str], Path]:
    def save(name: str) -> Path:
        save_model(served(name), tmp_path / "model", report=REPORT)
        return tmp_path / "model"

    return save


@slow
def test_it_holds_its_proof_its_bundle_and_the_code_that_runs_it(saved: Callable[[str], Path], served: Served) -> None:
    folder = saved("generator")
    answers, files = json.loads(run_bare(PROGRAM, folder, cwd=folder.parent, present=("mlflow", "yaml")))
    expected = open_text_model(served("generator")).answer(["abc", "b"], {"max_new_tokens": 9, "seed": 4})
    assert answers == expected
    assert all(Path(file).is_relative_to(folder / "code") for file in files)
    assert json.loads((folder / "parity.json").read_text()) == REPORT
    required = [line.partition("==")[0] for line in (folder / "requirements.txt").read_text().splitlines()]
    assert sorted(required) in (["mlflow", "numpy", "onnxruntime"], ["mlflow", "numpy", "onnxruntime-gpu"])
    files = {path.name: path.read_bytes() for path in served("generator").iterdir() if path.is_file()}
    assert {name: (folder / "data" / "bundle" / name).read_bytes() for name in files} == files


@pytest.mark.parametrize("name", ["generator", "classifier"])
def test_the_signature_and_its_example_are_of_texts(name: str, saved: Callable[[str], Path], served: Served) -> None:
    model = load(saved(name))
    of_bundle = open_text_model(served(name))
    signature = model.metadata.signature
    assert [str(kind) for kind in signature.inputs.input_types()] == ["DataType.string"]
    assert signature.outputs.input_names() == list(of_bundle.outputs)
    params = {spec.name: spec.default for spec in signature.params or []}
    assert params == {option.name: option.default for option in of_bundle.options}
    example = model.input_example
    assert model.predict(example) == of_bundle.answer([of_bundle.example])
    assert model.predict(pd.DataFrame({"any name": ["abc"]})) == of_bundle.answer(["abc"])
    with pytest.raises(MlflowException, match="Failed to enforce schema"):
        model.predict([])


def test_what_a_caller_got_wrong_is_told_in_the_words_of_the_command(saved: Callable[[str], Path]) -> None:
    with pytest.raises(MlflowException, match="max_new_tokens must be at least 1, got -1") as refused:
        load(saved("generator")).predict(["abc"], params={"max_new_tokens": -1})
    assert refused.value.get_http_status_code() == 400


@slow
def test_an_encoder_without_classes_takes_arrays(saved: Callable[[str], Path], served: Served) -> None:
    model, tokens = load(saved("masked")), np.array([[3, 4, 5, 6], [6, 5, 4, 3]])
    expected = Bundle(served("masked")).encode(tokens, np.ones((2, 4), dtype=np.bool_))["logits"]
    assert np.array_equal(model.predict(tokens), expected)
    assert model.metadata.signature.outputs.inputs[0].shape == (-1, -1, expected.shape[2])
    assert model.predict(model.input_example).shape == (1, 1, expected.shape[2])
