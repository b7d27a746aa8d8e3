"""A bundle as an MLflow model of flavor `pyfunc`: texts in, texts out; for other bundles, arrays in, logits out.

The model's folder holds the bundle, its verification report, and the code that runs it, so serving needs no PyTorch.

B sequences, T tokens, F features, C classes.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.text_model import TextModel
from seqlab_export.runner.bundle_text_model import open_text_model, reads_text
from seqlab_export.runner.graph_runner import Bundle, BundleRunner, open_bundle
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.sessions import ProviderName
from seqlab_export.serving import source_folders

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

PARITY_FILE = "parity.json"
TYPES = {int: "long", float: "double", str: "string"}


class ServedTexts:
    """MLflow model that answers texts, the first column of a table; options are MLflow's params."""

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """One answer per row.

        Raises:
            MlflowException: `TextModel.answer` raised ValueError.
        """
        with _refusals():
            return self.model.answer(model_input.iloc[:, 0].tolist(), params)


class ServedArrays:
    """MLflow model that returns the logits for tokens (B, T) or features (B, T, F), without padding."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> NDArray[np.generic]:
        """Logits (B, C), (B, T, C) of a token classifier, or (B, T, V) of a decoder.

        Raises:
            MlflowException: `Bundle.encode` raised ValueError.
        """
        inputs = np.asarray(model_input)
        real = np.ones(inputs.shape[:2], dtype=np.bool_)
        with _refusals():
            if isinstance(self.bundle, BundleRunner):
                return self.bundle.read("model", inputs.astype(np.int64), real, self.bundle.init_state(len(inputs)))[0]
            return self.bundle.encode(inputs, real)["logits"]


@contextmanager
def _refusals() -> Iterator[None]:
    """Converts invalid-input errors to errors whose message MLflow's server returns, without a stack trace."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except ValueError as error:
        raise MlflowException.invalid_parameter_value(str(error)) from error


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> ServedTexts | ServedArrays:
    """The bundle in the folder `path`; the function's name is defined by MLflow."""
    provider: ProviderName = (model_config or {}).get("provider", "cpu")
    if reads_text(load_manifest(Path(path))):
        return ServedTexts(open_text_model(path, provider=provider))
    return ServedArrays(open_bundle(path, provider=provider))


def save_model(bundle: Path, folder: Path, *, report: dict[str, Any], provider: ProviderName = "cpu") -> None:
    """Writes the MLflow model of a bundle to a new folder.

    Args:
        report: verification report of the bundle.
        provider: provider used for serving, unless overridden by `model_config` on loading.
    """
    served = _load_pyfunc(str(bundle))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from MLflow's dependencies and its type hints
        import mlflow.pyfunc

        signature, example = _of_texts(served.model) if isinstance(served, ServedTexts) else _of_arrays(served.bundle)
        mlflow.pyfunc.save_model(
            folder,
            loader_module=__name__,
            data_path=str(bundle),
            code_paths=[str(folder) for folder in source_folders()],
            signature=signature,
            input_example=example,
            pip_requirements=_requirements(bundle),
            model_config={"provider": provider},
        )
    (folder / PARITY_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _of_texts(model: TextModel) -> tuple[ModelSignature, Any]:
    """The signature, and inputs that fit it."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

    params = ParamSchema([ParamSpec(option.name, TYPES[option.type], option.default) for option in model.options])
    outputs = Schema([ColSpec(TYPES[kind], name) for name, kind in model.outputs.items()])
    return ModelSignature(Schema([ColSpec("string")]), outputs, params), [model.example]


def _of_arrays(bundle: Bundle) -> tuple[ModelSignature, Any]:
    """The signature, and an input that fits it."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    graph = bundle.manifest.encoder or bundle.manifest.model
    assert graph is not None
    given, logits = (
        TensorSpec(np.dtype(tensor.dtype), [dim if isinstance(dim, int) else -1 for dim in tensor.dims])
        for tensor in (graph.inputs[0], graph.outputs[0])
    )
    example = np.ones([max(dim, 1) for dim in given.shape], dtype=given.type)
    return ModelSignature(Schema([given]), Schema([logits])), example


def _requirements(bundle: Path) -> list[str]:
    """Packages required to run it, in the versions on this machine."""
    modules = ["numpy", "onnxruntime"]
    modules += ["sentencepiece"] if any(bundle.rglob("tokenizer.model")) else []
    modules += ["tokenizers"] if any(bundle.rglob("pretrained.json")) else []
    found = packages_distributions()
    return [f"{found[module][0]}=={version(found[module][0])}" for module in modules]
