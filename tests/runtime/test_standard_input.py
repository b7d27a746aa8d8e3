"""Standard input is read by one rule (docs/verbs.md), in Python and C++; reading.test.ts of export/web has the page."""

from __future__ import annotations

import io
import sys

import pytest

from runtime.conftest import Both, Bundle, Seqlab
from runtime.programs import run

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

MARK = b"\xef\xbb\xbf"
WHOLE = {
    b"": "",
    MARK: "",
    MARK + b"fed": "fed",
    MARK + MARK + b"fed": "\ufefffed",
    b"fed" + MARK + b"a": "fed\ufeffa",
    b"fed\n": "fed\n",
    b"fed\n\n": "fed\n\n",
    b"fed\r\na\r\n": "fed\na\n",
    b"fed\r\r\n\ra\r": "fed\r\n\ra\r",
    "fed\u2028a\x85\u00e9\n".encode(): "fed\u2028a\x85\u00e9\n",
}
LINES = {
    MARK + b"fed\na": ["fed", "a"],
    b"fed\r\na\r\n": ["fed", "a"],
    b"fed\ra\r\nb\r": ["fed\ra", "b\r"],
    b"fed\r\r\na\n": ["fed\r", "a"],
    "fed\u2028a\x85b\x0cc\n".encode(): ["fed\u2028a\x85b\x0cc"],
}


@pytest.mark.parametrize("given", WHOLE)
def test_a_text_is_read_whole(given: bytes, bundle: Bundle, both: Both) -> None:
    """Its last end of a line is a token of the prompt as others are."""
    options = ["generate", str(bundle("gru")), "--max-new-tokens", "12", "--seed", "4"]
    meant = both.say(*options, "--prompt", WHOLE[given])
    assert both.say(*options, "--prompt", "-", text=given) == meant == run(*options, text=given).stdout.decode()


@pytest.mark.parametrize("given", LINES)
@pytest.mark.parametrize(("verb", "name"), [("classify", "classifier"), ("translate", "translator")])
def test_a_text_is_read_by_lines(verb: str, name: str, given: bytes, bundle: Bundle, both: Both) -> None:
    """Arguments are texts, too."""
    meant = run(verb, bundle(name), *LINES[given]).stdout.decode()
    assert meant.count("\n") == len(LINES[given])
    assert both.say(verb, bundle(name), text=given) == meant


def test_a_mark_is_no_part_of_a_word(bundle: Bundle, both: Both) -> None:
    plain, marked = (both.say("classify", bundle("tagger"), text=mark + b"the cat\r\n") for mark in (b"", MARK))
    assert plain == marked and marked.startswith("the\t")


@pytest.mark.parametrize("given", [MARK, MARK + b"\n", b"\r\n", b"\n", "\u2003\u00a0\x1c\n".encode()])
def test_an_empty_line_is_refused_alike(given: bytes, bundle: Bundle, both: Both) -> None:
    said = "line 1 of the standard input is empty; give one text a line"
    assert both.refuse("classify", bundle("classifier"), text=given) == said


@pytest.mark.parametrize(("encoding", "word"), [("ascii", "na\\xefve\\u2014"), ("latin-1", "na\xefve\\u2014")])
def test_what_the_output_cannot_hold_is_written_in_another_way(
    encoding: str, word: str, bundle: Bundle, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    code, _, error = seqlab("classify", bundle("tagger"), text="na\xefve\u2014 cat\n")
    assert (code, error) == (0, "")
    out.seek(0)
    said = out.read().splitlines()
    assert said[0].startswith(f"{word}\t") and said[1].startswith("cat\t")
