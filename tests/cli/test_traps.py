"""No verb runs a file of the working folder because a library looks for a module of that name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import TINY, Seqlab, command, write_text
from seqlab.working_folder import WorkingFolder, add_working_folder

RAN = "traps-that-ran"
LAYS_TRAPS = f'''
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Lays:
    """Asked before the working folder is: whatever nothing installed has lies there from now on."""

    names = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name.isidentifier() and not Path(name + ".py").exists() and Path("text.txt").exists():
            cls.names.append(name)
            trap = f"with open({str(RAN)!r}, 'a') as file: file.write({{name!r}} + ' ')\\n"
            Path(name + ".py").write_text(trap)
            PathFinder.invalidate_caches()
        return None


sys.meta_path.append(Lays)
'''
CLASSIFY = [
    *("--config=classify/bigru", "--data.train=labelled.txt", "--model.model.encoder.d_model=16"),
    *("--trainer.max_epochs=1", "--run_name=kinds"),
]
VERBS: tuple[list[str], ...] = (
    ["fit", "--config=lm/attention-rope", *TINY, "--run_name=first"],
    ["fit", *CLASSIFY],
    ["generate", "first", "--max-new-tokens=2"],
    ["generate", "first.ckpt", "--max-new-tokens=2"],
    ["classify", "kinds"],
    ["export", "first", "--out=bundle"],
    ["export", "kinds", "--out=kinds-bundle"],
    ["verify", "bundle"],
    ["generate", "bundle", "--max-new-tokens=2"],
    ["classify", "kinds-bundle"],
    ["page", "bundle", "--out=page.html"],
    ["inspect", "first", "--out=inside.html"],
    ["promote", "bundle"],
    ["compare", "first", "kinds", "--out=report.html"],
    ["validate", "first"],
    ["test", "kinds"],
    ["predict", "kinds"],
    ["resume", "first", "--trainer.max_steps=6"],
    ["profile", "--config=lm/attention-rope", *TINY, "--steps=1"],
    ["estimate", "--config=lm/gru", "--tokens=1e6"],
    ["parity", "--models=first.ckpt", "--precisions=fp32"],
    ["conformance", "--mixers=GRU", "--positions=NoPositions"],
    ["submit", "--config=lm/gru", *TINY],
    ["sweep", "--config=lm/gru", "--vary=model.model.num_layers=1,2", "--sampler=grid", "--", *TINY[:4], *TINY[5:8]],
    ["study", "list"],
    ["configs", "lm/gru"],
)


def _ran(folder: Path) -> str:
    return (folder / RAN).read_text(encoding="utf-8") if (folder / RAN).exists() else ""


@pytest.mark.filterwarnings("ignore")
def test_a_few_verbs_in_this_process(
    fitted: tuple[Path, Seqlab], inside: Callable[[Path], Seqlab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = fitted
    (tmp_path / "text.txt").write_bytes((home / "text.txt").read_bytes())
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not WorkingFolder])
    lays: dict[str, Any] = {}
    exec(LAYS_TRAPS, lays)
    add_working_folder()
    seqlab = inside(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlruns/mlflow.db")
    for verb in (["generate", "first", "--max-new-tokens=2"], ["compare", "first"], ["validate", "first"]):
        seqlab(*verb)
    with pytest.raises(ModuleNotFoundError):
        __import__("a_module_that_nobody_has")
    assert "a_module_that_nobody_has" in lays["Lays"].names
    assert _ran(tmp_path) == ""
    PathFinder.invalidate_caches()


@pytest.mark.slow
def test_every_verb_in_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LAYS_TRAPS, encoding="utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    write_text(folder)
    (folder / "labelled.txt").write_text("".join(f"{number % 2} the fox {number}\n" for number in range(400)))
    seqlab = command(folder)
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    page = find_spec("seqlab_export.page.html")
    assert page is not None and page.origin is not None
    made = Path(page.origin).with_name("template.html").exists()
    for verb in VERBS:
        if verb[0] in ("page", "inspect") and not made:
            continue  # `make web` makes what they need
        seqlab(*verb, PYTHONPATH=path)
        assert _ran(folder) == "", verb
        if verb[0] == "fit" and not (folder / "first.ckpt").exists():
            checkpoint = next(folder.glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt"))
            (folder / "first.ckpt").write_bytes(checkpoint.read_bytes())
    assert len([*folder.glob("*.py")]) > 20
