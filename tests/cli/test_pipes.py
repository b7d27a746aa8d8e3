"""A pipe or a device where a file belongs is refused in one sentence, and not waited for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seqlab.checkpoints.checksummed_file import load_checksummed
from seqlab.cli import main
from seqlab.files.regular_file import check_regular
from seqlab.tracking.runs import find_run
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store
from seqlab_data.tokenizers import PretrainedTokenizer, load_tokenizer
from tracking.tiny import make_run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes are named so on POSIX")


@pytest.fixture(autouse=True)
def _no_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails whatever waits for a pipe, by a signal that interrupts it."""

    def late(*_: object) -> None:
        raise AssertionError("it was waited for")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")


ONCE = "--trainer.fast_dev_run=true"
COMMANDS = {
    "fit --config=file": "file",
    "estimate --config=file --tokens=1": "file",
    "configs file": "file",
    "sweep file": "file",
    "sweep --config=file --vary model.lr=0.1,0.2 --trials=2": "file",
    f"fit --config=lm/gru --data.path=file {ONCE}": "file",
    f"fit --config=classify/bag-of-words --data.train=file {ONCE}": "file",
    "generate file": "file",
    "verify bundle": "bundle/manifest.json",
    "generate bundle": "bundle/manifest.json",
    "compare": "mlruns/mlflow.db",
    "ui": "mlruns/mlflow.db",
    "fit --config=lm/gru --data.path=text.txt": "mlruns/mlflow.db",
    "sweep --config=lm/gru --vary model.lr=0.1,0.2 --trials=2": "mlruns/sweeps.db",
}
"""Places of what they read."""
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("make", "command"),
    [
        *(pytest.param(pipe, one, marks=SLOW if one.startswith("sweep --config=lm") else ()) for one in COMMANDS),
        *((device, one) for one, place in COMMANDS.items() if "=lm/" not in one or place == "file"),
    ],
)
def test_a_command_refuses_it(
    make: Callable[[Path], None], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("a text " * 1000)
    place = COMMANDS[command]
    make(tmp_path / place)
    assert main(command.split()) == 2
    [said] = [line for line in capsys.readouterr().err.splitlines() if "loading PyTorch" not in line]
    assert (place in said or "/dev/zero" in said) and ("regular file" in said or "is not a file" in said), said


@pytest.mark.parametrize("option", ["model", "data", "trainer", "trainer.callbacks", "model.model", "data.tokenizer"])
def test_an_option_that_could_name_a_config(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe(tmp_path / "file")
    assert main(["fit", "--config=lm/gru", f"--{option}=file"]) == 2
    assert f"config {tmp_path / 'file'} is a pipe; accepted: a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("make", [pipe, device])
def test_what_reads_a_file_refuses_it(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "tokenizer.json")
    for read in (load_checksummed, load_tokenizer, lambda path: PretrainedTokenizer(file=str(path))):
        with pytest.raises(ValueError, match=r"tokenizer\.json|accepted: a regular file"):
            read(tmp_path if read is load_tokenizer else tmp_path / "tokenizer.json")


def test_an_artifact_and_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQLAB_STATE", str(tmp_path / "state"))
    store = Store()
    make_run(store, "one", {"val/loss": [(0, 1.0)]}, tags={"checkpoint.best": "best.ckpt"})
    artifacts = find_run("one", store).artifacts
    for name in ("config.yaml", "best.ckpt"):
        pipe(artifacts / name)
    assert main(["generate", "one"]) == 2
    assert f"artifact {artifacts / 'best.ckpt'} is a pipe; accepted: a regular file" in capsys.readouterr().err
    assert main(["compare", "--out=report.html"]) == 0
    assert "config.yaml is a pipe" in Path("report.html").read_text()
    pipe(unsent(store) / "0.jsonl")
    capsys.readouterr()
    assert main(["promote", "one"]) == 2
    assert "0.jsonl is a pipe; accepted: a regular file" in capsys.readouterr().err


def test_only_regular_files_and_what_is_not_there_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link", "absent", "n" * 5000, "nul\0"):
        check_regular(tmp_path / name, "config")
    with pytest.raises(ValueError, match="is a folder; accepted: a regular file"):
        check_regular(tmp_path, "config")
