"""Control characters of a bundle are shown to people by `seqlab-run` and `seqlab` alike, and steer no terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from cli.test_terminal import HARMLESS, HOSTILE, steers
from export.planted import with_statement
from runtime.conftest import Both, Bundle, Copy
from runtime.programs import ENVIRONMENT, Command, build, run


@pytest.mark.parametrize("name", ["classifier", "tagger"])
def test_labels(name: str, copy: Copy, both: Both) -> None:
    folder = copy(name)
    with_statement(labels=[f"{HOSTILE}{place}" for place in range(3)])(folder)
    said = both.say("classify", folder, text="a cat\n")
    assert HARMLESS in said and not steers(said)
    of_programs = run("classify", folder, "--json", text="a cat\n").stdout.decode()
    assert HOSTILE.partition("\x7f")[2] in of_programs
    facts = run("info", folder).stdout.decode()
    assert not steers(facts) and r"\u202e" in facts


def test_a_word_is_as_it_was_written_but_to_a_terminal(bundle: Bundle, both: Both) -> None:
    arguments: Command = ["classify", bundle("tagger")]
    text = "a\x1b[2J\u202eé\n"
    assert both.say(*arguments, text=text).startswith(text[:-1])
    ours, theirs = pty.openpty()
    command: Command = [build("seqlab-run"), *arguments]
    subprocess.run(command, input=text.encode(), stdout=theirs, env=ENVIRONMENT, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert shown.startswith("a\\x1b[2J\\u202eé\t")


def test_names_of_files_and_messages(copy: Copy, tmp_path: Path) -> None:
    folder = copy("gru").rename(tmp_path / f"{HOSTILE}.bundle")
    (folder / HOSTILE).write_text("nothing of the manifest's")
    for arguments in (
        ["verify", folder],
        ["verify", tmp_path / HOSTILE],
        ["info", f"no{HOSTILE}"],
        ["generate", folder],
    ):
        done = run(*arguments, f"--{HOSTILE}" if arguments[0] == "generate" else "--threads=1")
        said = (done.stdout + done.stderr).decode()
        assert HARMLESS in said and not steers(said), arguments
    bytes_that_are_none = run("info", os.fsdecode(b"no\x9b8m\xe2\x80"))
    assert b"no\\x9b8m\\xe2\\x80" in bytes_that_are_none.stderr
