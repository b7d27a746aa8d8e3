"""A bundle as a model repository of NVIDIA Triton: texts in, texts out.

It holds one model of Triton's Python backend, which runs tokenizer, graphs and decoding loop with the onnxruntime of
its Python, as the bundle was proven. (An ensemble of graphs cannot loop, and the server's own onnxruntime is another.)

    NAME/config.pbtxt   inputs `text` and the options, outputs those of `text_model`
    NAME/1/model.py     what the server loads
    NAME/1/bundle/      the bundle
    NAME/1/seqlab*/     the code that runs it
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqlab_export.runner import Provider
from seqlab_export.sources import source_folders
from seqlab_export.text_model import TextModel, open_text_model

TYPES = {int: "TYPE_INT64", float: "TYPE_FP64", str: "TYPE_STRING"}
DEVICES = {"cpu": "kind: KIND_CPU", "cuda": "kind: KIND_GPU gpus: [ 0 ]"}
MODEL = '''"""Answers texts with the bundle beside this file."""

from seqlab_export.triton_model import TritonPythonModel as TritonPythonModel
'''


def write_repository(bundle: Path, out: Path, name: str, *, provider: Provider = "cpu") -> None:
    """Writes a repository to the new folder `out`, whole or not at all.

    Args:
        name: of the model, as clients call it.
        provider: what runs the graphs.

    Raises:
        ValueError: the bundle is not one of texts.
    """
    model = open_text_model(bundle)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        version = Path(folder) / "repository" / name / "1"
        shutil.copytree(bundle, version / "bundle")
        for package in source_folders():
            shutil.copytree(package, version / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        (version / "model.py").write_text(MODEL, encoding="utf-8")
        lines = "".join(f"{line}\n" for line in _config(model, name, provider))
        (version.parent / "config.pbtxt").write_text(lines, encoding="utf-8")
        version.parents[1].replace(out)


def _config(model: TextModel, name: str, provider: str) -> Iterator[str]:
    """The lines of `config.pbtxt`: N texts give N values of each output; an option is one value."""
    yield f"name: {json.dumps(name, ensure_ascii=False)}"
    yield 'backend: "python"'
    yield "max_batch_size: 0"
    yield 'input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }'
    for option, kind in model.option_types().items():
        yield f'input {{ name: "{option}" data_type: {TYPES[kind]} dims: [ 1 ] optional: true }}'
    for output, kind in model.outputs.items():
        yield f'output {{ name: "{output}" data_type: {TYPES[kind]} dims: [ -1 ] }}'
    yield f"instance_group {{ count: 1 {DEVICES[provider]} }}"
    yield f'parameters {{ key: "provider" value {{ string_value: "{provider}" }} }}'
