"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from seqlab import attention, nn, positions, recurrence
from seqlab.attention import AttentionPart, Pattern
from seqlab.cli import main
from seqlab.mixer import Mixer
from seqlab.positions import PositionalEncoding

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ (seqlab fit .*)\n((?:seqlab: .*\n)?)", README, flags=re.MULTILINE)


@pytest.mark.parametrize(("command", "answer"), SHOWN, ids=[command for command, _ in SHOWN])
def test_commands_do_what_is_shown(
    command: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")
    pairs = "".join(f"one {n}\teins {n}\n" for n in range(60))
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    labelled = "".join(f"{'good' if n % 2 else 'bad'} film {n}\n" for n in range(60))
    (tmp_path / "labelled.txt").write_text(labelled, encoding="utf-8")
    tagged = "".join(f"film\tO\n{n}\tB-NUM\n\n" for n in range(60))
    (tmp_path / "tagged.conll").write_text(tagged, encoding="utf-8")
    np.savez(tmp_path / "images.npz", images=np.random.default_rng(0).random((60, 4, 4)), labels=np.arange(60) % 2)
    rolls = {"spectrum": [[[n, 0.5], [1.5, n]] for n in range(60)], "energy": [[0.5, 1.0]] * 60}
    parquet.write_table(pa.table({**rolls, "notes": [[[0, 1], [1, 1]]] * 60}), tmp_path / "rolls.parquet")
    code = main([*shlex.split(command)[1:], "--trainer.fast_dev_run=true"])
    assert code == (2 if answer else 0)
    if answer:
        assert capsys.readouterr().err == answer


def test_commands_are_shown() -> None:
    assert len(SHOWN) >= 3 and any(answer for _, answer in SHOWN)


def test_every_verb_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = set(re.findall(r"^    ([\w-]+)(?:  +\w|$)", capsys.readouterr().out, flags=re.MULTILINE))
    listed = {
        verb for row in re.findall(r"^\| `seqlab ([\w\\|-]+)", README, flags=re.MULTILINE) for verb in row.split("\\|")
    }
    assert verbs == listed


def test_every_block_is_named() -> None:
    rooms = (attention, nn, positions, recurrence)
    bases = (Mixer, PositionalEncoding, Pattern, AttentionPart, nn.FeedForward, nn.Residual)
    blocks = {cls for room in rooms for name in room.__all__ if isinstance(cls := getattr(room, name), type)}
    missing = {
        cls.__name__
        for cls in blocks
        if issubclass(cls, bases) and cls not in bases and f"`{cls.__name__}`" not in README
    }
    assert not missing


def test_the_hybrid_stack_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = re.findall(r"^    mixer: (\[.*\])$", README, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")
    config = yaml.safe_load((ROOT / "platform/seqlab/configs/lm/attention-nope.yaml").read_text(encoding="utf-8"))
    config["model"]["model"] |= {"mixer": yaml.safe_load(line), "num_layers": 4, "d_model": 16}
    (tmp_path / "hybrid.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert main(["fit", "--config", "hybrid.yaml", "--data.path=text.txt", "--trainer.fast_dev_run=true"]) == 0


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    """The pages that only the site has, of which docs/index.md tells, are in the site's own check."""
    beside = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
    for page in [*beside, *(ROOT / "docs").rglob("*.md")]:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", page.read_text(encoding="utf-8")):
            if "://" in link or re.search(r"(^|/)reference/", link):
                continue
            there = page.parent / link if link else page
            assert there.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in _anchors(there), f"{page.name} links to {link}{anchor}"


def _anchors(page: Path) -> set[str]:
    """As GitHub and the site make them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
