"""The encoder-decoder: read a source, then write a target that attends to it.

B batch, S source length, T target length, D d_model, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention import Attention, CrossAttention
from seqlab.mixer import POSITION, Cuts, Mixer, State, StateSpec, check_state, size_of
from seqlab.models.encoder import Encoder
from seqlab.models.kind import Kind
from seqlab.nn import Block, NoFeedForward, ScaledEmbedding, Stack
from seqlab.nn.embedding import embedding_for
from seqlab.nn.init import init_transformer
from seqlab.nn.padding import count_real, real_positions
from seqlab.nn.stack import layers_of
from seqlab.positions import PositionalEncoding, Sinusoidal


class EncoderDecoder(nn.Module):
    """Encoder-decoder Transformer (Vaswani et al. 2017, section 3.1) with any mixers and positions on either side.

    Each decoder layer is a block that mixes the target tokens, then a block that attends to the source and has the
    feed-forward. If `mixer` itself attends to the source (Bahdanau, Luong), a layer is a single block.

    The state is `position (B,)`, the number of target tokens read so far, and the entries of the decoder's blocks.
    Entries with `memory_` in their names are derived from the source, which `begin` reads once.

    Args:
        vocab_size, target_vocab_size: vocabulary sizes of the source and of the target.
        max_seq_len: training length of source and target in tokens; the limit of encodings that have one.
        encoder: factory of the encoder, called with vocab_size and max_seq_len.
        num_layers: number of decoder layers.
        mixer: factory of decoder mixers, called with d_model and the layer's index; a list is repeated over the layers.
        cross: likewise, for each layer whose `mixer` does not attend to the source.
        positions: factory of the decoder's positional encoding, called with d_model and max_seq_len.
        block: factory of the decoder's blocks, called with d_model and a mixer.
        embed: factory of the target embedding, called with target_vocab_size and d_model; None = as in `Encoder`.
        tie_embeddings: "target" ties the output layer to the target embedding; "all" ties the source embedding too
            (section 3.4) and needs one vocabulary; "none" ties nothing.

    Raises:
        ValueError: a mixer is not causal, `cross` does not attend to the source, or tied embeddings have different
            vocabulary sizes or embed features.
    """

    kind: ClassVar = Kind("sources", embedded_by="encoder.embedding")
    cuts: ClassVar[Cuts] = {"embedding": "vocabulary", "head": "vocabulary"}

    def __init__(
        self,
        vocab_size: int,
        target_vocab_size: int,
        max_seq_len: int,
        *,
        encoder: Callable[[int, int], Encoder],
        num_layers: int = 3,
        mixer: list[Callable[[int, int], Mixer]] | Callable[[int, int], Mixer] = Attention,
        cross: Callable[[int, int], Mixer] = CrossAttention,
        positions: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        block: Callable[[int, Mixer], Block] = Block,
        embed: Callable[[int, int], nn.Embedding] | None = None,
        tie_embeddings: Literal["none", "target", "all"] = "target",
    ) -> None:
        super().__init__()
        if tie_embeddings == "all" and vocab_size != target_vocab_size:
            raise ValueError(
                f'tie_embeddings "all" needs one vocabulary, but the source has {vocab_size} tokens and the target '
                f'{target_vocab_size}; use a joint tokenizer, or tie_embeddings "target"'
            )
        self.vocab_size = target_vocab_size
        self.encoder = encoder(vocab_size, max_seq_len)
        d_model = self.encoder.d_model
        told = positions(d_model, max_seq_len)
        if tie_embeddings != "all":
            embed = embed or embedding_for(told, ScaledEmbedding)
            self.embedding: nn.Embedding = embed(target_vocab_size, d_model)
        elif isinstance(self.encoder.embedding, nn.Embedding):
            self.embedding = self.encoder.embedding
        else:
            raise ValueError(
                'tie_embeddings "all" needs a source of tokens, but this encoder embeds features; use "target"'
            )
        self.positions = told
        mixers: list[Mixer] = []
        for k, make in enumerate(layers_of(mixer, num_layers)):
            own = make(d_model, k)
            mixers += [own] if own.needs_memory else [own, cross(d_model, k)]
            if not mixers[-1].needs_memory:
                raise ValueError(
                    f"cross is {type(mixers[-1]).__name__}, which does not attend to the source; use CrossAttention"
                )
        bare: Callable[..., Block] = block  # a configured `block` also accepts `ffn`

        def half(width: int, made: Mixer) -> Block:
            return block(width, made) if made.needs_memory else bare(width, made, ffn=NoFeedForward)

        self.stack = Stack(mixers, positions=self.positions, block=half, causal=True)
        self.head = nn.Linear(d_model, target_vocab_size, bias=False) if tie_embeddings == "none" else None
        self.max_seq_len = self.positions.max_seq_len
        self.first_call = self.stack.first_call
        init_transformer(self)

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> State:
        """Encodes source (B, S) int64 with source_mask (B, S) bool, True = a real token; returns the initial state.

        Raises:
            ValueError: the source exceeds the limit of the positions.
        """
        memory = self.encoder(source, pad_mask=source_mask)  # (B, S, D)
        position = source.new_zeros(source.shape[0])
        return {"position": position} | self.stack.init_state(source.shape[0], memory, source_mask)

    def forward(
        self, tokens: Tensor, state: State, *, pad_mask: Tensor | None = None, features: bool = False
    ) -> tuple[Tensor, State]:
        """Next-token logits (B, T, V) after each of tokens (B, T), which start with bos, and the new state.

        Args:
            state: state from `begin` or an earlier call.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.
            features: whether to return the inputs of `output` (B, T, D) instead of logits.

        Raises:
            ValueError: the target exceeds the limit of the positions, or the state belongs to another model or batch.
        """
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        x = self._embed(tokens, real_positions(state["position"], pad_mask, tokens))  # (B, T, D)
        x, layer_state = self.stack(x, state, pad_mask=pad_mask)
        new_state = {"position": state["position"] + count_real(pad_mask, tokens)} | layer_state
        return x if features else self.output(x), new_state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step: maps tokens (B,) and a state to logits (B, V) and the next state."""
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        x = self._embed(tokens.unsqueeze(1), state["position"].unsqueeze(1)).squeeze(1)  # (B, D)
        x, layer_state = self.stack.step(x, state)
        return self.output(x), {"position": state["position"] + 1} | layer_state  # logits (B, V)

    def state_spec(self) -> StateSpec:
        """Entries of the decoding state, including those derived from the source."""
        return POSITION, *(entry for entry in self.stack.state_spec() if entry != POSITION)

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's decoding state after `seq_len` tokens, excluding the source entries."""
        return size_of(self.state_spec(), seq_len)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        y: Tensor = self.encoder.dropout(self.positions.embed(self.embedding(tokens), positions))
        return y

    def output(self, x: Tensor) -> Tensor:
        """Features (..., D) to logits (..., V)."""
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
