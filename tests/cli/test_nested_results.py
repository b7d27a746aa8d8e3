"""A config is parsed with each nested class read once; what is kept for that is no different from what is parsed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentParser, Namespace

import seqlab.config.configs  # noqa: F401  # the parser mode
from seqlab.cli.parsed_fit import ParsedFit
from seqlab.config.configs import config_path, dump_yaml
from seqlab.config.parser import Parser
from seqlab.config.trust import only_trusted


class Part:
    """A part of any depth."""

    def __init__(self, inner: Part | None = None, size: bool | int | float = 0) -> None:
        self.inner, self.size = inner, size


class Whole:
    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


def parser() -> Parser:
    made = Parser(parser_mode="seqlab")
    made.add_class_arguments(Whole, sub_configs=True)
    return made


def part(depth: int = 0, **options: Any) -> dict[str, Any]:
    return {
        "class_path": f"{__name__}.Part",
        "init_args": options | ({"inner": part(depth - 1, **options)} if depth else {}),
    }


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The calls of jsonargparse's own method."""
    calls: list[Any] = []
    parse: Callable[..., Namespace] = ArgumentParser.parse_object

    def counted(*args: Any, **kwargs: Any) -> Namespace:
        calls.append(args)
        return parse(*args, **kwargs)

    monkeypatch.setattr(ArgumentParser, "parse_object", counted)
    yield calls


@pytest.fixture(autouse=True)
def no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["seqlab"])  # Lightning warns if there is one beside what it is given


def test_each_level_adds_the_same_number_of_parses(parses: list[Any]) -> None:
    """Without what is kept, level 8 doubles the parses of level 7."""
    counts = []
    for depth in (4, 6, 8):
        parses.clear()
        parser().parse_object({"parts": [part(depth, size=1)]})
        counts.append(len(parses))
    assert counts[2] - counts[1] <= 2 * (counts[1] - counts[0])


def test_a_fit_parses_its_config_hundreds_of_times_not_thousands(parses: list[Any]) -> None:
    """It takes 351 parses, 433 if the stored config is validated once more, and 1,343 if nothing is kept."""
    ParsedFit("fit", [f"--config={config_path('lm/gru')}"])
    assert len(parses) < 400


@pytest.mark.parametrize("name", ["lm/gru", "translate/transformer"])
def test_what_is_kept_is_what_is_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args = [f"--config={config_path(name)}", "--model.model.block.ffn.ratio=3", "--trainer.callbacks+=AttentionMaps"]
    ours = ParsedFit("fit", args)
    monkeypatch.setattr("seqlab.config.parser.keeping_results", nullcontext)
    theirs = ParsedFit("fit", args)
    assert repr(ours.config) == repr(theirs.config)
    assert dump_yaml(ours.config_dump) == dump_yaml(theirs.config_dump)


def test_equal_values_of_different_types_are_told_apart() -> None:
    sizes = [1, True, 1.0, 0.0, -0.0]
    found = parser().parse_object({"parts": [part(1, size=size) for size in sizes]}).parts
    assert [repr(one.init_args.inner.init_args.size) for one in found] == [repr(size) for size in sizes]


def test_parts_with_the_same_options_are_not_one_object() -> None:
    first, second = parser().parse_object({"parts": [part(1, size=3), part(1, size=3)]}).parts
    first.init_args.inner.init_args.size = 4
    assert second.init_args.inner.init_args.size == 3


def test_the_same_mistake_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="sise"):
            parser().parse_object({"parts": [part(2, sise=3)]})


def test_a_later_parse_reads_files_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nested = {"class_path": f"{__name__}.Part", "init_args": {"inner": "inner.yaml"}}
    for size in (1, 2):
        (tmp_path / "inner.yaml").write_text(f"class_path: {__name__}.Part\nsize: {size}\n")
        [found] = parser().parse_object({"parts": [nested]}).parts
        assert found.init_args.inner.init_args.size == size


def test_a_later_parse_asks_again_what_may_be_imported() -> None:
    one = parser()
    one.parse_object({"parts": [part(1)]})
    with only_trusted([]), pytest.raises(ValueError, match="not allowed"):
        one.parse_object({"parts": [part(1)]})
    with only_trusted([__name__]):
        one.parse_object({"parts": [part(1)]})
