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
from runtime.programs import LIBRARY, Command, answers, build, refusal, run
from seqlab_export.runner.manifest import BundleError
from seqlab_export.runner.verify import verify_bundle

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

DAMAGED_BUNDLE = 3
"""Value of `seqlab::StatusCode`."""


@pytest.mark.parametrize(
    ("name", "change_array", "said"),
    [
        ("length 16/tokens", lambda tokens: tokens[:0], "has shape (0, 16), which should begin with (10, 16)"),
        ("length 16/tokens", lambda tokens: tokens[:, :3], "has shape (10, 3), which should begin with (10, 16)"),
        ("greedy/tokens", lambda tokens: tokens[:, :0], "has shape (2, 0), which should begin with (any, any)"),
        ("greedy/logits", lambda logits: logits[:1], "has shape (1, 12, 11), which should begin with (2, 12, 11)"),
        ("whole/inputs", lambda tokens: tokens[:0], "has shape (0, 32), which should begin with (any, any)"),
        ("whole/logits", lambda logits: logits[0, 0, 0], "has shape (), which should begin with (10)"),
        ("length 16/torch/state", lambda _: np.array("text"), "is text, and should be numbers"),
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


def test_weights_outside_the_bundle(copy: Copy, tmp_path: Path) -> None:
    """The graph is hashed, but what it names as its weights lies outside."""
    folder = copy("gru")
    shutil.copy(folder / "weights.bin", tmp_path / "weights.bin")
    with_weights_at("../weights.bin")(folder)
    assert "onnxruntime cannot load" in refusal("info", folder)


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
        ("translator", ["translate"], b"uv\n\xc3\xa9u\x80\n", 3),
    ],
)
def test_bytes_that_are_no_text(name: str, arguments: list[str], text: bytes, place: int, bundle: Bundle) -> None:
    """In the command's own process, whose arguments and input are bytes."""
    said = refusal(arguments[0], bundle(name), *arguments[1:], text=text)
    assert f"the text is not UTF-8 at byte {place}; only a byte tokenizer" in said
    command: list[Any] = [Path(sys.executable).with_name("seqlab"), arguments[0], bundle(name), *arguments[1:]]
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


def test_a_library_that_is_too_old_in_the_wheel_on_path(old_library: Path, bundle: Bundle, tmp_path: Path) -> None:
    """No environment is active; the wheel comes before one of the user's or the system's."""
    said = "is too old, accepted is 1.16 or later"
    assert refusal("info", bundle("gru"), "--ort-lib", old_library) == f"onnxruntime 1.14.0 ({old_library}) {said}"
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
    assert found == f"onnxruntime 1.14.0 ({capi / 'libonnxruntime.so.1.14.0'}) {said}"


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


def test_another_onnxruntime_or_tokenizer_than_the_runtime_has(copy: Copy) -> None:
    folder = copy("gru")
    with_tokenizer(**{"class": "OtherTokenizer"})(folder)
    said = 'the runtime has no tokenizer "OtherTokenizer"; it has ByteTokenizer, CharTokenizer,'
    assert said in refusal("generate", folder)
    with_statement(min_onnxruntime="99.0")(folder)
    assert "this bundle needs onnxruntime 99.0, here is " in refusal("info", folder)


@pytest.fixture(name="packages")
def _packages(tmp_path: Path) -> Path:
    """A site-packages with onnxruntime's library and a CUDA provider that needs one library by its name."""
    build("seqlab-run")
    assert LIBRARY is not None
    packages = tmp_path / "site-packages"
    capi = packages / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    for name in (LIBRARY.name, "libonnxruntime_providers_shared.so"):
        shutil.copy(LIBRARY.with_name(name), capi / name)
    compile_library(tmp_path / "libcublas.so.99")
    compile_library(capi / "libonnxruntime_providers_cuda.so", needs=tmp_path / "libcublas.so.99")
    return packages


def compile_library(path: Path, *, needs: Path | None = None) -> None:
    """An empty library that is found, and finds what it needs, by name alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command: Command = ["c++", "-shared", "-x", "c++", "/dev/null", "-o", path, f"-Wl,-soname,{path.name}"]
    command += ["-x", "none", "-Wl,--no-as-needed", needs] if needs else []
    subprocess.run(command, check=True)


@pytest.mark.skipif(
    LIBRARY is None or not LIBRARY.with_name("libonnxruntime_providers_cuda.so").is_file(),
    reason="this onnxruntime has no CUDA provider",
)
@pytest.mark.parametrize("folders", [("cu13", "cu13"), ("cuda_runtime", "cublas")], ids=["CUDA 13", "CUDA 12"])
def test_libraries_of_wheels_are_found(folders: tuple[str, str], packages: Path, bundle: Bundle) -> None:
    """CUDA's, where NVIDIA's wheels put them: the one that the provider needs, once the one that this needs is loaded.
    (The provider itself is empty.)"""
    assert LIBRARY is not None
    library = packages / "onnxruntime" / "capi" / LIBRARY.name
    command: Command = ["info", bundle("gru"), "--provider", "cuda", "--ort-lib", library]
    cudart, cublas = (packages / "nvidia" / folder / "lib" for folder in folders)
    compile_library(cudart / "libcudart.so.99")
    compile_library(cublas / "libcublas.so.99", needs=cudart / "libcudart.so.99")
    (cublas / "libcufft.so.99").write_text("no library")
    said = refusal(*command)
    assert said.startswith('provider "cuda" cannot be loaded (') and "GetProvider" in said
    (cudart / "libcudart.so.99").unlink()
    missing = "libcublas.so.99: cannot open shared object file: No such file or directory"
    assert refusal(*command) == f'provider "cuda" cannot be loaded ({missing}); install it, or use another provider'
