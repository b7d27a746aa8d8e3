"""Measurements on a device, in a file from which the next run goes on.

A line of the file is one measurement in JSON: its part, row and column in the docs' tables, the hardware, the versions,
the date, and what was `found`, or the `error`. The last line of a measurement counts. The first is written before it
begins, with the error "cut off", so that one that does not end is tried after all others the next time.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

FILE = Path(__file__).resolve().parents[2] / "build" / "gpu-check" / "results.jsonl"
PACKAGES = ("torch", "triton", "onnxruntime", "onnxruntime-gpu", "flash-linear-attention", "torchao")
CUT_OFF = {"error": "cut off"}

Key = tuple[str, str]
"""Row and column."""
Found = Mapping[str, float | str]
"""Numbers by unit, and words by what they say."""


def arguments(doc: str | None) -> ArgumentParser:
    """Parser of the options that all parts take."""
    parser = ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--results", type=Path, default=FILE, help="file of results; default: build/gpu-check's")
    parser.add_argument("--rehearse", action="store_true", help="rehearse on the CPU, at toy size")
    return parser


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, except those that were cut off."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            yield json.loads(line)


class Results(NamedTuple):
    """Measurements of one part on one kind of hardware."""

    part: str
    path: Path
    device: str
    hardware: str

    @classmethod
    def of(cls, part: str, given: Namespace) -> Results:
        """The results that a command line names. Ends the program where there is no device."""
        if given.rehearse:
            return cls(part, given.results, "cpu", "CPU, rehearsal")
        if not torch.cuda.is_available():
            print(f"gpu_{part}: not run: no CUDA device")
            sys.exit()
        return cls(part, given.results, "cuda", torch.cuda.get_device_name())

    def missing(self, keys: Collection[Key]) -> list[Key]:
        """The measurements without a result; last those that were begun before."""
        ours = {"part": self.part, "hardware": self.hardware}.items()
        lines = {(line["row"], line["column"]): line for line in lines_of(self.path) if ours <= line.items()}
        return sorted((key for key in keys if "found" not in lines.get(key, {})), key=lines.__contains__)

    def measure(self, key: Key, measure: Callable[[], Found]) -> None:
        """Stores what is found, or the error."""
        self.store(key, **CUT_OFF)
        try:
            found = measure()
        except Exception as error:
            self.store(key, error=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        else:
            self.store(key, found=found)

    def store(self, key: Key, **what: Any) -> None:
        versions = {}
        for package in PACKAGES:
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        row, column = key
        line = {"part": self.part, "row": row, "column": column, "hardware": self.hardware, "versions": versions}
        line |= {"date": datetime.now(UTC).isoformat(timespec="seconds")} | what
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if what != CUT_OFF and (text := cell(line)):
            print(f"{row}, {column}: {text}", flush=True)

    def run(self, tasks: Mapping[Key, Callable[[], Found]], run: Callable[..., Iterable[None]] = map) -> None:
        """Measures what is missing by `run`, which is `map` or a pool's, and ends the program."""
        missing = self.missing(tasks)
        list(run(self.measure, missing, [tasks[key] for key in missing]))
        self.end(tasks)

    def end(self, keys: Collection[Key]) -> None:
        """Ends the program, with exit code 1 if something is missing, or all."""
        missing = len(self.missing(keys))
        print(f"gpu_{self.part}: {len(keys) - missing} of {len(keys)} measured")
        sys.exit(bool(missing) or not keys)


def cell(line: Mapping[str, Any]) -> str:
    """A table's cell: what was found, or the error."""
    if "error" in line:
        return f"not run: {line['error']}".replace("|", "\\|")
    found = []
    for unit, value in line["found"].items():
        if isinstance(value, str):
            found.append(f"{unit}: {value}")
        else:
            form = ".1%" if unit in ("MFU", "of limit") else ",.0f" if value >= 100 else ".4g"
            found.append(f"{value:{form}} {unit}")
    return ", ".join(found)
