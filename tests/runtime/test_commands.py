"""`seqlab-run` prints what `seqlab` prints, as a user types it, and both read standard input by one rule.

reading.test.ts of export/web has the page."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import seqlab
from export.planted import round_weights
from runtime.conftest import SEQ_LEN, Both, Bundle, Copy, Seqlab
from runtime.programs import ENVIRONMENT, LIBRARY, Command, build, run
from seqlab.config import text_options
from seqlab.decoding import beam_search
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.verify import verify_bundle

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

GENERATE = [
    ["--prompt", "abc", "--temperature", "0"],
    ["--prompt", "", "--seed", "18446744073709551615"],
    ["--prompt", "fed a cab", "--temperature=0.7", "--top-k=5", "--top-p=0.9", "--min-p=0.01", "--seed=3"],
    ["--prompt", "a", "--repetition-penalty=1.5", "--no-repeat-ngram=2", "--max-new-tokens=30"],
]
PRECISIONS = [pytest.param(name, marks=pytest.mark.slow) for name in ("fp16", "bf16", "fused")]
TRANSLATE = [[], ["--beams", "4", "--n-best", "3", "--length-penalty", "0.5"], ["--beams", "3", "--prefix", "ab"]]


@pytest.mark.parametrize("options", GENERATE)
def test_generate(options: list[str], bundle: Bundle, both: Both) -> None:
    arguments: Command = ["generate", bundle("attention"), *options]
    assert json.loads(run(*arguments, "--json").stdout)["text"] + "\n" == both.say(*arguments)


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout.decode() == f"{seqlab.__version__}\n"


@pytest.mark.parametrize("verb", ["generate", "translate"])
def test_the_options_are_those_of_the_table(verb: str) -> None:
    """In words and in defaults."""
    said = " ".join(run(verb, "--help").stdout.decode().split()) + " "
    for option in getattr(text_options, verb.upper()):
        # As CLI11 shows them, in one version INT=200, in another INT [200].
        default = "" if option.default in (None, "") else rf"(=| \[){option.default:g}\]?"
        shown = rf"--{option.name.replace('_', '-')} [A-Z]+{default} {re.escape(option.help)} "
        assert re.search(shown, said), (option, said)


@pytest.mark.slow
@pytest.mark.parametrize("options", TRANSLATE)
def test_translate(options: list[str], bundle: Bundle, both: Both) -> None:
    """More lines than are read together."""
    lines = ["u", "zyx wvu", *(f"{'uvwxyz'[n % 6]} {'zyx' * (n % 5)}" for n in range(70))]
    arguments: Command = ["translate", bundle("translator"), *options]
    text = "\n".join(lines) + "\n"
    shown = [json.loads(line) for line in run(*arguments, "--json", text=text).stdout.splitlines()]
    assert [one["line"] for one in shown] == [*range(1, len(lines) + 1)]
    numbered = "--n-best" in options
    texts = [f"{one['line']}\t{best['text']}" if numbered else best["text"] for one in shown for best in one["best"]]
    assert "\n".join(texts) + "\n" == both.say(*arguments, text=text)


@pytest.mark.slow
def test_a_prefix_counts_as_part_of_the_target(bundle: Bundle, both: Both) -> None:
    """A target is at most as long as the model reads, which is as long as those of its training."""
    arguments: Command = ["translate", bundle("translator"), "--prefix"]
    assert len(both.say(*arguments, "a" * (SEQ_LEN - 1), text="u\n")) in (SEQ_LEN, SEQ_LEN + 1)
    said = f"the prefix has {SEQ_LEN} tokens, a target at most {SEQ_LEN}; shorten it"
    assert both.refuse(*arguments, "a" * SEQ_LEN, text="u\n") == said


@pytest.mark.parametrize(
    ("name", "text"), [("classifier", "fed a cab\nabc\nzzz z\n"), ("tagger", "the cat sat\non a\u00a0dog .\n")]
)
def test_classify(name: str, text: str, bundle: Bundle, both: Both) -> None:
    both.say("classify", bundle(name), text=text)
    shown = [json.loads(line) for line in run("classify", bundle(name), "--json", text=text).stdout.splitlines()]
    assert len(shown) == text.count("\n")
    assert all(0 <= one["probability"] <= 1 for some in shown for one in (some if name == "tagger" else [some]))


@pytest.mark.parametrize("name", ["gru", "translator", "tagger", *PRECISIONS])
def test_verify_makes_the_same_checks(name: str, bundle: Bundle) -> None:
    """And finds the same errors, but for the order in which squares are added."""
    done = run("verify", bundle(name), "--threads", "1", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    found, expected = json.loads(done.stdout), verify_bundle(bundle(name)).to_dict()
    for ours, theirs in zip(found["checks"], expected["checks"], strict=True):
        assert {**ours, "error": 0, "largest": 0, "limit": 0} == {**theirs, "error": 0, "largest": 0, "limit": 0}
        for number in ("error", "largest", "limit"):
            assert ours[number] == (theirs[number] and pytest.approx(theirs[number], rel=1e-9, abs=1e-12))
    assert found["divergence"] == pytest.approx(expected["divergence"], rel=1e-6, abs=1e-12)
    assert {**found, "checks": [], "divergence": 0} == {**expected, "checks": [], "divergence": 0}
    shown = run("verify", bundle("gru")).stdout
    assert b"prefill" in shown and b"failed" not in shown


def test_verify_finds_the_same_bytes_of_the_weights(copy: Copy) -> None:
    round_weights(folder := copy("gru"))
    found = json.loads(run("verify", folder, "--json").stdout)["checks"]
    expected = verify_bundle(folder).to_dict()["checks"]
    [note] = [check["note"] for check in found if not check["ok"]]
    assert [note] == [check["note"] for check in expected if not check["ok"]] and "are not the model's" in note


def test_bench_measures(bundle: Bundle) -> None:
    options = ["--prompt-tokens", "5", "--new-tokens", "20", "--runs", "2"]
    # A target begins with bos alone.
    for name, positions in {"gru": [4, 8, 16], "translator": [2, 4, 8, 16]}.items():
        shown = json.loads(run("bench", bundle(name), "--json", *options).stdout)
        ranks = [shown["token_ms"][rank] for rank in ("p50", "p90", "p99")]
        assert 0 < ranks[0] <= ranks[1] <= ranks[2]
        assert [part["from"] for part in shown["token_ms_by_position"]] == positions
        assert len(shown["later_token_ms"]) == 2 * 19
        assert shown["first_token_ms"] > 0 and shown["tokens_per_second"] > 0 and shown["peak_memory_mb"] > 1
    assert b"tokens a second" in run("bench", bundle("gru"), *options).stdout


def test_bench_writes_batches_and_beams(bundle: Bundle) -> None:
    """Several threads score the beams of several prompts."""
    options = ["--prompt-tokens", "5", "--new-tokens", "20", "--runs", "1", "--batch", "3", "--threads", "2"]
    shown = json.loads(run("bench", bundle("translator"), "--json", "--beams", "2", *options).stdout)
    source = np.array(shown["sources"])
    read = BundleRunner(bundle("translator"), threads=2).begin(source, np.ones(source.shape, dtype=np.bool_))
    found = beam_search(read, shown["prompts"], beams=2, max_new_tokens=20)
    assert shown["written"] == [hypotheses[0].tokens for hypotheses in found]
    assert shown["tokens_per_second"] > 0 and "token_ms" not in shown


def test_info_says_what_runs_it(bundle: Bundle) -> None:
    shown = json.loads(run("info", bundle("translator"), "--json").stdout)
    assert shown["kind"] == "encoder-decoder" and shown["max_seq_len"] == SEQ_LEN
    assert shown["onnxruntime"] == onnxruntime.__version__
    assert Path(shown["onnxruntime_file"]) == LIBRARY.resolve()


def test_the_library_is_found_in_this_order(bundle: Bundle, tmp_path: Path) -> None:
    """The option, the variable, the loader's path, the wheel of the environment."""
    assert LIBRARY is not None

    def opened(*options: str, **environment: str) -> str:
        bare = {name: value for name, value in ENVIRONMENT.items() if name not in ("SEQLAB_ORT_LIB", "VIRTUAL_ENV")}
        command: Command = [build("seqlab-run"), "info", bundle("gru"), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, env=bare | environment, check=True)
        return str(json.loads(done.stdout)["onnxruntime_file"])

    copies = [tmp_path / name / "libonnxruntime.so.1" for name in ("option", "variable", "loader")]
    for copy in copies:
        copy.parent.mkdir()
        shutil.copy(LIBRARY, copy)
    option, variable, loader = map(str, copies)
    wheel = {"VIRTUAL_ENV": sys.prefix}
    by_loader = wheel | {"LD_LIBRARY_PATH": str(tmp_path / "loader")}
    by_variable = by_loader | {"SEQLAB_ORT_LIB": variable}
    assert opened("--ort-lib", option, **by_variable) == option
    assert opened(**by_variable) == variable
    assert opened(**by_loader) == loader
    assert opened(**wheel) == str(LIBRARY.resolve())


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
