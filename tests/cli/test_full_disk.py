"""Files that cannot be written, and verbs that are killed: one sentence, and what is there is whole."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cli.conftest import TINY, Seqlab, command, write_text
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.files.atomic import CannotWriteError, replacing
from seqlab.tracking.runs import find_run

FIT = ("fit", "--config", "lm/gru", *TINY, "--checkpoint_every=1", "--run_name=full")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def half_written(folder: Path) -> list[Path]:
    return [path for end in ("tmp", "partial", "partial-journal") for path in folder.rglob(f"*.{end}")]


@pytest.mark.slow
def test_a_fit_on_a_full_disk_ends_with_a_sentence_and_goes_on(
    tmp_path: Path, quick: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, sync = [0], os.fsync

    def full(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        writes[0] += name.endswith(".last.ckpt.tmp")
        if writes[0] > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = quick(*FIT, "--checkpoint_async=true", code=2)
    assert find_run("full").status == "FAILED"
    (last,) = tmp_path.rglob("last.ckpt")
    lines = [line for line in said.stderr.splitlines() if line.startswith("seqlab: ")]
    assert len(lines) == 1 and "Traceback" not in said.stderr
    assert lines[0].startswith("seqlab: no space left on ")
    assert lines[0].endswith(f" while writing {last}; the one before it is whole")
    assert read_checkpoint(last)["global_step"] == 1
    assert half_written(tmp_path) == []
    quick("resume", "full")
    assert read_checkpoint(last)["global_step"] == 4


def test_a_store_that_cannot_be_created_is_a_sentence(tmp_path: Path, quick: Seqlab) -> None:
    with file_size_limit(100_000):
        said = quick(*FIT, code=2).stderr
    database = tmp_path / "mlruns" / "mlflow.db"
    assert said.splitlines()[-1] == (
        f"seqlab: files are limited to 100000 bytes (ulimit -f) while writing {database}; nothing of it is left"
    )
    assert "Traceback" not in said
    assert not database.exists() and half_written(tmp_path) == []


def test_a_checkpoint_over_the_limit_leaves_the_one_before(tmp_path: Path) -> None:
    """torch reports the end of a file that it could not write, not why."""
    path, files = tmp_path / "last.ckpt", AtomicCheckpointIO()
    files.save_checkpoint({"step": 1}, path)
    with file_size_limit(100_000), pytest.raises(OSError, match=r"files are limited to 100000 bytes .* is whole"):
        files.save_checkpoint({"weights": torch.zeros(100_000)}, path)
    assert read_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder of 2 MB; a file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "seqlab", folder], capture_output=True).returncode:
        pytest.skip("not run: mount is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_on_a_disk_that_is_full(small: Path) -> None:
    write_text(small)
    seqlab = command(small)
    cache = {"SEQLAB_CACHE": str(small.parent / "cache")}
    said = seqlab(*FIT, "--model.model.d_model=128", code=2, **cache).stderr
    assert f"seqlab: no space left on seqlab ({small}) while writing {small}" in said
    assert "Traceback" not in said and half_written(small) == []
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    said = seqlab(*FIT, code=2, **cache).stderr
    assert "is read-only while writing" in said and "Traceback" not in said


def of_sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, ""), "no space left on .*"),
        (OSError(errno.EROFS, ""), "{folder} is read-only"),
        (of_sqlite(sqlite3.SQLITE_FULL), "no space left on .*"),
        (of_sqlite(sqlite3.SQLITE_READONLY), "{folder} is read-only"),
    ],
)
def test_what_the_system_refuses_is_told(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    told = f"^{said.format(folder=tmp_path)} while writing {tmp_path}/file; nothing of it is left$"
    with pytest.raises(CannotWriteError, match=told), replacing(tmp_path / "file") as partial:
        partial.touch()
        raise error
    assert os.listdir(tmp_path) == []


SHARE = 0.85
"""The moment of the kill, as a share of the verb's time; before the half it imports."""
WRITERS = {
    "export": (["export", "first", "--out=new bundle"], "new bundle"),
    "page": (["page", "bundle", "--out=page.html"], "page.html"),
    "compare": (["compare", "--out=report.html"], "report.html"),
    "promote": (["promote", "bundle"], None),
    "sweep": (["sweep", "--config=lm/gru", *TINY, "--vary=model.lr=0.1,0.2", "--sampler=grid", "--name=swept"], None),
}


def started(folder: Path, *args: str) -> subprocess.Popen[bytes]:
    typed = [str(Path(sys.executable).with_name("seqlab")), *args]
    environment = {**os.environ, "SEQLAB_CACHE": str(folder / "cache")}
    return subprocess.Popen(typed, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module", name="folder")
def _folder(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run and its bundle."""
    folder = tmp_path_factory.mktemp("killed") / "copy"
    shutil.copytree(fitted, folder, ignore=shutil.ignore_patterns("bundle"))
    command(folder)("export", "first", "--out=bundle")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", WRITERS)
def test_what_is_written_is_whole_or_not_there(
    verb: str, folder: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    args, out = WRITERS[verb]
    whole = shutil.copytree(folder, tmp_path / "whole")
    begun = time.monotonic()
    command(whole)(*args)
    seconds = time.monotonic() - begun
    killed = shutil.copytree(folder, tmp_path / "killed")
    with started(killed, *args) as process:
        time.sleep(SHARE * seconds)
        process.kill()
    seqlab = inside(killed)
    if out == "new bundle" and (killed / out).exists():
        seqlab("verify", out)
    elif out is not None and (killed / out).exists():
        assert (killed / out).read_text(encoding="utf-8").rstrip().endswith("</html>")
    if out is None or not (killed / out).exists():
        seqlab(*args)
    assert "first" in seqlab("compare", COLUMNS="160").stdout
