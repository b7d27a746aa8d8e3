"""Every verb that makes a page refuses one that no browser opens, before it proves a bundle or loads a run."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.toys import Shared
from seqlab.checkpoints.checksummed_file import load_checksummed, save_checksummed
from seqlab.cli import main, page
from seqlab.trained import load
from seqlab_export.page import html
from seqlab_export.runner.manifest import load_manifest

TOO_MANY = 100_663_292
"""Weights in fp32, of a file that has one byte too many."""
Refused = Callable[..., str]


@pytest.fixture(name="refused")
def _refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The sentence with which a verb refuses to write a page, without reading what it is of."""

    def read(*given: Any, **options: Any) -> None:
        raise AssertionError("it was read")

    (tmp_path / "template.html").write_text(html.PLACE)
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")
    monkeypatch.setattr(html, "verify_bundle", read)
    monkeypatch.setattr(load, "load_run", read)
    monkeypatch.setattr(page, "shown", read)

    def refused(*arguments: object) -> str:
        out = tmp_path / "page.html"
        assert main([*map(str, arguments), "--out", str(out)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--precision int4` makes a smaller page" in line and not out.exists()
        return line

    return refused


@pytest.fixture(name="large")
def _large(shared: Shared, tmp_path: Path) -> Path:
    """A bundle with intermediate outputs whose weights are too large, in a file that takes no disk space."""
    folder = Path(shutil.copytree(shared("gru").folder, tmp_path / "bundle"))
    manifest = load_manifest(folder)
    replace(manifest, taps=manifest.model).save(folder)
    os.truncate(folder / "weights.bin", 4 * TOO_MANY)
    return folder


@pytest.mark.parametrize("verb", ["page", "inspect"])
def test_a_large_bundle_is_not_proven(verb: str, large: Path, refused: Refused) -> None:
    assert f"{large / 'weights.bin'} has {4 * TOO_MANY} bytes" in refused(verb, large)


def test_a_large_bundle_is_no_page_of_a_program(large: Path, refused: Refused, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"weights.bin has {4 * TOO_MANY} bytes"):
        html.write_page([html.Shown("large", large)], tmp_path / "page.html")


@pytest.mark.parametrize("verb", [("inspect",), ("export", "--format=html")])
def test_a_large_run_is_not_loaded(verb: tuple[str, ...], refused: Refused, tmp_path: Path) -> None:
    weights = {"model.w": torch.zeros(()).expand(TOO_MANY), "elsewhere": torch.zeros(()).expand(TOO_MANY)}
    save_checksummed({"state_dict": weights}, tmp_path / "large.ckpt")
    assert f"the file of weights has {4 * TOO_MANY} bytes" in refused(verb[0], tmp_path / "large.ckpt", *verb[1:])


def test_a_smaller_precision_of_a_run_is_loaded(refused: Refused, tmp_path: Path) -> None:
    save_checksummed({"state_dict": {"model.w": torch.zeros(()).expand(TOO_MANY)}}, tmp_path / "large.ckpt")
    export = ["export", str(tmp_path / "large.ckpt"), "--format=html", "--out", str(tmp_path / "page.html")]
    for precision in ("fp16", "bf16", "int8", "int4"):
        with pytest.raises(AssertionError, match="it was read"):
            main([*export, f"--precision={precision}"])


def test_weights_are_counted_without_their_values(tmp_path: Path) -> None:
    save_checksummed({"state_dict": {"model.w": torch.ones(3, 5), "other": torch.ones(7)}}, tmp_path / "a.ckpt")
    assert load.count_weights(str(tmp_path / "a.ckpt")) == 15
    assert load_checksummed(tmp_path / "a.ckpt", values=False)["state_dict"]["model.w"].is_meta
    (tmp_path / "a.ckpt").write_bytes((tmp_path / "a.ckpt").read_bytes()[:-1] + b"x")  # its sha256, which takes time
    assert load.count_weights(str(tmp_path / "a.ckpt")) == 15
    save_checksummed({"state_dict": 3}, tmp_path / "b.ckpt")
    with pytest.raises(ValueError, match=r"b\.ckpt: the checkpoint has no weights"):
        load.count_weights(str(tmp_path / "b.ckpt"))


def test_a_page_has_the_bytes_of_its_bundle(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "template.html").write_text(html.PLACE)
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")
    monkeypatch.setattr(html, "CHUNK", 3)
    folder = shared("gru").folder
    html.write_page([html.Shown("gru", folder)], tmp_path / "page.html")
    found = re.findall(r'data-bundle="0" data-path="(.*?)">(.*?)</script>', (tmp_path / "page.html").read_text())
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: base64.b64decode(text, validate=True) for name, text in found} == files
