"""Python and C++ give the same verdict on bundles that were changed by chance, with hashes made right again."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.planted import asking, edit_graph, tell_files_of_tokenizer
from runtime.conftest import Bundle, Copy
from runtime.programs import ENVIRONMENT, Command, build, refusal
from seqlab import cli
from seqlab_export.runner.manifest import hash_files

Mutation = Callable[[Path, random.Random], None]

VALUES: list[Any] = [
    None, True, 0, 1, -1, 2, 7, 2**40, 2**41, 2**62, 2**64, 10**30, 0.5, 6.0, float("nan"), float("inf"), "", "B",
    "T", "S+T", "x", ".", "/etc/passwd", "../x", "a\0b", "\ud800", "fp16", "bool", [], ["B"], [[]], {}, {"x": 1},
]  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, item in inner for leaf in leaves(item, (*path, key)))]


def changed(content: Any, draw: random.Random) -> Any:
    """With a value replaced, taken away or doubled."""
    *parents, last = draw.choice(leaves(content)[1:])
    place = content
    for key in parents:
        place = place[key]
    kind = draw.randrange(4)
    if kind == 0:
        del place[last]
    elif kind == 1 and isinstance(place, list):
        place.append(place[last])
    else:
        place[last] = draw.choice(VALUES)
    return content


def a_field_of_the_manifest(folder: Path, draw: random.Random) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), draw)))


def the_text_of_the_manifest(folder: Path, draw: random.Random) -> None:
    path = folder / "manifest.json"
    data, place = path.read_bytes(), draw.randrange(path.stat().st_size)
    texts = [
        b"\xef\xbb\xbf" + data,
        data[:place],
        data + draw.choice([b" ", b"x", b"\0", b"{}"]),
        b"[" * 100_000,
        data[:place] + draw.randbytes(1) + data[place + 1 :],
    ]
    path.write_bytes(draw.choice(texts))


def the_tokenizer(folder: Path, draw: random.Random) -> None:
    path = folder / "tokenizer" / "tokenizer.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), draw)))
    tell_files_of_tokenizer(folder)


def the_golden_file(folder: Path, draw: random.Random) -> None:
    path = folder / "golden.npz"
    if draw.random() < 0.5:
        any_file(path, draw)
        return
    with np.load(path) as file:
        arrays = dict(file)
    name = draw.choice(sorted(arrays))
    array, is_number = arrays[name], arrays[name].dtype.kind in "fiu"
    others = [np.array("text"), array.astype(np.complex128) if is_number else array, array[:-1] if array.ndim else None]
    found = draw.choice([None, array * 2 + 1 if is_number else None, *others])
    arrays.pop(name) if found is None else arrays.update({name: found})
    np.savez(path, allow_pickle=False, **arrays)


def any_file(path: Path, draw: random.Random) -> None:
    data, place = path.read_bytes(), draw.randrange(path.stat().st_size)
    flipped = data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
    path.write_bytes(draw.choice([data[:place], data + bytes(draw.randrange(1, 100)), flipped]))


def the_weights(folder: Path, draw: random.Random) -> None:
    any_file(folder / "weights.bin", draw)


def a_file_more_or_less(folder: Path, draw: random.Random) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kind, path = draw.randrange(3), draw.choice(files)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        (folder / draw.choice(["more", "tokenizer/more", ".hidden"])).write_text("more")
    else:
        path.rename(folder.parent / path.name)
        path.symlink_to(folder.parent / path.name)


def a_graph(folder: Path, draw: random.Random) -> None:
    """Changes a graph's declarations and constants: onnxruntime itself does not withstand arbitrary bytes."""
    path = folder / draw.choice(["model.onnx", "step.onnx"])
    model = onnx.load(path, load_external_data=False)
    kind = draw.randrange(4)
    value = draw.choice([*model.graph.input, *model.graph.output])
    if kind == 0:
        value.name += "x"
    elif kind == 1:
        draw.choice(value.type.tensor_type.shape.dim).dim_value = draw.choice([1, 3, 2**20, 2**40])
    elif kind == 2:
        tensor = draw.choice(model.graph.initializer)
        tensor.dims[:] = [2**40] if draw.random() < 0.5 else [3, *tensor.dims]
    else:
        draw.choice(model.graph.node).op_type = "Abs"
    path.write_bytes(model.SerializeToString())


