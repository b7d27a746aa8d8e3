"""Cache size of latent attention."""

from __future__ import annotations

from seqlab.attention import Attention, LatentAttention


def test_the_cache_of_the_papers_size() -> None:
    """Table 1 of DeepSeek-V2: (d_c + d_h^R) a token and layer, 4.5 d_h, against 2 n_h d_h."""
    latent = LatentAttention(512, num_heads=16)
    assert latent.state_size(100) == 100 * 4.5 * 32
    assert Attention(512, num_heads=16).state_size(100) == 100 * 2 * 16 * 32
