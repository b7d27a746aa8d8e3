"""Refusals of folders that are not a whole bundle: one sentence, exit code 2, and nothing outside them is read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.planted import reseal, with_statement, with_tokenizer, with_weights_at
from runtime.conftest import Both, Bundle, Copy
from runtime.programs import answers, build, refusal, run
from seqlab_export.runner.manifest import BundleError
from seqlab_export.runner.verify import verify_bundle

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

DAMAGED_BUNDLE = 3
"""Value of `seqlab::StatusCode`."""


def failed(folder: Path) -> list[tuple[str, str]]:
    """Kinds and subjects of the checks of `seqlab-run verify` that fail, as at least one does."""
    done = run("verify", folder, "--json")
    assert done.returncode == 1, done
    return [(check["kind"], check["subject"]) for check in json.loads(done.stdout)["checks"] if not check["ok"]]


def test_what_is_no_bundle(tmp_path: Path) -> None:
    assert refusal("info", tmp_path / "none") == f"{tmp_path / 'none'} is not a bundle: it has no manifest.json"
    (tmp_path / "manifest.json").write_text("{")
    assert refusal("info", tmp_path) == f"{tmp_path}/manifest.json: it is not JSON, at byte 2"


@pytest.mark.parametrize("name", ["weights.bin", "golden.npz", "manifest.json"])
def test_a_changed_file(name: str, copy: Copy) -> None:
    """Before the first run, though `verify` alone reads the golden file; tests/export/test_defects.py has others."""
    folder = copy("gru")
    data = (folder / name).read_bytes()
    # The manifest is as well-formed as before, but would start from another state.
    changed = data.replace(b'"initial": 0.0', b'"initial": 0.5') if name == "manifest.json" else b"\x00\x01" + data[2:]
    (folder / name).write_bytes(changed)
    digest = "the one in manifest.sha256" if name == "manifest.json" else "the manifest's"
    for verb in ("info", "generate", "bench"):
        assert refusal(verb, folder) == f"{folder} is not as it was written: {name}: its sha256 is not {digest}"
    assert failed(folder) == [("files", name)]


def test_a_link_out_of_the_bundle(copy: Copy, tmp_path: Path) -> None:
    folder = copy("gru")
    (folder / "manifest.json").rename(tmp_path / "manifest.json")
    (folder / "manifest.json").symlink_to("../manifest.json")
    assert refusal("info", folder).endswith("manifest.json: it is a link out of the bundle")


@pytest.mark.parametrize(
    ("name", "change_array", "said"),
    [
        ("length 16/tokens", lambda tokens: tokens[:0], "has shape (0, 16), which should begin with (10, 16)"),
        ("length 16/tokens", lambda tokens: tokens[:, :3], "has shape (10, 3), which should begin with (10, 16)"),
        ("greedy/tokens", lambda tokens: tokens[:, :0], "has shape (2, 0), which should begin with (any, any)"),
        ("greedy/logits", lambda logits: logits[:1], "has shape (1, 12, 11), which should begin with (2, 12, 11)"),
        ("whole/inputs", lambda tokens: tokens[:0], "has shape (0, 32), which should begin with (any, any)"),
        ("whole/logits", lambda logits: logits[0, 0, 0], "has shape (), which should begin with (10)"),
    ],
)
def test_a_golden_file_of_other_shapes(name: str, change_array: Callable[[Any], Any], said: str, copy: Copy) -> None:
    """Its hash is right, so it was written that way."""
    folder = copy("gru")
    with np.load(folder / "golden.npz") as arrays:
        np.savez(folder / "golden.npz", allow_pickle=False, **(dict(arrays) | {name: change_array(arrays[name])}))
    reseal(folder)
    done = run("verify", folder, "--json")
    assert done.returncode in (1, 2) and f"{name} of the golden file {said}" in (done.stdout + done.stderr).decode()
    try:
        notes = "".join(check.note for check in verify_bundle(folder).checks)
    except BundleError as error:
        notes = str(error)
    assert f"{name} of the golden file {said}" in notes


def test_a_damaged_golden_file_has_the_code_of_a_damaged_bundle(bundle: Bundle, copy: Copy) -> None:
    """It is not what the caller gave."""
    folder = copy("gru")
    (folder / "golden.npz").write_bytes(b"")
    reseal(folder)
    [answer] = answers(bundle("gru"), [{"verify": str(folder)}])
    assert answer["code"] == DAMAGED_BUNDLE and "is not a zip file" in answer["refused"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"version": 8}, "it has version 8, this program reads version 7"),
        ({"min_onnxruntime": "99.0"}, "this bundle needs onnxruntime 99.0, here is "),
        ({"tokenizer": "/etc"}, '"/etc" is not a path inside the bundle'),
        ({"golden": "../golden.npz"}, "it gives no sha256 of ../golden.npz"),
        ({"stop_ids": [11]}, "stop_ids has 11, which is outside the vocabulary"),
        ({"more": 1}, 'the manifest has "more", which nothing here knows'),
    ],
)
def test_another_manifest(fields: dict[str, Any], said: str, copy: Copy) -> None:
    folder = copy("gru")
    with_statement(**fields)(folder)
    assert said in refusal("info", folder)


def test_weights_outside_the_bundle(copy: Copy, tmp_path: Path) -> None:
    """The graph is hashed, but what it names as its weights lies outside."""
    folder = copy("gru")
    shutil.copy(folder / "weights.bin", tmp_path / "weights.bin")
    with_weights_at("../weights.bin")(folder)
    assert "onnxruntime cannot load" in refusal("info", folder)


def test_a_signature_that_is_not_the_graphs(copy: Copy) -> None:
    folder = copy("gru")
    content = json.loads((folder / "manifest.json").read_text())
    [hidden] = [output for output in content["model"]["outputs"] if output["name"] == "new_state_0_h"]
    hidden["dims"][-1] += 1
    with_statement(model=content["model"])(folder)
    assert [kind for kind, _ in failed(folder)] == ["signature"]


def test_values_that_are_not_the_references(copy: Copy) -> None:
    """The weights of one matrix, turned by one place."""
    folder = copy("gru")
    data = (folder / "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(data[4:] + data[:4])
    reseal(folder)
    assert {kind for kind, _ in failed(folder)} == {"weights"}


@pytest.mark.parametrize(
    ("name", "arguments", "text", "said"),
    [
        ("gru", ["generate", "--temperature", "-1"], "", "temperature must be at least 0 and finite, got -1"),
        ("gru", ["generate", "--seed", "-1"], "", "--seed must be from 0 to 2^64 - 1, got -1"),
        ("gru", ["generate", "--what", "1"], "", "--what"),
        ("gru", ["generate", "--provider", "tpu"], "", 'provider must be one of cpu, cuda, got "tpu"'),
        ("gru", ["translate"], "a\n", "is the bundle of a language model, which reads prompts"),
        ("gru", ["classify"], "a\n", "classify reads texts: it needs a bundle with classes"),
        ("translator", ["generate", "--max-new-tokens", "3"], "", "writes what a source says; read one first"),
        ("translator", ["translate", "--beams", "0"], "u\n", "beams must be from 1 to 10000, got 0"),
        ("translator", ["translate", "--n-best", "2"], "u\n", "--n-best must be from 1 to the number of beams, 1"),
        ("translator", ["translate"], "u" * 24 + "\n", "an input has 25 tokens, this bundle reads at most 24"),
        ("classifier", ["bench"], "", "is the bundle of an encoder, which writes nothing"),
    ],
)
def test_what_a_user_got_wrong(name: str, arguments: list[str], text: str, said: str, bundle: Bundle) -> None:
    assert said in refusal(arguments[0], bundle(name), *arguments[1:], text=text)


@pytest.mark.parametrize(
    ("name", "arguments", "text", "place"),
    [
        ("gru", ["generate", "--prompt", os.fsdecode(b"ab\xff")], b"uv\n", 2),
        ("gru", ["generate"], b"\x80", 0),
        ("translator", ["translate"], b"uv\n\xc3\xa9u\x80\n", 3),
    ],
)
def test_bytes_that_are_no_text(name: str, arguments: list[str], text: bytes, place: int, bundle: Bundle) -> None:
    """In the command's own process, whose arguments and input are bytes."""
    said = refusal(arguments[0], bundle(name), *arguments[1:], text=text)
    assert f"the text is not UTF-8 at byte {place}; only a byte tokenizer" in said
    command: list[Any] = [Path(sys.executable).with_name("seqlab"), arguments[0], bundle(name), *arguments[1:]]
    if arguments != ["generate"]:
        done = subprocess.run(command, input=text, capture_output=True)
        assert (done.returncode, done.stderr.decode()) == (2, f"seqlab: {said}\n")


