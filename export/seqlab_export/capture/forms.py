"""The forms in which a model is captured, each with the inputs and outputs of its graph.

B batch, T tokens given, S tokens before, M source length, F features, V vocabulary, C classes or capacity.

With a capacity, what would grow with the tokens read has room for so many from the start.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqlab.attention.cache import with_capacity
from seqlab.mixer import State
from seqlab.models import BagOfWords, Classifier, DecoderLM, EncoderDecoder, MaskedLM, RNNSeq2Seq, Tagger
from seqlab_export.runner.manifest import GraphInfo, StateInfo, TensorInfo

DECODERS = (DecoderLM, EncoderDecoder, RNNSeq2Seq)
ENCODERS = (BagOfWords, Classifier, Tagger, MaskedLM)


class SequenceForm(nn.Module):
    """A decoder's `forward` from a state."""

    def __init__(self, model: Any, capacity: int | None = None) -> None:
        super().__init__()
        self.model, self.capacity = model, capacity

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, T) to logits (B, T, V), and the new state, without what was read of a source."""
        logits, new_state = self.model(tokens, state, pad_mask=pad_mask)
        # An input that is also an output as it stands would lose its name.
        return _widened(logits), {
            name: new_state[name].clone() if new_state[name] is old else new_state[name]
            for name, old in state.items()
            if not stays(name)
        }

    def info(self) -> GraphInfo:
        return _decoder_info(self, "model.onnx", length="T", longer="S+T")


class StepForm(nn.Module):
    """A decoder's `step` with the signature of `SequenceForm` at T = 1. A pad is the identity: what it writes into a
    cache of fixed capacity stands after the real tokens, where the next one is written."""

    def __init__(self, model: Any, capacity: int | None = None) -> None:
        super().__init__()
        self.model, self.capacity = model, capacity
        entries = [entry for entry in describe_state(model, capacity) if not stays(entry.name)]
        self.fixed = [entry.name for entry in entries if not {"S", "C"} & {*entry.dims}]

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, 1) to logits (B, 1, V), and the new state, without what was read of a source."""
        logits, new_state = self.model.step(tokens.squeeze(1), state)
        for name in self.fixed:
            real = pad_mask.view(-1, *[1] * (state[name].dim() - 1))
            new_state[name] = torch.where(real, new_state[name], state[name])
        if "key_mask" in state:
            new_state["key_mask"] = torch.cat((state["key_mask"], pad_mask), dim=1)
        return _widened(logits).unsqueeze(1), {name: new_state[name] for name in state if not stays(name)}

    def info(self) -> GraphInfo:
        return _decoder_info(self, "step.onnx", length=1, longer="S+1")


