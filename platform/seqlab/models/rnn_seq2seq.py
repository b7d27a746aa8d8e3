"""Sequence-to-sequence model with two recurrences, connected by a fixed-size state only.

B batch, S source length, T target length, D d_model, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import Cuts, State, StateEntry, StateSpec, check_state, size_of
from seqlab.models.kind import Kind
from seqlab.recurrence import GRU
from seqlab.recurrence.fused import FusedRecurrence


class RNNSeq2Seq(nn.Module):
    """Recurrent encoder whose last state initialises a recurrent decoder (Sutskever et al. 2014, "Sequence to sequence
    learning with neural networks").

    The state is the state of the decoder's recurrence, preceded by `memory_context (B, D)` with `feed_context`.

    Args:
        vocab_size, target_vocab_size: vocabulary sizes of the source and of the target.
        max_seq_len: unused, since a recurrence has no length limit.
        recurrence: factory of RNN, LSTM or GRU, called with d_model and 0 for the encoder, 1 for the decoder.
        feed_context: whether each decoder step also reads the context, the encoder's last output (Cho et al. 2014,
            "Learning phrase representations", equation 10); otherwise it is used only as the initial state.
        tie_embeddings: whether the output layer shares the weights of the target embedding.
        dropout: dropout probability on the embeddings, in training.

    Raises:
        ValueError: the recurrence is bidirectional.
    """

    kind: ClassVar = Kind("sources", embedded_by="source_embedding", once=("context_proj",))
    cuts: ClassVar[Cuts] = {"source_embedding": "vocabulary", "embedding": "vocabulary", "head": "vocabulary"}

    def __init__(
        self,
        vocab_size: int,
        target_vocab_size: int,
        max_seq_len: int,
        *,
        d_model: int = 256,
        recurrence: Callable[[int, int], FusedRecurrence] = GRU,
        feed_context: bool = False,
        tie_embeddings: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocab_size = target_vocab_size
        self.max_seq_len = None
        self.first_call = 1
        self.source_embedding = nn.Embedding(vocab_size, d_model)
        self.embedding = nn.Embedding(target_vocab_size, d_model)
        self.dropout = nn.Dropout(dropout)
        self.encoder, self.decoder = recurrence(d_model, 0), recurrence(d_model, 1)
        if not self.encoder.causal:
            raise ValueError(
                f"a bidirectional {type(self.encoder).__name__} has no last state to initialise the decoder; use a "
                "unidirectional one, or a model with attention"
            )
        self.context_proj = nn.Linear(d_model, d_model, bias=False) if feed_context else None
        self.head = None if tie_embeddings else nn.Linear(d_model, target_vocab_size)

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> State:
        """Encodes source (B, S) int64 with source_mask (B, S) bool, True = a real token; returns the initial state."""
        state: State
        _, state = self.encoder(self.dropout(self.source_embedding(source)), pad_mask=source_mask)
        # The output of the top layer at the last real token is its hidden state.
        return {"memory_context": state["h"][:, -1]} | state if self.context_proj is not None else state

    def forward(
        self, tokens: Tensor, state: State, *, pad_mask: Tensor | None = None, features: bool = False
    ) -> tuple[Tensor, State]:
        """Next-token logits (B, T, V) after each of tokens (B, T), which start with bos, and the new state.

        Args:
            state: state from `begin` or an earlier call.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.
            features: whether to return the inputs of `output` (B, T, D) instead of logits.

        Raises:
            ValueError: the state belongs to another model or has another batch size.
        """
        x, own = self._enter(tokens, state)  # x (B, T, D)
        y, new_state = self.decoder(x, own, pad_mask=pad_mask)  # y (B, T, D)
        return y if features else self.output(y), state | new_state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step: maps tokens (B,) and a state to logits (B, V) and the next state."""
        x, own = self._enter(tokens.unsqueeze(1), state)  # x (B, 1, D)
        y, new_state = self.decoder.step(x.squeeze(1), own)  # y (B, D)
        return self.output(y), state | new_state

    def state_spec(self) -> StateSpec:
        """Entries of the decoding state, preceded by the context with `feed_context`."""
        context = StateEntry("memory_context", (self.decoder.d_model,), kind="source")
        return self.decoder.state_spec() if self.context_proj is None else (context, *self.decoder.state_spec())

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's decoding state, excluding the context."""
        return size_of(self.state_spec(), seq_len)

    def _enter(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The decoder's inputs (B, T, D), and its own state."""
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        x = self.dropout(self.embedding(tokens))  # (B, T, D)
        if self.context_proj is not None:
            x = x + self.context_proj(state["memory_context"]).unsqueeze(1)
        return x, {name: state[name] for name in self.decoder.state_names}

    def output(self, x: Tensor) -> Tensor:
        """Features (..., D) to logits (..., V)."""
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
