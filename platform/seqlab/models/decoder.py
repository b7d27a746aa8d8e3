"""The decoder language model: embed, mix, predict the next token.

B batch, T length, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.mixer import POSITION, Cuts, Mixer, State, StateSpec, check_state, size_of
from seqlab.models.ahead import HeadsAhead
from seqlab.models.kind import Kind
from seqlab.nn import Block, Stack
from seqlab.nn.embedding import embedding_for
from seqlab.nn.init import init_gpt2
from seqlab.nn.packing import Documents
from seqlab.nn.padding import count_real, real_positions
from seqlab.nn.stack import layers_of
from seqlab.positions import PositionalEncoding, RoPE


class DecoderLM(nn.Module):
    """Causal language model over any mixer and any positional encoding.

    The state is `position (B,)`, the number of real tokens read so far; `key_mask (B, S)` if a layer caches keys; then
    the layers' entries, prefixed `0_`, `1_`, ...

    Args:
        vocab_size: vocabulary size V.
        max_seq_len: training sequence length in tokens; the limit of encodings that have one.
        mixer: factory called with d_model and the layer's index; a list is repeated over the layers.
        positions: factory of the positional encoding, called with d_model and max_seq_len.
        block: factory of the residual block, called with d_model and the layer's mixer.
        embed: factory called with vocab_size and d_model: `nn.Embedding`, or `ScaledEmbedding`, which multiplies by
            sqrt(d_model). None = `ScaledEmbedding` for `Integer`, `Binary` and `Sinusoidal` positions, else
            `nn.Embedding`, as in GPT-2.
        tie_embeddings: whether the output layer shares the weights of the token embedding.
        logit_cap: bound on the absolute logit, cap tanh(logit / cap) (Gemma 2, section 2); None = unbounded.
        num_ahead: number of heads that predict the tokens after the next one (`HeadsAhead`).
        dropout: dropout probability on the embeddings, in training.

    Raises:
        ValueError: a mixer is not causal, needs an encoder, or is incompatible with the positions, `logit_cap` is not
            positive, or `num_ahead` is below 0.
    """

    kind: ClassVar = Kind("prompts", embedded_by="embedding")
    cuts: ClassVar[Cuts] = {"embedding": "vocabulary", "head": "vocabulary"}

    def __init__(
        self,
        vocab_size: int,
        max_seq_len: int,
        *,
        d_model: int = 128,
        num_layers: int = 2,
        mixer: list[Callable[[int, int], Mixer]] | Callable[[int, int], Mixer] = Attention,
        positions: Callable[[int, int], PositionalEncoding] = RoPE,
        block: Callable[[int, Mixer], Block] = Block,
        embed: Callable[[int, int], nn.Embedding] | None = None,
        tie_embeddings: bool = True,
        logit_cap: float | None = None,
        num_ahead: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if logit_cap is not None and not logit_cap > 0:
            raise ValueError(f"logit_cap must be positive, got {logit_cap}")
        if num_ahead < 0:
            raise ValueError(f"num_ahead must be at least 0, got {num_ahead}")
        self.vocab_size = vocab_size
        self.logit_cap = logit_cap
        told = positions(d_model, max_seq_len)
        embed = embed or embedding_for(told, nn.Embedding)
        self.embedding = embed(vocab_size, d_model)
        self.positions = told
        self.dropout = nn.Dropout(dropout)
        mixers = [make(d_model, k) for k, make in enumerate(layers_of(mixer, num_layers))]
        self.stack = Stack(mixers, positions=self.positions, block=block, causal=True)
        self.head = None if tie_embeddings else nn.Linear(d_model, vocab_size, bias=False)
        self.ahead = HeadsAhead(d_model, num_ahead) if num_ahead else None
        self.max_seq_len = self.positions.max_seq_len
        self.first_call = self.stack.first_call
        self.init_state(0)  # raises for a mixer that needs an encoder's memory
        init_gpt2(self, num_layers)
        if self.ahead is not None:
            self.ahead.begin()

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        *,
        pad_mask: Tensor | None = None,
        features: bool = False,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Next-token logits at each position.

        Args:
            tokens: (B, T) int64.
            state: state returned by an earlier call; None starts a new sequence.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.
            features: whether to return the inputs of `output` (B, T, D) instead of logits.
            documents: (B, T) int64, documents of packed rows, as in `TokenBatch`; without state and pad_mask.

        Returns:
            logits (B, T, V) and the state to continue from; there is none after packed rows.

        Raises:
            ValueError: the input exceeds the limit of the positions, or the state belongs to another model or batch.
        """
        if documents is not None:
            packed = Documents.of(documents)
            x = self.positions.embed(self.embedding(tokens), packed.positions)  # (B, T, D)
            x, _ = self.stack(self.dropout(x), documents=packed)
            return x if features else self.output(x), {}
        start = None if state is None else self._checked(state, tokens)["position"]
        x = self.positions.embed(self.embedding(tokens), real_positions(start, pad_mask, tokens))  # (B, T, D)
        x, layer_state = self.stack(self.dropout(x), state, pad_mask=pad_mask)
        count = count_real(pad_mask, tokens)  # (B,)
        new_state = {"position": count if start is None else start + count} | layer_state
        return x if features else self.output(x), new_state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step: maps tokens (B,) and a state to logits (B, V) and the next state."""
        position = self._checked(state, tokens)["position"]
        x = self.positions.embed(self.embedding(tokens).unsqueeze(1), position.unsqueeze(1)).squeeze(1)  # (B, D)
        x, layer_state = self.stack.step(self.dropout(x), state)
        return self.output(x), {"position": position + 1} | layer_state  # logits (B, V)

    def init_state(self, batch_size: int) -> State:
        """Initial state, before the first token."""
        position = torch.zeros(batch_size, dtype=torch.int64, device=self.embedding.weight.device)
        return {"position": position} | self.stack.init_state(batch_size)

    def state_spec(self) -> StateSpec:
        """Entries of the decoding state."""
        return POSITION, *(entry for entry in self.stack.state_spec() if entry != POSITION)

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's decoding state after `seq_len` tokens."""
        return size_of(self.state_spec(), seq_len)

    def output(self, x: Tensor) -> Tensor:
        """Features (..., D) to logits (..., V)."""
        logits = F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return logits if self.logit_cap is None else self.logit_cap * torch.tanh(logits / self.logit_cap)

    def _checked(self, state: State, tokens: Tensor) -> State:
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        return state
