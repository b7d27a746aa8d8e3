"""The forms of a model that are exported as graphs, each with the inputs and outputs of its graph.

B batch, T new tokens, K of them scored, S past tokens, M source length, F features, V vocabulary, C classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.mixer import State, check_declared
from seqlab_export.runner.manifest import GraphInfo, StateInfo, TensorInfo


class SequenceForm(nn.Module):
    """A decoder's `forward`, starting from a state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.renewed = _renewed(model)

    def forward(
        self, tokens: Tensor, pad_mask: Tensor, state: State, scored: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, T) to the logits (B, K, V) at the positions scored (K,), None = all, and the new
        state, without entries computed from a source."""
        x, new_state = self.features(tokens, pad_mask, state, scored)
        return _widened(self.model.output(x)), new_state

    def features(self, tokens: Tensor, pad_mask: Tensor, state: State, scored: Tensor | None) -> tuple[Tensor, State]:
        """Inputs (B, K, D) of the output layer, and the new state."""
        x, new_state = self.model(tokens, state, pad_mask=pad_mask, features=True)  # x (B, T, D)
        # An input that is returned unchanged as an output would lose its name.
        return x if scored is None else x.index_select(1, scored), {
            name: new_state[name].clone() if new_state[name] is state[name] else new_state[name]
            for name in self.renewed
        }

    def info(self) -> GraphInfo:
        return _decoder_info(self, "model.onnx", length="T", scored="K", longer="S+T")


class GuessForm(nn.Module):
    """`SequenceForm` with the guesses of the model's N heads (`seqlab.models.ahead`)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.sequence = SequenceForm(model)

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State, scored: Tensor) -> tuple[Tensor, State, Tensor]:
        """Outputs of `SequenceForm`, and guesses (B, K, N) of the N tokens after the one that the logits are of."""
        x, new_state = self.sequence.features(tokens, pad_mask, state, scored)  # x (B, K, D)
        # A single product with the output layer, whose weights a quantised graph then holds once.
        every = self.model.output(torch.cat((x.unsqueeze(-2), self.model.ahead(x)), dim=-2))  # (B, K, 1 + N, V)
        return _widened(every[..., 0, :]), new_state, every[..., 1:, :].argmax(dim=-1)

    def info(self) -> GraphInfo:
        like = self.sequence.info()
        guesses = TensorInfo(name="guesses", dtype="int64", dims=("B", "K", len(self.model.ahead.layers)))
        return replace(like, file="guess.onnx", outputs=(*like.outputs, guesses))


class StepForm(nn.Module):
    """A decoder's `step` with the signature of `SequenceForm` at T = 1. A pad is the identity: its entry in a cache of
    fixed capacity comes after the real tokens, where the next token overwrites it. In a full row, a pad takes the last
    position, which is not read again."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.renewed = _renewed(model)
        spec = [entry for entry in model.state_spec() if entry.name in self.renewed]
        self.masks = [entry.name for entry in spec if entry.kind == "counter" and "S" in entry.dims]
        self.fixed = [entry.name for entry in spec if not {"S", "C"} & {*entry.dims}]
        self.revised = {entry.name: "S" in entry.dims for entry in spec if entry.kind == "revised"}

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, 1) to logits (B, 1, V), and the new state, without entries computed from a source."""
        reads = state
        if self.model.max_seq_len is not None:
            position = state["position"]
            within = torch.where(pad_mask.squeeze(1), position, position.clamp(max=self.model.max_seq_len - 1))
            reads = state | {"position": within}
        logits, new_state = self.model.step(tokens.squeeze(1), reads)
        for name in self.fixed:
            real = pad_mask.view(-1, *[1] * (state[name].dim() - 1))
            new_state[name] = torch.where(real, new_state[name], state[name])
        for name, grows in self.revised.items():
            old, new = state[name], new_state[name]
            kept = torch.where(pad_mask.view(-1, *[1] * (old.dim() - 1)), new[..., :-1, :] if grows else new, old)
            new_state[name] = torch.cat((kept, new[..., -1:, :]), dim=-2) if grows else kept
        for name in self.masks:
            new_state[name] = torch.cat((state[name], pad_mask), dim=1)
        return _widened(logits).unsqueeze(1), {name: new_state[name] for name in self.renewed}

    def info(self) -> GraphInfo:
        return _decoder_info(self, "step.onnx", length=1, scored=1, longer="S+1")


class EncoderForm(nn.Module):
    """A model that reads its whole input in one call."""

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
    """A decoder's `begin`: its first state from a source."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> State:
        """source (B, M) or (B, M, F) and source_mask (B, M) to the first state."""
        state: State = self.model.begin(source, source_mask)
        return {name: entry.clone() if entry is source_mask else entry for name, entry in state.items()}

    def info(self) -> GraphInfo:
        """Inputs and outputs of the graph. Caches are empty: their dimension S is 0."""
        outputs = []
        for entry in state_info(self.model):
            dims = tuple(0 if dim == "S" else dim for dim in entry.dims)
            outputs.append(TensorInfo(name=f"state_{entry.name}", dtype=entry.dtype, dims=dims))
        return GraphInfo(file="encoder.onnx", inputs=_inputs(self.model, "M"), outputs=tuple(outputs))


Form = SequenceForm | GuessForm | StepForm | EncoderForm | BeginForm


def forms_of(model: Any) -> dict[str, Form]:
    """Forms of a model, by the names of their graphs in the manifest."""
    if not model.kind.decodes:
        return {"encoder": EncoderForm(model)}
    begin: dict[str, Form] = {"encoder": BeginForm(model)} if model.kind.reads == "sources" else {}
    guess: dict[str, Form] = {"guess": GuessForm(model)} if getattr(model, "ahead", None) is not None else {}
    return begin | {"model": SequenceForm(model), "step": StepForm(model)} | guess


def of_source(model: Any) -> set[str]:
    """Names of the entries of a decoder's state that are computed from a source, which no token changes."""
    return {entry.name for entry in model.state_spec() if entry.kind == "source"}


