"""The runtime is installed and used by another project; its parts and its whole run clean under sanitizers."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from contextlib import redirect_stdout
from ctypes import byref, c_void_p
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqlab
from repository.source_tree import python_blocks
from runtime.conftest import Bundle
from runtime.programs import ENVIRONMENT, LIBRARY, ROOT, RUNTIME, Command, build, refusal, run
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.graph_runner import BundleRunner

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SANITIZERS = "address,undefined"
CANCELLED = 5
"""Value of `seqlab::StatusCode`."""


def succeed(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="installed")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, unpacked in another place."""
    folder, unpacked = build("seqlab-run").parent, tmp_path_factory.mktemp("installed")
    packed = tmp_path_factory.mktemp("packed")
    succeed("cpack", "--config", folder / "CPackConfig.cmake", "-B", packed)
    [archive] = packed.glob("*.tar.gz")
    assert archive.name.startswith(f"seqlab_runtime-{seqlab.__version__}-")
    succeed("tar", "-xzf", archive, "-C", unpacked, "--strip-components=1")
    shutil.rmtree(packed)
    return unpacked


def compile_on(installed: Path, source: Path, to: Path) -> None:
    """Configures and builds a project that finds the installed library."""
    succeed("cmake", "-S", source, "-B", to, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    succeed("cmake", "--build", to)


PROJECT = "cmake_minimum_required(VERSION 3.20)\nproject(some LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 17)\n"


@pytest.mark.slow
def test_the_examples_are_built_on_the_installed_library(installed: Path, bundle: Bundle, tmp_path: Path) -> None:
    """The worker's answers are tested in test_decoding.py. The program is the one that was built, and needs no library
    of the build folder."""
    assert str(ROOT) not in succeed("ldd", installed / "bin/seqlab-run")
    arguments: Command = ["generate", bundle("gru"), "--prompt", "a", "--seed", "2"]
    assert succeed(installed / "bin/seqlab-run", *arguments).encode() == run(*arguments).stdout
    compile_on(installed, ROOT / "examples/cpp", tmp_path)
    lines = succeed(tmp_path / "continue_text", bundle("gru"), "fed").splitlines()
    runner, model = BundleRunner(bundle("gru")), open_text_model(bundle("gru"))
    written = [model.write("fed", max_new_tokens=60, temperature=0.8, top_k=40, seed=seed) for seed in range(3)]
    ids = np.array(model.encode(["fed"]))
    best = int(runner.prefill(ids, ids > 0)[0].argmax())
    assert lines == [f"likeliest: {model.codec.decode([[best]])[0]}", *(f"written: {text}" for text in written)]
    command: Command = [tmp_path / "worker", bundle("gru"), "2"]
    done = subprocess.run(command, input=b"fed\n", capture_output=True, env=ENVIRONMENT)
    assert done.stdout.startswith(b"1\t"), done.stderr


def test_nothing_is_linked_that_must_be_found_at_run_time() -> None:
    needed = succeed("objdump", "-p", build("seqlab-run"))
    assert "onnxruntime" not in needed and "python" not in needed and "libsentencepiece" in needed


@pytest.mark.parametrize(
    ("library", "headers"),
    [("runtime", ["runtime", "engine", "seqlab"]), ("proof", ["runtime", "engine", "seqlab", "proof"])],
)
def test_a_shared_library_gives_what_its_headers_say_and_nothing_else(library: str, headers: list[str]) -> None:
    """`answer_decoding`, which the tests of decoding ask, is linked to one."""
    text = "".join(map(header, headers))
    declared = re.findall(r"^ *SEQLAB_EXPORT [^;]*?([\w~]+|operator=)\(", text, re.MULTILINE)
    found = succeed("nm", "-D", "--defined-only", "-C", build(f"shared_{library}")).splitlines()
    names = [re.sub(r"\[abi:\w+\]", "", line.split(" ", 2)[2]).split("(")[0] for line in found]
    assert {name.rpartition("::")[2] for name in names} == {*declared}
    assert all(
        re.match(r"seqlab(_|::((Model|Session|Engine|TextPieces|Report)::)?)[\w~=]+( =)?$", name) for name in names
    ), names


def test_a_deployment_links_only_what_runs_a_model() -> None:
    """The proof, and what only it reads files with, are in its own library."""
    runtime, proof = (succeed("nm", "-C", build(f"shared_{name}")) for name in ("runtime", "proof"))
    for name in ("seqlab::Verify", "seqlab::GoldenFile::", "unzOpen64", "inflate"):
        assert f" {name}" in proof and f" {name}" not in runtime


def compiler(program: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Compiles a program that includes the public headers alone; warnings are errors."""
    build("seqlab-run")
    command: Command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME / 'include'}", *options]
    return subprocess.run([*command, "-x", "c++", "-"], input=program, capture_output=True, text=True)


def header(name: str) -> str:
    return (RUNTIME / f"include/seqlab/{name}.h").read_text(encoding="utf-8")


def test_each_header_opens_with_its_program_of_the_page() -> None:
    """The page's programs run below."""
    page = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    for name, program in zip(("runtime", "proof"), re.findall(r"```cpp\n(.*?)```", page, re.DOTALL), strict=True):
        [example] = re.findall(r"@code\{\.cpp\}\n(.*?)/// @endcode", header(name), re.DOTALL)
        assert re.sub("^/// ?", "", example, flags=re.MULTILINE) == program
        done = compiler(program, "-fsyntax-only")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["session.Step({1})", "session.ReadSource({{1}})"])
def test_a_failure_that_nobody_reads_is_a_warning(call: str) -> None:
    """A Result and a Status."""
    function = "#include <seqlab/runtime.h>\nvoid Run(seqlab::Session& session) {{ {}; }}\n"
    assert "nodiscard" in compiler(function.format(call), "-fsyntax-only").stderr
    assert compiler(function.format(f"(void){call}"), "-fsyntax-only").returncode == 0


def test_the_headers_have_the_version_of_the_package() -> None:
    numbers = re.findall(r"^#define SEQLAB_VERSION_(\w+) (\d+) ", header("runtime"), re.MULTILINE)
    assert [name for name, _ in numbers] == ["MAJOR", "MINOR", "PATCH"]
    assert ".".join(number for _, number in numbers) == seqlab.__version__


def test_a_program_in_c_writes_what_the_program_writes(bundle: Bundle, tmp_path: Path) -> None:
    """The page's program, of the header's comment, on a shared library."""
    [program] = re.findall(r"```c\n(.*?)```", (ROOT / "docs/runtime.md").read_text(encoding="utf-8"), re.DOTALL)
    [example] = re.findall(r"@code\{\.c\}\n(.*?)/// @endcode", header("seqlab"), re.DOTALL)
    assert re.sub("^/// ?", "", example, flags=re.MULTILINE) == program
    library = build("shared_runtime")
    (tmp_path / "program.c").write_text(
        program.replace("bundles/mine", str(bundle("gru"))).replace('"The ", 4', '"fed", 3')
    )
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{RUNTIME / 'include'}"]
    succeed("cc", *strict, tmp_path / "program.c", library, f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "program")
    arguments: Command = ["generate", bundle("gru"), "--prompt", "fed", "--temperature", "0.8"]
    assert succeed(tmp_path / "program").encode() + b"\n" == run(*arguments).stdout


def test_the_c_interface_takes_every_option_and_reports_failures(bundle: Bundle) -> None:
    """From Python, as docs/runtime.md shows."""
    [shown] = python_blocks("docs/runtime.md")
    paths = {"libseqlab_runtime.so": str(build("shared_runtime")), "bundles/mine": str(bundle("gru"))}
    for name, path in paths.items():
        shown = shown.replace(name, path)
    shown = shown.replace("None, 0, c.byref(model)", f'b"{LIBRARY}", 0, c.byref(model)')
    names: dict[str, Any] = {}
    with redirect_stdout(written := StringIO()):
        exec(shown.replace('b"The "', 'b"fed"'), names)
    plain = open_text_model(bundle("gru"))
    assert written.getvalue() == plain.write("fed", max_new_tokens=20)
    runtime, options = names["runtime"], names["options"]
    given: dict[str, Any] = {"temperature": 1.5, "top_k": 3, "top_p": 0.9, "min_p": 0.01, "seed": 2**40 + 3}
    given |= {"max_new_tokens": 30, "repetition_penalty": 1.2, "no_repeat_ngram": 3}
    for name, value in given.items():
        setattr(options, name, value)
    with redirect_stdout(written := StringIO()):
        assert runtime.seqlab_write(names["model"], b"fed", 3, byref(options), names["show"], None) == 0
    assert written.getvalue() == plain.write("fed", **given)
    assert runtime.seqlab_error() == b""
    options.top_p = 2.0
    assert runtime.seqlab_write(names["model"], b"fed", 3, byref(options), names["show"], None) == 1
    assert b"top_p" in runtime.seqlab_error()
    assert runtime.seqlab_write(None, b"fed", 3, None, names["show"], None) == 1
    assert runtime.seqlab_open(b"nothing", None, 0, byref(c_void_p())) == 2
    assert runtime.seqlab_open(None, None, 0, None) == 1
    stops = type(names["show"])(lambda *_: 0)
    assert runtime.seqlab_write(names["model"], b"fed", 3, None, stops, None) == CANCELLED
    runtime.seqlab_close(names["model"])
    runtime.seqlab_close(None)


WITHOUT_A_VALUE = """
#include <seqlab/runtime.h>
int main() {
  const seqlab::Result<int> result = seqlab::Status(seqlab::StatusCode::kNotFound, "there is no bundle");
  return result.ok() ? 0 : *result;
}
"""


def test_the_value_of_an_error_ends_the_process_with_its_message(tmp_path: Path) -> None:
    """Without exceptions too."""
    program = tmp_path / "program"
    built = compiler(WITHOUT_A_VALUE, "-fno-exceptions", "-DNDEBUG", "-o", program)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "seqlab: a Result without a value was read: there is no bundle\n"


@pytest.mark.slow
def test_it_is_built_shared(tmp_path: Path, bundle: Bundle) -> None:
    build("seqlab-run")
    succeed("cmake", "-S", RUNTIME, "-B", tmp_path / "build", "-G", "Ninja", "-DBUILD_SHARED_LIBS=ON")
    succeed("cmake", "--build", tmp_path / "build")
    succeed("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "installed")
    compile_on(tmp_path / "installed", ROOT / "examples/cpp", tmp_path / "example")
    minor = seqlab.__version__.rpartition(".")[0]
    assert f"libseqlab_runtime.so.{minor}" in succeed("objdump", "-p", tmp_path / "example" / "continue_text")
    assert succeed(tmp_path / "example" / "continue_text", bundle("gru"), "fed").startswith("likeliest: ")


def test_the_headers_are_documented_whole(tmp_path: Path) -> None:
    """Doxygen has nothing to warn of."""
    if shutil.which("doxygen") is None:
        pytest.skip("Doxygen is not installed")
    settings = f"@INCLUDE = {RUNTIME / 'Doxyfile'}\nOUTPUT_DIRECTORY = {tmp_path}\n"
    done = subprocess.run(["doxygen", "-"], input=settings, cwd=RUNTIME, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "html" / "classseqlab_1_1Session.html").is_file()


def test_what_a_build_needs_is_named() -> None:
    page = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    script = (ROOT / "scripts/fetch_cpp_dependencies.sh").read_text(encoding="utf-8")
    [packages] = re.findall(r"packages=\((.*?)\)", script, re.DOTALL)
    assert [name for name in packages.split() if f" {name}" not in page] == []


def test_a_wrong_release_folder_is_refused(tmp_path: Path) -> None:
    build("seqlab-run")
    command: Command = ["cmake", "-S", RUNTIME, "-B", tmp_path / "build", f"-DORT_ROOT={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"ORT_ROOT={tmp_path} has no include/onnxruntime_cxx_api.h" in re.sub(r"\s+", " ", done.stderr)


@pytest.mark.slow
def test_the_programs_in_the_page_run(installed: Path, bundle: Bundle, tmp_path: Path) -> None:
    """The first on the library that runs bundles, the second on the one that proves them."""
    page = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    programs, [lines] = (re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("cpp", "cmake"))
    assert lines.count("target_link_libraries") == len(programs)
    targets = re.findall(r"target_link_libraries\((\w+)", lines)
    for target, program in zip(targets, programs, strict=True):
        (tmp_path / f"{target}.cc").write_text(program)
    made = "".join(f"add_executable({target} {target}.cc)\n" for target in targets)
    made += f"find_package(seqlab_runtime {seqlab.__version__} REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT + made + lines)
    compile_on(installed, tmp_path, tmp_path / "build")
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "mine").symlink_to(bundle("gru"))
    written, proven = (succeed(tmp_path / "build" / target, folder=tmp_path) for target in targets)
    assert written and not proven


@pytest.mark.slow
def test_every_command_is_clean_under_sanitizers(bundle: Bundle) -> None:
    for name, verbs in {
        "attention": [["generate", "--prompt", "abc", "--seed", "1"], ["bench", "--new-tokens", "5"], ["info"]],
        "translator": [["translate", "u", "zyx", "--beams", "3"]],
        "classifier": [["classify", "abc"]],
    }.items():
        for verb, *options in [*verbs, ["verify"]]:
            succeed(build("seqlab-run", SANITIZERS), verb, bundle(name), *options)


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
