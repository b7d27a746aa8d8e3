"""The encoder: embed a sequence and mix it bidirectionally.

B batch, T length, F features, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from seqlab.mixer import Cuts, Mixer
from seqlab.nn import Block, Norm, ScaledEmbedding, Stack
from seqlab.nn.embedding import embedding_for
from seqlab.nn.init import init_transformer
from seqlab.nn.padding import real_positions
from seqlab.nn.stack import layers_of
from seqlab.positions import PositionalEncoding, Sinusoidal


class Encoder(nn.Module):
    """Encoder of tokens or features to one vector each, over any mixer and any positional encoding (Vaswani et al.
    2017, section 3.1; Dosovitskiy et al. 2021, "ViT", equations 1 to 3).

    Args:
        vocab_size: vocabulary size, or number of features F if `embed` takes features.
        max_seq_len: training sequence length in tokens; the limit of encodings that have one.
        mixer: factory called with d_model and the layer's index; a list is repeated over the layers. It need not be
            causal.
        positions: factory of the positional encoding, called with d_model and max_seq_len.
        block: factory of the residual block, called with d_model and the layer's mixer.
        embed: factory called with vocab_size and d_model: `ScaledEmbedding`, `nn.Embedding` or `TypedEmbedding` for
            tokens, `nn.Linear` for features; None = `nn.Embedding` for `Learned` positions, as in BERT, else
            `ScaledEmbedding`.
        embed_norm: factory called with d_model; the norm follows the positional encoding. None = no norm.
        dropout: dropout probability on the embeddings, in training.
    """

    cuts: ClassVar[Cuts] = {"embedding": "vocabulary"}

    def __init__(
        self,
        vocab_size: int,
        max_seq_len: int,
        *,
        mixer: list[Callable[[int, int], Mixer]] | Callable[[int, int], Mixer],
        d_model: int = 256,
        num_layers: int = 3,
        positions: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        block: Callable[[int, Mixer], Block] = Block,
        embed: Callable[[int, int], nn.Module] | None = None,
        embed_norm: Callable[[int], Norm] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        told = positions(d_model, max_seq_len)
        embed = embed or embedding_for(told, ScaledEmbedding)
        self.embedding = embed(vocab_size, d_model)
        self.positions = told
        self.embed_norm = nn.Identity() if embed_norm is None else embed_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        mixers = [make(d_model, k) for k, make in enumerate(layers_of(mixer, num_layers))]
        self.stack = Stack(mixers, positions=self.positions, block=block, causal=False)
        self.max_seq_len = self.positions.max_seq_len
        init_transformer(self)

    def forward(self, inputs: Tensor, *, pad_mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Encodes int64 tokens (B, T) or features (B, T, F) with pad_mask (B, T) bool, True = a real token: (B, T, D).

        Args:
            token_types: (B, T) int64, for an embedding that takes them.

        Raises:
            ValueError: the input exceeds the limit of the positions, or is of the wrong kind, tokens or features.
        """
        return self.mix(self.embed(inputs, token_types), pad_mask=pad_mask)

    def embed(self, inputs: Tensor, token_types: Tensor | None = None) -> Tensor:
        """Embeds inputs as in `forward` into vectors (B, T, D), without positions."""
        check_inputs(self.embedding, inputs)
        x: Tensor = self.embedding(inputs) if token_types is None else self.embedding(inputs, token_types)  # (B, T, D)
        return x

    def mix(self, x: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """Adds positions to vectors (B, T, D) and mixes them: (B, T, D)."""
        x = self.embed_norm(self.positions.embed(x, real_positions(None, pad_mask, x)))
        y: Tensor = self.stack(self.dropout(x), pad_mask=pad_mask)[0]
        return y


def check_inputs(embedding: nn.Module, inputs: Tensor) -> None:
    """Checks that inputs are tokens or features, as the embedding expects.

    Raises:
        ValueError: the inputs are of the wrong kind.
    """
    takes_tokens = isinstance(embedding, nn.Embedding)
    if inputs.is_floating_point() == takes_tokens:
        given, fitting = ("features", "torch.nn.Linear") if takes_tokens else ("tokens", "torch.nn.Embedding")
        raise ValueError(
            f"the inputs are {given}, which {type(embedding).__name__} does not embed; set the encoder's embed to "
            f"{fitting}"
        )
