"""Control characters of a bundle are shown to people by `seqlab-run` and `seqlab` alike, and steer no terminal."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.test_terminal import HARMLESS, HOSTILE, steers
from export.planted import reseal
from runtime.conftest import Bundle
from runtime.programs import ENVIRONMENT, Command, build, run
from runtime.test_commands import of_python


def labelled(bundle: Path, folder: Path) -> Path:
    """A bundle of which each label is hostile."""
    copy = shutil.copytree(bundle, folder / "labelled")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["labels"] = [f"{HOSTILE}{place}" for place in range(len(manifest["labels"]))]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    reseal(copy)
    return copy


@pytest.mark.parametrize("name", ["classifier", "tagger"])
def test_labels(
    name: str, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["classify", str(labelled(bundle(name), tmp_path))]
    done = run(*arguments, text="a cat\n")
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode()
    assert HARMLESS in said and not steers(said)
    assert said == of_python(arguments, "a cat\n", monkeypatch, capsys)
    of_programs = run(*arguments, "--json", text="a cat\n").stdout.decode()
    assert HOSTILE.partition("\x7f")[2] in of_programs
    facts = run("info", arguments[1]).stdout.decode()
    assert not steers(facts) and r"\u202e" in facts


def test_a_word_is_as_it_was_written_but_to_a_terminal(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, word = ["classify", str(bundle("tagger"))], "a\x1b[2J\u202eé\x85b"
    text = f"{word[:-2]}\n"
    done = run(*arguments, text=text)
    assert done.stdout.decode().startswith(text[:-1]) and done.stdout.decode() == of_python(
        arguments, text, monkeypatch, capsys
    )
    ours, theirs = pty.openpty()
    command: Command = [build("seqlab-run"), *arguments]
    subprocess.run(command, input=text.encode(), stdout=theirs, env=ENVIRONMENT, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert shown.startswith("a\\x1b[2J\\u202eé\t")


def test_names_of_files_and_messages(bundle: Bundle, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle("gru"), tmp_path / f"{HOSTILE}.bundle")
    (copy / HOSTILE).write_text("nothing of the manifest's")
    for arguments in (["verify", copy], ["verify", tmp_path / HOSTILE], ["info", f"no{HOSTILE}"], ["generate", copy]):
        done = run(*arguments, f"--{HOSTILE}" if arguments[0] == "generate" else "--threads=1")
        said = (done.stdout + done.stderr).decode()
        assert HARMLESS in said and not steers(said), arguments
    bytes_that_are_none = run("info", os.fsdecode(b"no\x9b8m\xe2\x80"))
    assert b"no\\x9b8m\\xe2\\x80" in bytes_that_are_none.stderr