def test_a_library_that_is_none(bundle: Bundle, tmp_path: Path) -> None:
    missing = refusal("info", bundle("gru"), "--ort-lib", tmp_path / "none.so")
    assert missing.startswith("onnxruntime's library is not found (") and "--ort-lib" in missing
    assert "has no OrtGetApiBase" in refusal("info", bundle("gru"), "--ort-lib", "libm.so.6")


OLD_LIBRARY = """
#include <cstdint>
struct Base {
  const void* (*GetApi)(uint32_t);
  const char* (*GetVersionString)();
};
extern "C" const Base* OrtGetApiBase() {
  static const Base base = {[](uint32_t) -> const void* { return nullptr; }, [] { return "1.14.0"; }};
  return &base;
}
"""


@pytest.fixture(scope="module", name="old_library")
def _old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of an onnxruntime that is called before it is refused, or the real one at $SEQLAB_OLD_ORT_LIB."""
    if real := os.environ.get("SEQLAB_OLD_ORT_LIB"):
        return Path(real)
    build("seqlab-run")
    library = tmp_path_factory.mktemp("old") / "libonnxruntime.so.1.14.0"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=OLD_LIBRARY.encode(), check=True)
    return library


@pytest.mark.parametrize("verb", ["info", "verify"])
def test_a_library_that_is_too_old(verb: str, old_library: Path, bundle: Bundle) -> None:
    said = f"onnxruntime 1.14.0 ({old_library}) is too old, accepted is 1.16 or later"
    assert refusal(verb, bundle("gru"), "--ort-lib", old_library) == said


def test_the_wheel_of_the_python_on_path_is_found(old_library: Path, bundle: Bundle, tmp_path: Path) -> None:
    """No environment is active; the wheel comes before one of the user's or the system's."""
    if find_library("onnxruntime"):
        pytest.skip("the loader finds an onnxruntime first")
    capi = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    shutil.copy(old_library, capi / "libonnxruntime.so.1.14.0")
    python = tmp_path / "env" / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path = f"{tmp_path}:{python.parent}:{os.environ['PATH']}"
    found = refusal("info", bundle("gru"), PATH=path, SEQLAB_ORT_LIB="", VIRTUAL_ENV="", HOME="")
    assert found.startswith(f"onnxruntime 1.14.0 ({capi / 'libonnxruntime.so.1.14.0'}) is too old")


def test_a_bundle_without_a_tokenizer_reads_ids(copy: Copy, both: Both) -> None:
    """And writes them."""
    folder = copy("gru")
    files = json.loads((folder / "manifest.json").read_text())["files"]
    shutil.rmtree(folder / "tokenizer")
    left = {name: of for name, of in files.items() if not name.startswith("tokenizer/")}
    with_statement(tokenizer=None, stop_ids=[], files=left)(folder)
    assert len(both.say("generate", folder, "--prompt", " 5  06", "--max-new-tokens=7", "--seed=2").split()) == 7
    for prompt, got in (("5 six", '"six"'), ("", "none"), ("5 -6", '"-6"'), ("1" * 10, f'"{"1" * 10}"')):
        said = f'this model has no tokenizer, and a prompt is ids, such as "5 6 7"; got {got}'
        assert both.refuse("generate", folder, "--prompt", prompt) == said


def test_a_tokenizer_that_the_runtime_does_not_have(copy: Copy) -> None:
    """`generate` is refused; `verify` fails, since it is not the tokenizer of the export."""
    folder = copy("gru")
    with_tokenizer(**{"class": "PretrainedTokenizer"})(folder)
    said = 'the runtime has no tokenizer "PretrainedTokenizer"; it has ByteTokenizer, CharTokenizer,'
    assert said in refusal("generate", folder)
    assert failed(folder)