class EncoderForm(nn.Module):
    """A model that reads all of its input at once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, pad_mask: Tensor) -> Tensor:
        """inputs (B, T) or (B, T, F) and pad_mask (B, T) to logits (B, C) or (B, T, C)."""
        return _widened(self.model(inputs, pad_mask=pad_mask))

    @torch.no_grad()
    def info(self) -> GraphInfo:
        inputs = _inputs(self.model, "T")
        logits = self.model(example(inputs[0], {"B": 2, "T": 2}))
        dims = ("B", "T", logits.shape[-1]) if logits.dim() == 3 else ("B", logits.shape[-1])
        logits_info = TensorInfo(name="logits", dtype="float32", dims=dims)
        return GraphInfo(file="encoder.onnx", inputs=inputs, outputs=(logits_info,))


class BeginForm(nn.Module):
    """What a decoder starts from."""

    def __init__(self, model: Any, capacity: int | None = None) -> None:
        super().__init__()
        self.model, self.capacity = model, capacity

    def forward(self, source: Tensor, source_mask: Tensor) -> State:
        """source (B, M) or (B, M, F) and source_mask (B, M) to the first state."""
        state: State = self.model.begin(source, source_mask)
        if self.capacity is not None:
            state = with_capacity(state, self.capacity)
        return {name: entry.clone() if entry is source_mask else entry for name, entry in state.items()}

    def info(self) -> GraphInfo:
        """Caches are empty: their dimension S is 0."""
        outputs = []
        for entry in describe_state(self.model, self.capacity):
            dims = tuple(0 if dim == "S" else dim for dim in entry.dims)
            outputs.append(TensorInfo(name=f"state_{entry.name}", dtype=entry.dtype, dims=dims))
        return GraphInfo(file="encoder.onnx", inputs=_inputs(self.model, "M"), outputs=tuple(outputs))


Form = SequenceForm | StepForm | EncoderForm | BeginForm


def forms_of(model: Any, capacity: int | None = None) -> dict[str, Form]:
    """A model's forms, by their graphs' names in the manifest."""
    if isinstance(model, ENCODERS):
        return {"encoder": EncoderForm(model)}
    begin: dict[str, Form] = {} if isinstance(model, DecoderLM) else {"encoder": BeginForm(model, capacity)}
    return begin | {"model": SequenceForm(model, capacity), "step": StepForm(model, capacity)}


def stays(name: str) -> bool:
    """Whether an entry of a state is what was read of a source, which no token changes."""
    return "memory_" in name


def describe_state(model: Any, capacity: int | None = None) -> tuple[StateInfo, ...]:
    """The entries of a decoder's state. A dimension that grows with the tokens read is "S", or with a capacity "C", one
    as long as the source "M".

    Raises:
        ValueError: an entry grows otherwise than from 0 by one a token, or does not start as one constant where it
            comes from no source.
    """
    batch_size = 3
    begins: list[State] = [_first_state(model, batch_size, length) for length in (1, 2)]
    start = begins[0]
    with torch.no_grad():
        ends = [model(torch.zeros(batch_size, n, dtype=torch.int64), start)[1] for n in (1, 2)]
    entries = []
    for name, entry in start.items():
        if capacity is not None and name == "key_mask":
            continue
        dims: list[str | int] = ["B"]
        shapes = (entry.shape, *(end[name].shape for end in ends), begins[1][name].shape)
        for *sizes, of_longer in list(zip(*shapes, strict=True))[1:]:
            if len(set(sizes)) > 1 and sizes != [0, 1, 2]:
                raise ValueError(
                    f"state entry {name} has a dimension of {sizes[0]}, {sizes[1]} and {sizes[2]} after 0, 1 and 2 "
                    "tokens; a bundle can hold one that is fixed or one that counts the tokens"
                )
            grows = "S" if capacity is None else "C"
            dims.append(grows if len(set(sizes)) > 1 else "M" if of_longer != sizes[0] else sizes[0])
        dtype = str(entry.dtype).removeprefix("torch.")
        initial = None
        if isinstance(model, DecoderLM):
            values = entry.flatten().tolist()
            if len(set(values)) > 1:
                raise ValueError(f"state entry {name} does not start as one constant, so a bundle cannot hold it")
            initial = float(values[0]) if values else 0.0
        entries.append(StateInfo(name=name, dtype=dtype, dims=tuple(dims), initial=initial))
    return tuple(entries)


def _decoder_info(form: SequenceForm | StepForm, file: str, *, length: str | int, longer: str) -> GraphInfo:
    inputs = [
        TensorInfo(name="tokens", dtype="int64", dims=("B", length)),
        TensorInfo(name="pad_mask", dtype="bool", dims=("B", length)),
    ]
    outputs = [TensorInfo(name="logits", dtype="float32", dims=("B", length, form.model.vocab_size))]
    for entry in describe_state(form.model, form.capacity):
        inputs.append(TensorInfo(name=f"state_{entry.name}", dtype=entry.dtype, dims=entry.dims))
        if not stays(entry.name):
            new_dims = tuple(longer if dim == "S" else dim for dim in entry.dims)
            outputs.append(TensorInfo(name=f"new_state_{entry.name}", dtype=entry.dtype, dims=new_dims))
    return GraphInfo(file=file, inputs=tuple(inputs), outputs=tuple(outputs))


def longest_input(model: Any) -> int | None:
    """The longest input, or source, that a model's encoder reads; None = no limit."""
    if isinstance(model, RNNSeq2Seq):
        return None
    longest: int | None = model.encoder.max_seq_len if isinstance(model, EncoderDecoder) else model.max_seq_len
    return longest


def num_tokens(model: Any) -> int:
    """How many different tokens a model's encoder reads."""
    embedding = _embedding(model)
    assert isinstance(embedding, nn.Embedding)
    return embedding.num_embeddings


def example(tensor: TensorInfo, sizes: dict[str, int]) -> Tensor:
    """Zeros of a tensor's type and dimensions, those with a name being as long as `sizes` says."""
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.dims]
    return torch.zeros(shape, dtype=getattr(torch, tensor.dtype))


def _inputs(model: Any, length: str) -> tuple[TensorInfo, TensorInfo]:
    """What an encoder reads, a source of length "M" or an input of length "T": tokens, or features where a linear layer
    embeds them."""
    name, mask = ("source", "source_mask") if length == "M" else ("tokens", "pad_mask")
    pads = TensorInfo(name=mask, dtype="bool", dims=("B", length))
    embedding = _embedding(model)
    if not isinstance(embedding, nn.Linear):
        return TensorInfo(name=name, dtype="int64", dims=("B", length)), pads
    dims = ("B", length, embedding.in_features)
    return TensorInfo(name=name.replace("tokens", "features"), dtype=_dtype(model), dims=dims), pads


def _embedding(model: Any) -> nn.Module:
    """Of what an encoder reads."""
    if isinstance(model, BagOfWords):
        return model.embedding
    found: nn.Module = model.source_embedding if isinstance(model, RNNSeq2Seq) else model.encoder.embedding
    return found


@torch.no_grad()
def _first_state(model: Any, batch_size: int, source_len: int) -> State:
    if isinstance(model, DecoderLM):
        return model.init_state(batch_size)
    source, _ = _inputs(model, "M")
    state: State = model.begin(example(source, {"B": batch_size, "M": source_len}))
    return state


def _widened(logits: Tensor) -> Tensor:
    """In fp32 where the model computes in half of it: whoever chooses tokens need not know."""
    return logits.float() if logits.dtype == torch.float16 else logits


def _dtype(module: nn.Module) -> str:
    return str(next(module.parameters()).dtype).removeprefix("torch.")
