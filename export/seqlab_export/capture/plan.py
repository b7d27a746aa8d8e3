"""The plan of an export: the model as it is exported, and the decisions that every later step reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime as ort
import torch

import seqlab
from seqlab.decoding.text import default_stop_ids
from seqlab.models import MODELS
from seqlab_data.tokenizers import Tokenizer
from seqlab_export.capture.graph_forms import Form, check_states, forms_of, longest_input, of_source, state_info
from seqlab_export.capture.intermediate_form import IntermediateForm, IntermediateOutput
from seqlab_export.capture.precision import Precision, check_precision, in_dtype
from seqlab_export.capture.target import Target, TargetName, target_named
from seqlab_export.runner.manifest import GraphInfo, Provenance, StateInfo
from seqlab_export.runner.sessions import Provider, ProviderName, provider_named

MIN_ONNXRUNTIME = "1.30"

MOST_WEIGHTS = 2**22
"""Maximum number of weights of a model with a full proof, each case of which reads all of them."""


@dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """A model as it is exported, and the decisions of its export.

    Attributes:
        model: copy of the model in evaluation mode, on the CPU, in fp32, with caches as in the target.
        stored: `model` in the data type of the precision.
        forms: forms of `stored` that become graphs, by the names of these in the manifest.
        infos: inputs and outputs of these graphs.
        state: entries of a decoder's state, each with one row per row of the batch.
        source_inputs: inputs of a decoder's graphs that are computed from a source.
        tokenizers: tokenizers by their folders in the bundle; one shared by source and target occurs once.
        stated: fields of the manifest that follow from the model and its task.
        for_cuda: if True, the graphs have only nodes that onnxruntime computes on CUDA, without waits for the host.
        int8_products: if True, graphs that read whole sequences multiply int4 weights as int8.
        chooses_one: as in `export_bundle`.
    """

    model: Any
    stored: Any
    forms: dict[str, Form | IntermediateForm]
    infos: dict[str, GraphInfo]
    state: tuple[StateInfo, ...]
    source_inputs: set[str]
    precision: Precision
    target: Target
    provider: Provider
    tokenizers: dict[str, Tokenizer]
    stated: dict[str, Any]
    for_cuda: bool
    int8_products: bool
    chooses_one: bool
    provenance: Provenance


def plan_export(
    model: Any,
    tokenizer: Tokenizer | None,
    *,
    source_tokenizer: Tokenizer | None = None,
    labels: Sequence[str] = (),
    seq_len: int,
    stop_ids: Sequence[int] | None = None,
    chooses_one: bool = True,
    provider: ProviderName = "cpu",
    precision: Precision = "fp32",
    target: TargetName = "portable",
    taps: Sequence[IntermediateOutput] = (),
    run_id: str = "",
    commit: str = "",
) -> ExportPlan:
    """The plan for the arguments of `export_bundle`.

    Raises:
        ValueError: a provider, target, precision or kind of intermediate output is unknown or does not fit the model
            or another of these; the model is of an unsupported kind, does not match the tokenizer, or contradicts its
            own declarations.
    """
    _check_kind(model, tokenizer)
    device, built = provider_named(provider), target_named(target)
    fitted = built.fitted(model, seq_len)
    check_precision(precision)
    for_cuda = built.recorded or not device.on_cpu
    if for_cuda and precision == "int8":
        raise ValueError("int8 is for a CPU: CUDA has no product of such rows; use fp16, bf16 or int4 there")
    if taps and precision in ("int8", "int4"):
        raise ValueError(f"taps are of fp32, fp16 and bf16 bundles; this one is {precision}")
    stored = in_dtype(fitted, precision)
    forms: dict[str, Form | IntermediateForm] = {**forms_of(stored)}
    decodes = "step" in forms
    if decodes:
        check_states(stored)
    if taps:
        forms["taps"] = IntermediateForm(stored, taps)
    if stop_ids is None:
        reads = "prompts" if fitted.kind.reads == "prompts" else "sources"
        stop_ids = default_stop_ids(reads, tokenizer) if tokenizer is not None else ()
    return ExportPlan(
        model=fitted,
        stored=stored,
        forms=forms,
        infos={name: form.info() for name, form in forms.items()},
        state=state_info(stored) if decodes else (),
        source_inputs={f"state_{name}" for name in of_source(stored)} if decodes else set(),
        precision=precision,
        target=built,
        provider=device,
        tokenizers=_distinct(tokenizer, source_tokenizer),
        stated={
            "min_onnxruntime": MIN_ONNXRUNTIME,
            "target": built.name,
            "proof": "reduced" if sum(given.numel() for given in fitted.parameters()) > MOST_WEIGHTS else "full",
            "vocab_size": fitted.vocab_size if decodes else None,
            "max_seq_len": fitted.max_seq_len if decodes else None,
            "max_source_len": longest_input(fitted) if "encoder" in forms else None,
            "seq_len": seq_len,
            "stop_ids": tuple(stop_ids) if decodes else (),
            "first_call": fitted.first_call if decodes else 1,
            "labels": tuple(labels),
        },
        for_cuda=for_cuda,
        int8_products=precision == "int4" and not for_cuda,
        chooses_one=chooses_one,
        provenance=Provenance(
            run_id=run_id,
            commit=commit,
            seqlab=seqlab.__version__,
            torch=torch.__version__,
            onnxruntime=ort.__version__,
        ),
    )


def _check_kind(model: Any, tokenizer: Tokenizer | None) -> None:
    """Raises ValueError if a model has no bundles, or does not belong to the tokenizer."""
    if not isinstance(model, MODELS):
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"a bundle is of one of {names}; this is a {type(model).__name__}")
    num_tokens = None if tokenizer is None else tokenizer.vocab_size
    of_ids = num_tokens is None and model.kind.reads == "prompts"
    if model.kind.decodes and not of_ids and num_tokens != model.vocab_size:
        has = f"{num_tokens or 'no'} tokens"
        raise ValueError(f"the tokenizer has {has} and the model {model.vocab_size}; they do not belong together")


def _distinct(tokenizer: Tokenizer | None, source_tokenizer: Tokenizer | None) -> dict[str, Tokenizer]:
    found = {} if tokenizer is None else {"tokenizer": tokenizer}
    if source_tokenizer is not None and (tokenizer is None or source_tokenizer.to_dict() != tokenizer.to_dict()):
        found["source_tokenizer"] = source_tokenizer
    return found
