"""The tests marked `cuda`, on a CUDA device; a run goes on where the last one was cut off.

python benchmarks/gpu_tests.py

A skipped test counts as not run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from peers.results import CUT_OFF, Key, Results, arguments


class Recorder:
    """A plugin of pytest that stores each test's outcome and leaves out those that have passed."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.keys: list[Key] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.keys.append((report.nodeid, "outcome"))
            self._store(report)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
        tests = {(item.nodeid, "outcome"): item for item in items}
        self.keys += tests
        items[:] = [tests[key] for key in self.results.missing(tests)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.results.store((nodeid, "outcome"), **CUT_OFF)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._store(report)
        elif report.when == "call":
            self.results.store((report.nodeid, "outcome"), found={})

    def _store(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        *_, last = ["", *report.longreprtext.strip().splitlines()]
        self.results.store((report.nodeid, "outcome"), error=f"{report.outcome}: {last}")


def main() -> None:
    results = Results.of("tests", arguments(__doc__).parse_args())
    files = [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if "mark.cuda" in path.read_text("utf-8")]
    chosen = ["-m", "cuda", *files] if results.device == "cuda" else ["-m", "not cuda", "tests/nn/test_fla.py"]
    recorder = Recorder(results)
    given = ["-q", "-W", "default", "-p", "no:cacheprovider", "--continue-on-collection-errors", *chosen]
    pytest.main(given, plugins=[recorder])
    results.end(recorder.keys)


if __name__ == "__main__":
    main()
