"""Control characters of names and labels are shown to people, and steer no terminal."""

from __future__ import annotations

import argparse
import io
import logging
import sys
import unicodedata

import pytest
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

from seqlab import cli
from seqlab.cli import main
from seqlab.cli.terminal import for_programs, shown, shown_for_people
from seqlab.cli.verb import verb

HOSTILE = "a\x1b[2J\rb\x07\x7f\x9b8m\u202ec\u2066"
HARMLESS = r"a\x1b[2J\x0db\x07\x7f\x9b8m\u202ec\u2066"
"""The same, shown."""


def steers(text: str) -> set[str]:
    """The characters of a text that steer a terminal."""
    overrides = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return {one for one in text if (unicodedata.category(one) == "Cc" or one in overrides) and one not in "\n\t"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_control_character_is_shown_and_nothing_else() -> None:
    every = "".join(map(chr, range(0x3000)))
    assert not steers(shown(every)) and steers(HOSTILE)
    plain = "".join(one for one in every if not steers(one))
    assert shown(plain) == plain
    assert shown(HOSTILE) == shown(shown(HOSTILE)) == HARMLESS


@verb("say a hostile name in every way that a verb has")
def tell(options: argparse.Namespace) -> int:
    print(HOSTILE)
    print("an error:", HOSTILE, file=sys.stderr)
    sys.stdout.writelines(iter([HOSTILE, "\n"]))
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE, "bold red"))
    for console in (Console(width=120), Console(stderr=True, width=120)):
        console.print(table)
        console.print(HOSTILE, style="bold")
    logging.StreamHandler().emit(logging.makeLogRecord({"msg": f"of a server: {HOSTILE}"}))
    raise ValueError(f"{HOSTILE} is no name\nof anything")


def test_a_new_verb_cannot_forget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "VERBS", (tell,))
    assert main(["tell"]) == 2
    said = capsys.readouterr()
    assert not steers(said.out + said.err)
    assert f"an error: {HARMLESS}\n" in said.err and f"of a server: {HARMLESS}\n" in said.err
    one_line = HARMLESS.replace(r"\x0d", " ")
    assert said.err.endswith(f"\nseqlab: {one_line} is no name of anything\n")
    framed = [line for line in said.out.splitlines() if "│" in line or "┃" in line]
    assert len(framed) == 3 and len({len(line) for line in framed}) == 1 and all(HARMLESS in line for line in framed)


def test_our_own_colours_and_bars_steer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown_for_people():
        with shown_for_people():  # as where a command forks another
            Console(force_terminal=True, color_system="standard").print(Text(HOSTILE, "bold red"))
        for _ in tqdm(range(2), ascii=True):
            pass
        with Live("a bar", console=Console(force_terminal=True, width=100), refresh_per_second=1):
            print("beside a bar:", HOSTILE)
    assert f"beside a bar: {HARMLESS}" in terminal.getvalue() and "\x1b[2J" not in terminal.getvalue()
    assert f"\x1b[1;31m{HARMLESS}\x1b[0m\n" in terminal.getvalue()
    assert "\r100%|##" in terminal.getvalue()


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_character_that_the_terminal_lacks(errors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LC_ALL=C, Python's errors are "surrogateescape"."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written := io.BytesIO(), "ascii", errors))
    with shown_for_people():
        print("caf\u00e9 \ufffd", file=for_programs(), flush=True)
    assert written.getvalue() == b"caf\\xe9 \\ufffd\n"


def test_what_a_model_wrote_goes_to_a_program_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, written in ((io.StringIO(), HOSTILE), (Terminal(), HARMLESS)):
        monkeypatch.setattr(sys, "stdout", stream)
        with shown_for_people():
            print(HOSTILE, end="", file=for_programs())
        assert stream.getvalue() == written


def test_outside_of_the_command_rich_is_as_it_was() -> None:
    before = Text("a\x07\x1bb").plain
    with shown_for_people():
        assert Text("a\x07\x1bb").plain == r"a\x07\x1bb"
    assert Text("a\x07\x1bb").plain == before
