"""Mutation testing: random one-line changes of the product, each against the tests that reach the line.

Coverage of the fast tests shows which of them reach a line of Python; C++ and TypeScript have their folder's tests.
A mutant is killed if a test fails or never ends, or if the build fails. Each mutant is printed, then the survivors.
The tree itself is never changed: mutants live in copies below build/mutants.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parent.parent
COPIES = ROOT / "build" / "mutants"
SOURCES = ("platform", "datamodules", "export", "studies")
TESTS_EACH = 80
SECONDS_EACH = 600

SKIPPED = {
    ".py": r'"""[\s\S]*?"""|#.*',
    ".cc": r'//.*|/\*[\s\S]*?\*/|^#.*|R"\([\s\S]*?\)"|^template.*|^using.*',
    ".ts": r"//.*|/\*[\s\S]*?\*/|`[\s\S]*?`|^(import|export [*{]).*|<[\w\s,.\[\]|]+>",
}
SKIPPED[".h"] = SKIPPED[".cc"]
STRINGS = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
CHANGES = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "===": "!==", "!==": "===",
    "+": "-", "-": "+", "*": "+", "//": "*", "and": "or", "or": "and", "&&": "||", "||": "&&",
    "True": "False", "False": "True", "true": "false", "false": "true", "not ": "",
}  # fmt: skip
PLACES = re.compile(
    r"(?<= )(<=?|>=?|[!=]==?|[-+*]|//|and|or|&&|\|\|)(?= )|\b(True|False|true|false|not |\d+\.\d+|\d+)\b"
)
BRANCH = re.compile(r"^ *(?:\} else )?(?:el)?if \(?(?!TYPE_CHECKING|__name__|.*:=)", re.MULTILINE)


class Mutant(NamedTuple):
    path: str
    line: int
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        source = (ROOT / self.path).read_text()
        first, last = source.rfind("\n", 0, self.start) + 1, source.find("\n", self.end)
        before, after = source[first:last], source[first : self.start] + self.text + source[self.end : last]
        return f"{self.path}:{self.line}: `{before.strip()}` -> `{after.strip()}`"


def mutants(path: str) -> list[Mutant]:
    """All one-line changes of a file."""
    source, suffix = (ROOT / path).read_text(), Path(path).suffix
    # Everything but code becomes blanks, so that positions stay the same.
    skipped = re.compile(f"{SKIPPED[suffix]}|{STRINGS}", re.MULTILINE)
    code = skipped.sub(lambda found: re.sub(r"\S", " ", found[0]), source)
    false = "False and " if suffix == ".py" else "false && "
    found = [(match.start(), match.end(), changed(match[0])) for match in PLACES.finditer(code)]
    found += [(match.end(), match.end(), false) for match in BRANCH.finditer(code)]
    return [Mutant(path, source.count("\n", 0, start) + 1, start, end, text) for start, end, text in found]


def changed(token: str) -> str:
    if token in CHANGES:
        return CHANGES[token]
    return str(float(token) * 1.1 or 0.1) if "." in token else str(int(token) + 1)


@cache
def coverage() -> CoverageData:
    """Lines that each fast test reaches, measured once and kept in build/coverage."""
    kept = ROOT / "build" / "coverage"
    if not kept.exists():
        sources = [f"--cov={folder}" for folder in SOURCES]
        command = ["pytest", "-q", "-n", "2", "-m", "not slow", *sources, "--cov-context=test", "--cov-report="]
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=os.environ | {"COVERAGE_FILE": f"{kept}.new"})
        os.replace(f"{kept}.new", kept)
    data = CoverageData(str(kept))
    data.read()
    return data


def tests_of(mutant: Mutant) -> list[str]:
    """At most TESTS_EACH tests that reach a line, from as many test functions as possible.

    A line that runs at import has the tests of its whole file.
    """
    if mutant.path.startswith("export/runtime/"):
        return ["tests/runtime"]
    if mutant.path.startswith("export/web/"):
        return ["tests/web", "tests/runtime/test_decoding.py"]
    contexts = coverage().contexts_by_lineno(str(ROOT / mutant.path))
    at = next((line for line in range(mutant.line, mutant.line - 10, -1) if line in contexts), 0)
    reached = {context.split("|")[0] for context in contexts.get(at, [])} - {""}
    reached = reached or {context.split("|")[0] for each in contexts.values() for context in each} - {""}
    functions: dict[str, list[str]] = {}
    for test in sorted(reached):
        functions.setdefault(test.split("[")[0], []).append(test)
    # All importers of a constant's file reach it, but the tests of limits check it.
    turns = sorted(
        (not test.startswith("tests/limits/"), turn, test)
        for tests in functions.values()
        for turn, test in enumerate(tests)
    )
    return [test for *_, test in turns[:TESTS_EACH]]


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """True if a build or a test fails in a copy with the change and succeeds without it."""
    tests, file = tests_of(mutant), copy / mutant.path
    source = file.read_text()
    changed_source = source[: mutant.start] + mutant.text + source[mutant.end :]
    builds = ["cpp"] if "/runtime/" in mutant.path else ["web"] if "/web/" in mutant.path else []
    try:
        file.write_text(changed_source)
        if any(not passes(["make", build], copy) for build in builds):
            return True
        broken: list[str] = []  # tests that fail in any copy
        while tests and (failed := first_failure(tests, copy, broken)) is not None:
            file.write_text(source)
            if first_failure([failed], copy) is None:
                return True
            file.write_text(changed_source)
            broken.append(failed)
        return builds == ["cpp"] and not passes(["make", "cpp-test"], copy)
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(source)


def first_failure(tests: list[str], copy: Path, without: Sequence[str] = ()) -> str | None:
    """The first test that fails in a copy, or the first test if pytest cannot begin; None if none fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    done = ran([*command, *(f"--deselect={test}" for test in without)], copy)
    if done.returncode in (0, 5):  # 5: no test is left
        return None
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    return named[1] if named else tests[0]


def passes(command: list[str], copy: Path) -> bool:
    return ran(command, copy).returncode == 0


def ran(command: list[str], copy: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a copy, whose packages take precedence over the tree's."""
    paths = os.pathsep.join(str(copy / folder) for folder in SOURCES)
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS_EACH)


def copied(place: Path) -> Path:
    """A copy of the tree's tracked files as they are on disk."""
    shutil.rmtree(place, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="mutants to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=2, help="mutants tried at a time (default: %(default)s)")
    arguments = parser.parse_args()

    listed = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [path for path in listed.split() if Path(path).suffix in SKIPPED and not re.search("/(tests|fuzz)/", path)]
    drawn = random.Random(arguments.seed).sample([each for path in files for each in mutants(path)], arguments.count)
    coverage()
    free: Queue[Path] = Queue()
    for number in range(arguments.copies):
        free.put(copied(COPIES / str(number)))

    def tried(mutant: Mutant) -> bool:
        copy = free.get()
        try:
            killed = is_killed(mutant, copy)
        finally:
            free.put(copy)
        print("killed  " if killed else "SURVIVED", mutant, flush=True)
        return killed

    with ThreadPoolExecutor(arguments.copies) as pool:
        killed = list(pool.map(tried, drawn))
    print(f"\n{sum(killed)} of {len(killed)} killed; the others:")
    print("\n".join(f"- {mutant}" for mutant, gone in zip(drawn, killed, strict=True) if not gone))


if __name__ == "__main__":
    main()
