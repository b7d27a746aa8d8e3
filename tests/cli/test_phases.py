"""Progress of long verbs: each phase is reported, and shown without a terminal once it takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.toys import TOKENIZER, toy
from runtime.conftest import Seqlab, _seqlab
from seqlab.cli import phases
from seqlab.files.phases import counted, listened, report
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle

__all__ = ["_seqlab"]


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_line_is_printed_for_a_phase_after_two_seconds_and_again_after_twenty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "time", clock := Clock())
    shown = []
    with phases.phases_shown("reading"):
        for now, phase in [(1.9, "a"), (2.0, "a"), (3.9, "b"), (4.0, "b"), (23.9, "b"), (24.0, "b")]:
            clock.now = now
            report(phase, 1, 2)
            shown.append(capsys.readouterr().err)
    assert shown == ["", "a 1/2 · 2 s\n", "", "b 1/2 · 4 s\n", "", "b 1/2 · 24 s\n"]
    report("after", 1, 2)
    assert capsys.readouterr().err == ""


def test_parts_are_counted_from_0_to_all() -> None:
    told: list[tuple[str, int, int]] = []
    with listened(lambda *progress: told.append(progress)):
        assert [*counted("letters", (letter for letter in "ab"))] == ["a", "b"]
    assert told == [("letters", 0, 2), ("letters", 1, 2), ("letters", 2, 2)]


def test_an_export_and_a_verification_name_their_phases(
    tmp_path: Path, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = set[str]()
    with listened(lambda phase, done, total: told.add(phase)):
        export_bundle(toy(GRU, NoPositions, 1).eval(), TOKENIZER, tmp_path / "bundle", seq_len=32)
    proof = {"hashes of the files", "loading graphs", "proof: step", "proof: long texts", "proof: lengths in one call"}
    assert {"capturing graphs", "reference of the decoder", "reference of long texts", *proof} <= told
    monkeypatch.setattr(phases, "SECONDS", 0)
    code, _, said = seqlab("verify", tmp_path / "bundle")
    assert code == 0 and all(phase in said for phase in proof)