def _renewed(model: Any) -> list[str]:
    """Names of the entries that each call updates, which are all that are not computed from a source."""
    return [entry.name for entry in model.state_spec() if entry.kind != "source"]


def state_info(model: Any) -> tuple[StateInfo, ...]:
    """The entries of a decoder's state, as declared by the decoder."""
    begins = model.kind.reads == "prompts"
    return tuple(
        StateInfo(
            name=name,
            dtype=_dtype(model) if dtype is None else str(dtype).removeprefix("torch."),
            dims=("B", *dims),
            initial=initial if begins else None,
        )
        for name, dims, dtype, initial, _ in model.state_spec()
    )


@torch.no_grad()
def check_states(model: Any) -> None:
    """Raises ValueError if a decoder's states differ from its mixers' declarations, on which the bundle relies."""
    start, spec = _first_state(model), model.state_spec()
    _, end = model(torch.zeros(2, 2, dtype=torch.int64), start)
    for num_read, state in ((0, start), (2, end)):
        check_declared(state, spec, num_read, next(model.parameters()).dtype)
    for entry in spec if model.kind.reads == "prompts" else ():
        if not bool((start[entry.name] == entry.initial).all()):
            raise ValueError(f"state entry {entry.name} is declared to start at {entry.initial}, and does not")


def _decoder_info(
    form: SequenceForm | StepForm, file: str, *, length: str | int, scored: str | int, longer: str
) -> GraphInfo:
    inputs = [
        TensorInfo(name="tokens", dtype="int64", dims=("B", length)),
        TensorInfo(name="pad_mask", dtype="bool", dims=("B", length)),
    ]
    outputs = [TensorInfo(name="logits", dtype="float32", dims=("B", scored, form.model.vocab_size))]
    for entry in state_info(form.model):
        inputs.append(TensorInfo(name=f"state_{entry.name}", dtype=entry.dtype, dims=entry.dims))
        if entry.name in form.renewed:
            new_dims = tuple(longer if dim == "S" else dim for dim in entry.dims)
            outputs.append(TensorInfo(name=f"new_state_{entry.name}", dtype=entry.dtype, dims=new_dims))
    if isinstance(scored, str):
        inputs.append(TensorInfo(name="scored", dtype="int64", dims=(scored,)))
    return GraphInfo(file=file, inputs=tuple(inputs), outputs=tuple(outputs))


def longest_input(model: Any) -> int | None:
    """Maximum length of an input, or source, of a model's encoder; None = unlimited."""
    reader = model.encoder if model.kind.reads == "sources" else model
    longest: int | None = getattr(reader, "max_seq_len", None)
    return longest


def num_tokens(model: Any) -> int:
    """Vocabulary size of a model's encoder."""
    embedding = _embedding(model)
    assert isinstance(embedding, nn.Embedding)
    return embedding.num_embeddings


def example(tensor: TensorInfo, sizes: dict[str, int]) -> Tensor:
    """Zeros of a tensor's type and shape; `sizes` has the sizes of named dimensions."""
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.dims]
    return torch.zeros(shape, dtype=getattr(torch, tensor.dtype))


def _inputs(model: Any, length: str) -> tuple[TensorInfo, TensorInfo]:
    """Inputs of an encoder, a source of length "M" or an input of length "T": tokens, or features if a linear layer
    embeds them."""
    name, mask = ("source", "source_mask") if length == "M" else ("tokens", "pad_mask")
    pads = TensorInfo(name=mask, dtype="bool", dims=("B", length))
    embedding = _embedding(model)
    if not isinstance(embedding, nn.Linear):
        return TensorInfo(name=name, dtype="int64", dims=("B", length)), pads
    dims = ("B", length, embedding.in_features)
    return TensorInfo(name=name.replace("tokens", "features"), dtype=_dtype(model), dims=dims), pads


def _embedding(model: Any) -> nn.Module:
    """Embedding layer of an encoder's input."""
    found: nn.Module = model.get_submodule(model.kind.embedded_by)
    return found


def _first_state(model: Any) -> State:
    """Initial state of a decoder, for two rows."""
    state: State
    if model.kind.reads == "prompts":
        state = model.init_state(2)
    else:
        source, _ = _inputs(model, "M")
        state = model.begin(example(source, {"B": 2, "M": 2}))
    return state


def _widened(logits: Tensor) -> Tensor:
    """Logits in fp32 if the model computes in fp16, so that token selection does not depend on the precision."""
    return logits.float() if logits.dtype == torch.float16 else logits


def _dtype(module: nn.Module) -> str:
    return str(next(module.parameters()).dtype).removeprefix("torch.")
