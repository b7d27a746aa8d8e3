"""Standard input is read by one rule (docs/verbs.md), in Python and C++; reading.test.ts of export/web has the page."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from runtime.conftest import Bundle
from runtime.programs import run
from seqlab.cli import main

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

Seqlab = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="seqlab")
def _seqlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Seqlab:
    def seqlab(*arguments: object, text: bytes) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
        code, said = main([*map(str, arguments)]), capsys.readouterr()
        return code, said.out, said.err

    return seqlab


@pytest.mark.parametrize("given", WHOLE)
def test_a_text_is_read_whole(given: bytes, bundle: Bundle, seqlab: Seqlab) -> None:
    """Its last end of a line is a token of the prompt as others are."""
    options = ["generate", str(bundle("gru")), "--max-new-tokens", "12", "--seed", "4"]
    meant = seqlab(*options, "--prompt", WHOLE[given], text=b"")
    assert seqlab(*options, "--prompt", "-", text=given) == meant
    for prompt in ([], ["--prompt", "-"]):
        assert run(*options, *prompt, text=given).stdout.decode() == meant[1]


@pytest.mark.parametrize("given", LINES)
@pytest.mark.parametrize("name", ["classifier", "translator"])
def test_a_text_is_read_by_lines(name: str, given: bytes, bundle: Bundle, seqlab: Seqlab) -> None:
    verb = "classify" if name == "classifier" else "translate"
    meant = run(verb, bundle(name), *LINES[given]).stdout
    assert meant.count(b"\n") == len(LINES[given])
    assert run(verb, bundle(name), text=given).stdout == meant
    assert seqlab(verb, bundle(name), text=given) == (0, meant.decode(), "")


def test_a_mark_is_no_part_of_a_word(bundle: Bundle, seqlab: Seqlab) -> None:
    marked = MARK + b"the cat\r\n"
    assert seqlab("classify", bundle("tagger"), text=marked) == seqlab("classify", bundle("tagger"), text=b"the cat\n")
    assert run("classify", bundle("tagger"), text=marked).stdout.startswith(b"the\t")


@pytest.mark.parametrize("given", [MARK, MARK + b"\n", b"\r\n", b"\n", "\u2003\u00a0\x1c\n".encode()])
def test_an_empty_line_is_refused_alike(given: bytes, bundle: Bundle, seqlab: Seqlab) -> None:
    said = "line 1 of the standard input is empty; give one text a line\n"
    assert seqlab("classify", bundle("classifier"), text=given) == (2, "", f"seqlab: {said}")
    done = run("classify", bundle("classifier"), text=given)
    assert (done.returncode, done.stderr.decode()) == (2, f"seqlab-run: {said}")


@pytest.mark.parametrize(("encoding", "word"), [("ascii", "na\\xefve\\u2014"), ("latin-1", "na\xefve\\u2014")])
def test_what_the_output_cannot_hold_is_written_in_another_way(
    encoding: str, word: str, bundle: Bundle, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    code, _, error = seqlab("classify", bundle("tagger"), text="na\xefve\u2014 cat\n".encode())
    assert (code, error) == (0, "")
    out.seek(0)
    said = out.read().splitlines()
    assert said[0].startswith(f"{word}\t") and said[1].startswith("cat\t")
