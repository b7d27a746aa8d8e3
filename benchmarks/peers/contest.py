"""Parts shared by benchmarks against other programs: bundles, environments, children that answer, rounds in turns.

A child loads its model once and says "ready" in a line. Then each line of its stdin is a JSON question, "prompts" or
"sources" as lists of ids among others, and each line of its stdout the answer: "seconds", and "written", lists of ids.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import TargetName

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
RUNTIME = Path(os.environ.get("SEQLAB_RUN", BUILD / "cpp" / "seqlab-run"))
SERVERS = Path(__file__).resolve().parent


class UnavailableError(Exception):
    """A benchmark lacks something on this machine, which the message names."""


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark, or prints in one line what it lacks."""
    try:
        main()
    except UnavailableError as reason:
        print(f"{Path(sys.argv[0]).stem}: {reason}")


def program(target: str) -> Path:
    """A program of export/runtime, rebuilt if its sources have changed."""
    folder = BUILD / "cpp"
    configure = ["cmake", "-S", str(ROOT / "export/runtime"), "-B", str(folder), "-G", "Ninja"]
    build = ["cmake", "--build", str(folder), "--parallel", "2", "--target", target]
    for command in (configure, build):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise UnavailableError("not run: cmake is not installed, which `make cpp` needs") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UnavailableError(f"not run: `make cpp` fails: {said[-1] if said else done.returncode}")
    places = [folder / target, folder / "tests" / target]
    return next(place for place in places if place.is_file())


def bundle(
    model: Any, vocab_size: int, name: str, precision: Precision, seq_len: int, target: TargetName = "portable"
) -> Path:
    """The proven bundle of a model, from an earlier run if neither the model nor the code has changed since."""
    digest = hashlib.sha256()
    for folder in ("platform", "datamodules", "export/seqlab_export"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    for weights in model.state_dict().values():
        digest.update(weights.numpy().tobytes())
    out = BUILD / "benchmarks" / f"{name}-{precision}-{target}-{digest.hexdigest()[:12]}"
    if not out.is_dir():
        print(f"writing and proving {out.relative_to(ROOT)}, once; it takes minutes", file=sys.stderr, flush=True)
        characters = "".join(map(chr, range(0x4E00, 0x4E00 + vocab_size - 4)))
        tokenizer = CharTokenizer(characters)
        export_bundle(
            model,
            tokenizer,
            out,
            run_id="benchmark",
            commit="benchmark",
            seq_len=seq_len,
            precision=precision,
            target=target,
        )
    return out


def environment(name: str, *requirements: str) -> Path:
    """The Python of a separate virtual environment, created with these packages if it is missing."""
    folder = BUILD / "peers" / name
    stamp = folder / "installed"
    if not stamp.is_file() or stamp.read_text() != " ".join(requirements):
        print(f"installing {' '.join(requirements)} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *requirements]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise UnavailableError(f"not run: {' '.join(requirements)} cannot be installed: {said[-1] if said else ''}")
        stamp.write_text(" ".join(requirements))
    return folder / "bin/python"


class Server:
    """A child that answers; see the top of this file."""

    def __init__(self, python: Path | str, script: str, *arguments: object, threads: int) -> None:
        command = [str(python), str(SERVERS / script), *map(str, arguments), str(threads)]
        self._log = BUILD / "benchmarks" / f"{Path(script).stem}-{Path(command[-2]).name}.log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"},
            )
        self._read_until_ready()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise UnavailableError(f"not run: it ended with {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._child.communicate()

    def _read_until_ready(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.strip() == "ready":
                return
        raise UnavailableError(f"not run: it ended with {self._last_words()}")

    def _last_words(self) -> str:
        self._child.wait()
        said = self._log.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else f"exit code {self._child.returncode}"


@contextmanager
def asking(servers: dict[str, Server]) -> Iterator[dict[str, Server]]:
    """Ends the children afterwards."""
    try:
        yield servers
    finally:
        for server in servers.values():
            server.close()


def bench(runtime: Path, folder: Path, threads: int, **options: int | str) -> dict[str, Any]:
    """`seqlab-run bench` in a separate process: `runs` runs, by default one, after one to warm up."""
    options = {"runs": 1, **options}
    given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    done = subprocess.run(
        [str(runtime), "bench", str(folder), "--threads", str(threads), "--json", *given],
        capture_output=True,
        text=True,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix},
    )
    if done.returncode != 0:
        raise UnavailableError(f"not run: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def in_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measurements of each, taken in turns so that other programs' load slows all. The first round warms up."""
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(-1, rounds):
        for name, measure in contestants.items():
            value = measure()
            if turn >= 0:
                measured[name].append(value)
    return measured


def write_in_turns(
    runtime: Path, bundles: Mapping[str, Path], servers: Mapping[str, Server], threads: int, rounds: int, **options: int
) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """The tokens/s of bundles and peers that continue the same prompts, or translate the same sources, round by round,
    and the text of each.

    Args:
        options: `prompt_tokens` and `new_tokens`; of several rows `batch`, of a translation `beams`.
    """
    question: dict[str, object] = {**options}
    written: dict[str, list[list[int]]] = {}

    def of_bundle(name: str) -> float:
        found = bench(runtime, bundles[name], threads, **options)
        question.update(prompts=found["prompts"], sources=found["sources"])
        written[name] = found["written"]
        return float(found["tokens_per_second"])

    def of_peer(name: str) -> float:
        answer = servers[name].ask(question)
        written[name] = answer["written"]
        return len(answer["written"]) * options["new_tokens"] / float(answer["seconds"])

    contestants = {name: partial(of_bundle, name) for name in bundles}
    contestants |= {name: partial(of_peer, name) for name in servers}
    return in_turns(contestants, rounds), written


def ratio(measured: Mapping[str, list[float]], ours: str, theirs: str) -> str:
    """The median of the rounds' ratios, and the lowest and highest."""
    ratios = [a / b for a, b in zip(measured[ours], measured[theirs], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def show_contest(title: str, measured: Mapping[str, list[float]], wanted: Iterable[tuple[str, str, float]]) -> None:
    """Prints the median tokens/s of each, and for pairs of ours and theirs the ratio and its target."""
    rows = [[name, f"{statistics.median(values):,.0f}", "", ""] for name, values in measured.items()]
    rows += [[f"{a} / {b}", "", ratio(measured, a, b), str(least)] for a, b, least in wanted if b in measured]
    show(title, ["", "tokens/s", "ratio (lowest to highest)", "wanted"], rows)


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> str:
    """Number of texts that are the same, token for token."""
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    return f"{same} of {len(ours)} texts are the same"


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=120, highlight=False).print(table)
