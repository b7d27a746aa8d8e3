"""Options on the command line, however deep, against the same ones in YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqlab.cli.parsed_fit import ParsedFit
from seqlab.config.configs import resolve_names
from seqlab.config.quiet import quiet

MODULE = """
import lightning as L

class Inner:
    def __init__(self, text: str | None = "default", pattern: str = "x"): ...

class Outer:
    def __init__(self, inner: Inner, text: str | None = "default", pattern: str = "x"): ...

class Data(L.LightningDataModule):
    def __init__(self, outer: Outer, text: str | None = "default", pattern: str = "x"): ...
"""
INNER = {"class_path": "nested_parts.Inner", "init_args": {"text": None, "pattern": 'c\\d \\w+ "q"\n'}}
OUTER = {"class_path": "nested_parts.Outer", "init_args": {"inner": INNER, "text": None, "pattern": "a\\b"}}
DATA = {"class_path": "nested_parts.Data", "init_args": {"outer": OUTER, "text": None, "pattern": "e\\f"}}
WITH_DEFAULTS = {
    "class_path": "nested_parts.Data",
    "init_args": {"outer": {"class_path": "nested_parts.Outer", "init_args": {"inner": "nested_parts.Inner"}}},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"data": DATA},
        {"data.outer": OUTER, "data.text": None, "data.pattern": "e\\f"},
        {"data.outer.inner": INNER, "data.outer.text": None, "data.outer.pattern": "a\\b"}
        | {"data.text": None, "data.pattern": "e\\f"},
        {"data.outer.inner": "nested_parts.Inner", "data.outer.inner.text": None, "data.outer.text": None}
        | {"data.outer.inner.pattern": 'c\\d \\w+ "q"\n', "data.outer.pattern": "a\\b"}
        | {"data.text": None, "data.pattern": "e\\f"},
    ],
)
def test_they_arrive_as_from_yaml(given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nested_parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["seqlab"])  # Lightning warns where a program's own arguments differ
    quiet()

    def parsed(data: dict[str, Any], *args: str) -> Any:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": "seqlab.tasks.LanguageModeling", "data": data}))
        model = '--model.model={"class_path": "DecoderLM", "init_args": {"mixer": "GRU"}}'
        return ParsedFit("fit", [f"--config={tmp_path / 'config.yaml'}", model, *args]).config["fit"].data

    args = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()]
    assert parsed(WITH_DEFAULTS, *args) == parsed(DATA)


@pytest.mark.slow
def test_a_mapping_of_a_callback_arrives_as_from_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["seqlab"])
    quiet()
    timer = {"class_path": "Timer", "init_args": {"duration": {"minutes": 10}}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"trainer": {"callbacks": [timer]}}), encoding="utf-8")
    ways = ([f"--config={config}"], [f"--trainer.callbacks+={json.dumps(timer)}"])
    begin = resolve_names(["--config=lm/gru", "--data.path=text.txt"])
    written, typed = (ParsedFit("fit", [*begin, *way]).config["fit"].trainer.callbacks for way in ways)
    assert written == typed and typed[0].init_args.duration == {"minutes": 10}