MUTATIONS: list[Mutation] = [
    *(a_field_of_the_manifest, the_text_of_the_manifest, the_tokenizer, the_golden_file),
    *(the_weights, a_file_more_or_less, a_graph),
]


def reseal(folder: Path, draw: random.Random) -> None:
    """Makes the hashes right again, in 19 of 20 bundles whose manifest can still be read."""
    path = folder / "manifest.json"
    if not path.is_file() or draw.random() < 0.05:
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        old = content["files"]
        new = hash_files(folder)
        content["files"] = {name: new.get(name, digest) for name, digest in old.items()}
        if content["files"] != old:
            path.write_text(json.dumps(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        pass
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".sha256").write_text(f"{digest}  manifest.json\n")


SECONDS, KILOBYTES = 10, 2**20
"""The most processor time and memory of a verdict, above what a process has."""


def peak() -> int:
    """The peak memory of this process, in kB, since its peak was reset."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


def verdict_of_python(folder: Path) -> bool:
    """It is an exit code, within `SECONDS` and `KILOBYTES`."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begun = peak(), time.process_time()
    code = cli.main(["verify", str(folder), "--json"])
    used = time.process_time() - begun, peak() - before
    assert code in (0, 1, 2) and used[0] <= SECONDS and used[1] <= KILOBYTES, (code, used)
    return code == 0


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Runs a program. Its parent is small: the memory of a process counts as its child's, before that becomes a program."""


def verdict_of_cpp(folder: Path) -> bool:
    """It ends with an exit code of its own, within `SECONDS` and `KILOBYTES`."""
    command: Command = [sys.executable, "-S", "-c", MEASURED, build("seqlab-run"), "verify", folder]
    code, *used = map(float, subprocess.check_output(command, env=ENVIRONMENT, timeout=300).split())
    assert code in (0, 1, 2) and used[0] <= SECONDS and used[1] <= KILOBYTES, (code, used)
    return code == 0


@pytest.mark.parametrize("seeds", [2, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_both_say_the_same_of_a_mutated_bundle(mutation: Mutation, seeds: int, bundle: Bundle, tmp_path: Path) -> None:
    for seed in range(seeds):
        draw = random.Random(f"{mutation.__name__} {seeds} {seed}")
        folder = Path(shutil.copytree(bundle("gru" if seed % 2 else "attention"), tmp_path / str(seed) / "bundle"))
        mutation(folder, draw)
        reseal(folder, draw)
        assert verdict_of_python(folder) == verdict_of_cpp(folder), seed


HUNGRY: list[tuple[str, list[str], int]] = [
    ("ConstantOfShape", ["sizes"], 2**30),
    ("ConstantOfShape", ["size"], 2**30),  # known before it runs
    ("ConstantOfShape", ["sizes"], 2**34),
    ("ConstantOfShape", ["size"], 2**40),
    ("Expand", ["none", "sizes"], 2**40),
    ("Range", ["zero", "end", "one"], 2**34),
    ("OneHot", ["tokens", "end", "two"], 2**34),
    ("Tile", ["two", "sizes"], 2**30),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "size"), [*HUNGRY[:2], *(pytest.param(*some, marks=pytest.mark.slow) for some in HUNGRY[2:])]
)
def test_a_graph_that_asks_for_memory_is_refused(operator: str, inputs: list[str], size: int, copy: Copy) -> None:
    """However much there is: before it is taken."""
    folder = copy("gru")
    edit_graph(folder, "model.onnx", asking(operator, inputs, size))
    assert not verdict_of_python(folder) and not verdict_of_cpp(folder)


@pytest.mark.parametrize("option", ["--seed=1_000", "--seed=\uff11\uff12", "--temperature=1_0", "--top-p="])
def test_both_take_the_same_numbers(option: str, bundle: Bundle) -> None:
    assert cli.main(["generate", str(bundle("gru")), option]) == 2
    assert option.split("=")[0] in refusal("generate", bundle("gru"), option)
