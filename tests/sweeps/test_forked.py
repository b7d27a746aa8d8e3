"""A fit of a sweep that is forked: what it is given, what becomes of it, and what is left of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from forks import server_of_this_process
from seqlab.sweeps.fits import Fit, Place, end, leftover
from seqlab.sweeps.forked import Forked, short
from seqlab.tracking.provenance import TAGS

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
SLEEP = 20
ENV = {"OMP_NUM_THREADS": "1"}


def program(name: str, **_: Any) -> None:
    """In the place of seqlab."""
    what = sys.argv[1]
    print("argv", sys.argv[1:], os.getcwd(), sorted(os.environ), sys.stdin.read() == "", flush=True)
    assert multiprocessing.get_start_method(allow_none=True) is None
    os.system("echo from below >&2")
    if what == "sleep":
        parent = os.getpid()
        if os.fork() == 0:
            Path("worker").touch()
            while os.getppid() == parent:
                time.sleep(0.01)
            os._exit(0)
        time.sleep(SLEEP)
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    assert handlers == [signal.default_int_handler, signal.SIG_DFL], handlers
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(what))


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seqlab.sweeps.forked.run_module", program)
    with server_of_this_process(lambda: print("the end", flush=True)) as process:
        yield process


@pytest.mark.slow
def test_it_is_as_if_it_were_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    codes = []
    (tmp_path / "script.py").write_text("open('run again', 'w')")
    monkeypatch.setitem(sys.modules, "__main__", module := ModuleType("__main__"))
    module.__file__ = str(tmp_path / "script.py")
    for what in ("0", "3", "die"):
        fit = Forked([what, "a b"], {"ONE": "1", "PATH": os.environ["PATH"], **ENV}, log, "fit-x")
        fit.wait()
        codes.append(fit.poll())
    assert codes == [0, 3, -signal.SIGKILL] and not Path("run again").exists()
    said = log.read_text().splitlines()
    assert said[:2] == [f"argv ['0', 'a b'] {tmp_path} ['OMP_NUM_THREADS', 'ONE', 'PATH'] True", "from below"]
    assert said[2::3] == ["the end"] * 2 and len(said) == 8


@pytest.mark.slow
def test_what_a_sweep_has_left_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_server: list[str] = []
    monkeypatch.setattr(vars(forkserver)["_forkserver"], "ensure_running", lambda: of_server.extend(os.environ))
    begun = [
        Forked(["sleep"], {TAGS: of_run, **ENV}, tmp_path / "log", short(of_run)) for of_run in ("mine", "another")
    ]
    assert psutil.Process(begun[0].pid).name() == short("mine")
    while not Path("worker").exists():
        time.sleep(0.01)
    assert "PYTHONSAFEPATH" in of_server and TAGS not in of_server, "it would be taken for its first fit"
    (left,) = leftover("mine")
    assert left.pid == begun[0].pid, "and not the process that it has started"
    end([left])
    begun[0].wait()
    assert [fit.poll() for fit in begun] == [-signal.SIGTERM, None]
    psutil.Process(begun[1].pid).kill()


@pytest.mark.slow
def test_without_the_server_it_is_a_process_of_its_own(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.sweeps.fits.command", lambda args: ["sh", "-c", "echo alone; exit 255"])
    monkeypatch.setattr("seqlab.sweeps.fits.Forked", forking_sleepers())
    fit = Fit([], "tags", Path("log"), Place())
    assert fit.code is None
    forked = psutil.Process(fit._process.pid)
    os.kill(server, signal.SIGKILL)
    while (code := fit.code) is None:
        time.sleep(0.01)
    assert code == 255 and Path("log").read_text().endswith("alone\n")
    assert not forked.is_running() or forked.status() == psutil.STATUS_ZOMBIE


def forking_sleepers() -> Callable[..., Forked]:
    return lambda args, *more: Forked(["sleep"], *more)
