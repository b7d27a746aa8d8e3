"""Texts in, texts out: what the commands and the runner say, for every kind of bundle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.toys import TOKENIZER
from repository.source_tree import python_blocks
from seqlab.decoding import Repetition, Sampling, beam_search, generate, padded_right
from seqlab.text_options import GENERATE
from seqlab_export.runner.graph_runner import Bundle, BundleRunner
from seqlab_export.runner.text_model import open_text_model

Served = Callable[[str], Path]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter

slow = pytest.mark.slow
TEXTS = ["abc", "fed a cab", "b"]


def test_a_prompt_is_continued_whatever_the_others_are(served: Served) -> None:
    model, runner = open_text_model(served("generator")), BundleRunner(served("generator"))
    sampling: dict[str, Any] = {"temperature": 0.7, "top_k": 5, "seed": 3}
    options = {**sampling, "max_new_tokens": 12, "repetition_penalty": 1.2}
    expected = []
    for text in TEXTS:
        [tokens] = generate(
            runner,
            [TOKENIZER.encode(text)],
            max_new_tokens=12,
            sampling=Sampling(**sampling),
            repetition=Repetition(penalty=1.2),
            stop_ids=(TOKENIZER.eos_id, TOKENIZER.bos_id),
        )
        expected.append(TOKENIZER.decode(tokens))
    assert [answer["text"] for answer in model.answer(TEXTS, options)] == expected
    assert [model.write(text, **options) for text in TEXTS] == expected
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
    model, runner = open_text_model(served("translator")), BundleRunner(served("translator"))
    assert model.codec.source_tokenizer is not model.codec.tokenizer
    sources = [[*model.codec.source_tokenizer.encode(text), TOKENIZER.eos_id] for text in TEXTS]
    found = beam_search(
        runner.begin(*padded_right(sources)),
        [[TOKENIZER.bos_id, *TOKENIZER.encode("ab")]] * len(TEXTS),
        beams=3,
        max_new_tokens=runner.manifest.seq_len - 2,
        stop_ids=(TOKENIZER.eos_id,),
        length_penalty=0.5,
    )
    options: dict[str, Any] = {"beams": 3, "length_penalty": 0.5, "prefix": "ab"}
    all_of_them = [["ab" + TOKENIZER.decode(one.tokens) for one in best] for best in found]
    assert model.translate(TEXTS, **options) == all_of_them
    expected = [best[0] for best in all_of_them]
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


@slow
def test_each_word_is_tagged(served: Served) -> None:
    model, bundle = open_text_model(served("tagger")), Bundle(served("tagger"))
    for text, answer in zip(TEXTS, model.answer(TEXTS), strict=True):
        places = bundle.probabilities(model.encode([text])[0]).argmax(axis=1)
        assert answer == {"tags": " ".join(bundle.manifest.labels[place] for place in places)}


@pytest.mark.parametrize(
    ("name", "texts", "options", "message"),
    [
        ("generator", ["abc"], {"beams": 2}, "there is no option 'beams'; accepted: max_new_tokens, .*, seed"),
        ("generator", ["abc"], {"temperature": -1.0}, "temperature must be at least 0"),
        ("generator", ["abc", None], {}, "text 1 is None, which is no text"),
        pytest.param("translator", ["abc", " "], {}, "text 1 is empty", marks=slow),
        pytest.param("masked", ["abc"], {}, "is not of texts: it has no tokenizer, or names no classes", marks=slow),
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
