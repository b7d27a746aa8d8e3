"""The encoder-decoder: read a source, then write a target that attends to it.

B batch, S source length, T target length, D d_model, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention import Attention, CrossAttention
from seqlab.mixer import POSITION, Cuts, Mixer, Spec, State, check_state, size_of
from seqlab.models.encoder import Encoder
from seqlab.nn import Block, NoFeedForward, ScaledEmbedding, Stack
from seqlab.nn.embedding import embedding_for
from seqlab.nn.init import init_transformer
from seqlab.nn.padding import count_real, real_positions
from seqlab.nn.stack import layers_of
from seqlab.positions import PositionalEncoding, Sinusoidal


class EncoderDecoder(nn.Module):
    """The Transformer (Vaswani et al. 2017, section 3.1) with any mixers and positions on either side.

    Each layer of the decoder is a block that mixes what was written so far, then one that attends to the source and
    has the feed-forward. Where `mixer` itself looks at the source (Bahdanau's, Luong's), a layer is one block.

    Its state is `position (B,)`, the target tokens read so far, and the entries of the decoder's blocks; those named
    `memory_` are the source, which `begin` reads once.

    Args:
        vocab_size, target_vocab_size: numbers of tokens of the source and of the target.
        max_seq_len: the training length of both; encodings with a limit reach this far.
        encoder: called with vocab_size and max_seq_len.
        num_layers: of the decoder.
        mixer: of the decoder, called with d_model and the layer's index; a list is repeated over the layers.
        cross: called alike, for each layer whose `mixer` does not look at the source.
        positions: of the decoder, called with d_model and max_seq_len.
        block: of the decoder, called with d_model and a mixer.
        embed: of the target, called with target_vocab_size and d_model; None = as of `Encoder`.
        tie_embeddings: "target": the output layer is the target's embedding; "all": the source's embedding too
            (section 3.4), where both have one vocabulary; "none".

    Raises:
        ValueError: a mixer that is not causal, a `cross` that does not look at the source, or one embedding for
            vocabularies of two sizes or for features.
    """

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
                'tie_embeddings "all" needs a source of tokens, this encoder embeds features; use "target"'
            )
        self.positions = told
        mixers: list[Mixer] = []
        for k, make in enumerate(layers_of(mixer, num_layers)):
            own = make(d_model, k)
            mixers += [own] if own.needs_memory else [own, cross(d_model, k)]
            if not mixers[-1].needs_memory:
                raise ValueError(f"cross is {type(mixers[-1]).__name__}, which looks at no source; use CrossAttention")
        bare: Callable[..., Block] = block  # with an option of its own, which `block` has as it is configured

        def half(width: int, made: Mixer) -> Block:
            return block(width, made) if made.needs_memory else bare(width, made, ffn=NoFeedForward)

        self.stack = Stack(mixers, positions=self.positions, block=half, causal=True)
        self.head = nn.Linear(d_model, target_vocab_size, bias=False) if tie_embeddings == "none" else None
        self.max_seq_len = self.positions.max_seq_len
        self.first_call = self.stack.first_call
        init_transformer(self)

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> State:
        """Reads source (B, S) int64, source_mask (B, S) bool, True = a real token: the state before the first token.

        Raises:
            ValueError: the source is longer than the positions reach.
        """
        memory = self.encoder(source, pad_mask=source_mask)
        position = source.new_zeros(source.shape[0])
        return {"position": position} | self.stack.init_state(source.shape[0], memory, source_mask)

    def forward(
        self, tokens: Tensor, state: State, *, pad_mask: Tensor | None = None, features: bool = False
    ) -> tuple[Tensor, State]:
        """Scores of the next token after each of tokens (B, T), which begin with bos: logits (B, T, V), and the state.

        Args:
            state: of `begin`, or where an earlier call ended.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.
            features: give what `output` makes logits of, (B, T, D), in their place.

        Raises:
            ValueError: the target is longer than the positions reach, or the state is another model's or batch's.
        """
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        x = self._embed(tokens, real_positions(state["position"], pad_mask, tokens))
        x, layer_state = self.stack(x, state, pad_mask=pad_mask)
        new_state = {"position": state["position"] + count_real(pad_mask, tokens)} | layer_state
        return x if features else self.output(x), new_state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One position: tokens (B,) and a state give logits (B, V) and the next state."""
        check_state(state, self.state_spec(), tokens.shape[0], "this model")
        x = self._embed(tokens.unsqueeze(1), state["position"].unsqueeze(1)).squeeze(1)
        x, layer_state = self.stack.step(x, state)
        return self.output(x), {"position": state["position"] + 1} | layer_state

    def state_spec(self) -> Spec:
        """Entries of the decoding state, including what was read of the source."""
        return POSITION, *(entry for entry in self.stack.state_spec() if entry != POSITION)

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's decoding state after `seq_len` tokens, without the source."""
        return size_of(self.state_spec(), seq_len)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        y: Tensor = self.encoder.dropout(self.positions.embed(self.embedding(tokens), positions))
        return y

    def output(self, x: Tensor) -> Tensor:
        """Features (..., D) to logits (..., V)."""
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
