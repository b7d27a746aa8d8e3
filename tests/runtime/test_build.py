"""The runtime is installed and used by another project; its parts and its whole run clean under sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from runtime.conftest import Bundle
from runtime.programs import ENVIRONMENT, ROOT, RUNTIME, build, refusal, run
from seqlab.decoding import Sampling
from seqlab_export.runner import BundleRunner

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SANITIZERS = "address,undefined"


def succeed(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="installed")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("installed")
    succeed("cmake", "--install", build("seqlab-run").parent, "--prefix", prefix)
    return prefix


@pytest.mark.slow
def test_the_example_is_built_on_the_installed_library(installed: Path, bundle: Bundle, tmp_path: Path) -> None:
    succeed("cmake", "-S", ROOT / "examples/cpp", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    succeed("cmake", "--build", tmp_path)
    lines = succeed(tmp_path / "continue_text", bundle("gru"), "fed").splitlines()
    runner = BundleRunner(bundle("gru"))
    options = [Sampling(temperature=0.8, top_k=40, seed=seed) for seed in range(3)]
    written = [runner.generate_text("fed", max_new_tokens=60, sampling=sampling) for sampling in options]
    ids = np.array([runner.tokenizer.encode("fed")])
    best = int(runner.prefill(ids, ids > 0)[0].argmax())
    assert lines == [f"likeliest: {runner.tokenizer.decode([best])}", *(f"written: {text}" for text in written)]


@pytest.mark.slow
def test_the_installed_program_runs(installed: Path, bundle: Bundle) -> None:
    """And is the one that was built, which needs no library of the build folder."""
    installed_program = installed / "bin" / "seqlab-run"
    assert str(ROOT) not in succeed("ldd", installed_program)
    arguments = ["generate", bundle("gru"), "--prompt", "a", "--seed", "2"]
    assert succeed(installed_program, *arguments).encode() == run(*arguments).stdout


def test_nothing_is_linked_that_must_be_found_at_run_time() -> None:
    needed = succeed("objdump", "-p", build("seqlab-run"))
    assert "onnxruntime" not in needed and "python" not in needed and "libsentencepiece" in needed


def test_a_wrong_release_folder_is_refused(tmp_path: Path) -> None:
    build("seqlab-run")
    command = ["cmake", "-S", RUNTIME, "-B", tmp_path / "build", f"-DORT_ROOT={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"ORT_ROOT={tmp_path} has no include/onnxruntime_cxx_api.h" in re.sub(r"\s+", " ", done.stderr)


def test_the_example_in_the_page_compiles(installed: Path, tmp_path: Path) -> None:
    [program] = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/runtime.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "main.cc").write_text(program)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(page LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
        "find_package(seqlab_runtime REQUIRED)\nadd_executable(page main.cc)\n"
        "target_link_libraries(page PRIVATE seqlab::seqlab_runtime)\n"
    )
    succeed("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    succeed("cmake", "--build", tmp_path / "build")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "translator", "classifier"])
def test_every_command_is_clean_under_sanitizers(name: str, bundle: Bundle) -> None:
    program = build("seqlab-run", SANITIZERS)
    verbs = {
        "attention": [["generate", "--prompt", "abc", "--seed", "1"], ["bench", "--new-tokens", "5"], ["info"]],
        "translator": [["translate", "u", "zyx", "--beams", "3"]],
        "classifier": [["classify", "abc"]],
    }[name]
    for verb, *options in [*verbs, ["verify"]]:
        succeed(program, verb, bundle(name), *options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "translator"])
def test_thousands_of_inputs_of_a_bundle(name: str, bundle: Bundle, tmp_path: Path) -> None:
    """The corpus's prompts alone, so that every case is decoded."""
    for path in (RUNTIME / "fuzz/corpus").iterdir():
        if path.read_bytes()[:1] == b"d":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    fuzz = build("fuzz", SANITIZERS)
    assert succeed(fuzz, tmp_path, "3000", SEQLAB_FUZZ_BUNDLE=str(bundle(name))) == "3000 cases\n"


def test_help_is_told_and_nothing_asked_is_refused() -> None:
    done = run("--help")
    assert done.returncode == 0 and all(verb in done.stdout.decode() for verb in ("generate", "verify", "bench"))
    assert refusal().startswith("A subcommand is required")
