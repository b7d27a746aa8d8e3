"""A bundle as a model repository of NVIDIA Triton: an ensemble, texts in, texts out, and its three steps.

    NAME/                the ensemble, which is only a configuration: `text` and options to the answers of `text_model`
    NAME_tokenizer/      texts to ids
    NAME_model/          ids and options to ids, of tokens or classes, and scores: also for clients that send ids
    NAME_detokenizer/    ids to texts

The steps are models of Triton's Python backend. `NAME_model` contains the decoding loop, since an ensemble cannot loop.
Triton may fetch each model into a separate folder, so none reads another's files: `NAME_model/1/` holds the bundle
and the code that runs it; the other two hold its manifest, its tokenizers and the modules that read them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seqlab.decoding.text_model import TextModel, not_of_texts
from seqlab_export.runner import manifest
from seqlab_export.runner.bundle_text_model import open_text_model, reads_text
from seqlab_export.runner.sessions import ProviderName
from seqlab_export.serving import source_folders

TYPES = {int: "TYPE_INT64", float: "TYPE_FP64", str: "TYPE_STRING"}
DEVICES = {"cpu": "kind: KIND_CPU", "cuda": "kind: KIND_GPU gpus: [ 0 ]"}
MODEL = '''"""What the server loads of this step; the bundle is beside it."""

from seqlab_export.serving.{module} import {step} as TritonPythonModel
'''
TEXT_CODE = {
    "seqlab": (
        *("__init__.py", "decoding", "files/__init__.py", "files/phases.py", "files/regular_file.py"),
        *("config/__init__.py", "config/text_options.py"),
    ),
    "seqlab_data": ("__init__.py", "tokenizers"),
    "seqlab_export": (
        "__init__.py",
        "runner/__init__.py",
        "runner/files.py",
        "runner/graph_file.py",
        "runner/manifest.py",
        "runner/manifest_fields.json",
        "runner/manifest_kinds.py",
        "runner/operators.json",
        "runner/sizes.py",
        "runner/tables.py",
        "runner/bundle_text_model.py",
        "serving/__init__.py",
        "serving/triton_text.py",
    ),
}
"""Files of each package that the tokenizer and detokenizer steps need."""


class Step(NamedTuple):
    """A model of the Python backend.

    Attributes:
        code: module and class of the step.
        inputs, outputs: type and dims by name; a name refers to the same tensor in all steps.
    """

    code: tuple[str, str]
    inputs: dict[str, str]
    outputs: dict[str, str]
    provider: ProviderName = "cpu"


def write_repository(bundle: Path, out: Path, name: str, *, provider: ProviderName = "cpu") -> None:
    """Writes a repository to the new folder `out`, all or nothing.

    Args:
        name: name of the ensemble, as used by clients.
        provider: provider that runs the graphs.

    Raises:
        ValueError: the bundle does not read text.
    """
    if not reads_text(manifest.load_manifest(bundle)):
        raise not_of_texts(str(bundle))
    steps = {f"{name}_{role}": step for role, step in _steps(open_text_model(bundle), provider).items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        repository = Path(folder) / "repository"
        version = _write_config(repository / name, _ensemble(steps))
        # Triton needs a version folder, and Git and object stores do not keep empty folders.
        (version / ".gitkeep").touch()
        for step_name, step in steps.items():
            version = _write_config(repository / step_name, _python_model(step))
            module, class_name = step.code
            (version / "model.py").write_text(MODEL.format(module=module, step=class_name), encoding="utf-8")
            (_add_all if module == "triton_model" else _add_text_part)(bundle, version)
        repository.replace(out)


def _steps(model: TextModel, provider: ProviderName) -> dict[str, Step]:
    """The steps in order. N texts are N padded rows of ids, with their lengths; an option is one value."""
    given, found = (
        {f"{kind}_ids": "TYPE_INT64 dims: [ -1, -1 ]", f"{kind}_lengths": "TYPE_INT64 dims: [ -1 ]"}
        for kind in ("input", "output")
    )
    options = {option.name: f"{TYPES[option.type]} dims: [ 1 ] optional: true" for option in model.options}
    scores = {name: f"{TYPES[kind]} dims: [ -1 ]" for name, kind in model.outputs.items() if kind is float}
    # Tensor names are unique in an ensemble, and `text` is its input.
    (written,) = ("text_output" if name == "text" else name for name in model.outputs if name not in scores)
    texts = "TYPE_STRING dims: [ -1 ]"
    return {
        "tokenizer": Step(("triton_text", "Tokenizer"), {"text": texts}, given),
        "model": Step(("triton_model", "Model"), given | options, found | scores, provider),
        "detokenizer": Step(("triton_text", "Detokenizer"), found, {written: texts}),
    }


def _write_config(folder: Path, lines: Iterator[str]) -> Path:
    """Writes the `config.pbtxt` of a new model; returns the new folder of its version."""
    (folder / "1").mkdir(parents=True)
    named = (f"name: {_quoted(folder.name)}", "max_batch_size: 0", *lines)
    (folder / "config.pbtxt").write_text("".join(f"{line}\n" for line in named), encoding="utf-8")
    return folder / "1"


def _ensemble(steps: Mapping[str, Step]) -> Iterator[str]:
    """Configuration of the ensemble. Its inputs are tensors that no step produces, its outputs tensors that no step
    reads."""
    read = {name: kind for step in steps.values() for name, kind in step.inputs.items()}
    made = {name: kind for step in steps.values() for name, kind in step.outputs.items()}
    yield 'platform: "ensemble"'
    yield from _tensors("input", {name: kind for name, kind in read.items() if name not in made})
    yield from _tensors("output", {name: kind for name, kind in made.items() if name not in read})
    yield "ensemble_scheduling {"
    for step_name, step in steps.items():
        yield f"  step {{ model_name: {_quoted(step_name)} model_version: -1"
        yield from (f'    input_map {{ key: "{name}" value: "{name}" }}' for name in step.inputs)
        yield from (f'    output_map {{ key: "{name}" value: "{name}" }}' for name in step.outputs)
        yield "  }"
    yield "}"


def _python_model(step: Step) -> Iterator[str]:
    yield 'backend: "python"'
    yield from _tensors("input", step.inputs)
    yield from _tensors("output", step.outputs)
    yield f"instance_group {{ count: 1 {DEVICES[step.provider]} }}"
    yield f'parameters {{ key: "provider" value {{ string_value: "{step.provider}" }} }}'


def _tensors(field: str, tensors: Mapping[str, str]) -> Iterator[str]:
    return (f'{field} {{ name: "{name}" data_type: {kind} }}' for name, kind in tensors.items())


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _add_all(bundle: Path, version: Path) -> None:
    _copy(bundle, version / "bundle")
    for package in source_folders():
        _copy(package, version / package.name)


def _add_text_part(bundle: Path, version: Path) -> None:
    stated = manifest.load_manifest(bundle)
    for name in filter(None, (manifest.FILE_NAME, stated.tokenizer, stated.source_tokenizer)):
        _copy(bundle / name, version / "bundle" / name)
    for package in source_folders():
        for name in TEXT_CODE[package.name]:
            _copy(package / name, version / package.name / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
