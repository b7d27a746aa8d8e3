"""The residual block: a mixer over time, then a feed-forward over channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from seqlab.mixer import Mixer, State
from seqlab.nn.feed_forward import GELU, FeedForward, NoFeedForward
from seqlab.nn.norm import LayerNorm, Norm
from seqlab.nn.packing import Documents, each_alone
from seqlab.nn.residual import Residual, StochasticDepth, Sum


class Block(nn.Module):
    """Two branches f, the mixer and then the feed-forward, each joined to the residual stream x with its norms.

    "pre": x + f(norm(x)) (Xiong et al. 2020). "post": norm(x + f(x)) (Vaswani et al. 2017). "sandwich": x +
    norm(f(norm(x))) (Ding et al. 2021, "CogView"). "branch": x + norm(f(x)) (OLMo 2, 2024). "none": x + f(x).

    Args:
        norm: factory called with d_model for `mixer_norm`, `ffn_norm`, or with "branch" for the norms after both
            branches, or with "sandwich" for all four.
        norm_place: placement of the norms, as above.
        ffn: factory of the feed-forward, called with d_model; `NoFeedForward` omits the branch.
        parallel: whether both branches read the block's input and are summed, x + mixer(norm(x)) + ffn(norm(x)) (Wang &
            Komatsuzaki 2021, "GPT-J"; PaLM).
        shared_norm: whether parallel branches have one norm, or each its own (Black et al. 2022, "GPT-NeoX").
        residual: factory of the residual connection, called with d_model once per branch.
        dropout: dropout probability on the outputs of both branches, in training.
        stochastic_depth: probability of dropping a branch for a row, in training.

    Raises:
        ValueError: parallel is combined with norms after the branches.
    """

    def __init__(
        self,
        d_model: int,
        mixer: Mixer,
        *,
        norm: Callable[[int], Norm] = LayerNorm,
        norm_place: Literal["pre", "post", "sandwich", "branch", "none"] = "pre",
        ffn: Callable[[int], FeedForward] = GELU,
        parallel: bool = False,
        shared_norm: bool = True,
        residual: Callable[[int], Residual] = Sum,
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        if parallel and norm_place not in ("pre", "none"):
            raise ValueError(f'parallel branches need norm_place "pre" or "none", got "{norm_place}"')
        made = norm if norm_place not in ("branch", "none") else lambda _: nn.Identity()
        out = norm if norm_place in ("sandwich", "branch") else lambda _: nn.Identity()
        self.norm_place = norm_place
        self.parallel = parallel
        self.shared_norm = parallel and shared_norm
        self.mixer_norm, self.mixer_out_norm = made(d_model), out(d_model)
        self.mixer = mixer
        self.mixer_residual = residual(d_model)
        feed_forward = ffn(d_model)
        self.has_ffn = not isinstance(feed_forward, NoFeedForward)
        if self.has_ffn:
            self.ffn_norm = nn.Identity() if self.shared_norm else made(d_model)
            self.ffn, self.ffn_out_norm = feed_forward, out(d_model)
            self.ffn_residual = residual(d_model)
        self.drop = nn.Sequential(nn.Dropout(dropout), StochasticDepth(stochastic_depth))
        self._norm = norm

    def final_norm(self) -> nn.Module:
        """Norm after the last block if blocks do not normalise the stream itself; otherwise the identity."""
        return self._norm(self.mixer.d_model) if self.norm_place not in ("post", "none") else nn.Identity()

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        pad_mask: Tensor | None = None,
        documents: Documents | None = None,
    ) -> tuple[Tensor, State]:
        """Maps x (B, T, D) to (B, T, D) and the mixer's new state; arguments are as in `Mixer.forward`.

        Args:
            documents: documents of packed rows, each of which the mixer reads alone and from its initial state; there
                is no new state then.
        """
        entered = self._before(self.mixer_norm, x)
        if documents is not None:
            return self._finish(x, entered, each_alone(self.mixer, entered, documents)), {}
        mixed, new_state = self.mixer(entered, state, pad_mask=pad_mask)
        return self._finish(x, entered, mixed), new_state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step for x_t (B, D)."""
        entered = self._before(self.mixer_norm, x_t)
        mixed, new_state = self.mixer.step(entered, state)
        return self._finish(x_t, entered, mixed), new_state

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """Initial state of the mixer."""
        return self.mixer.init_state(batch_size, memory, memory_mask)

    def _finish(self, x: Tensor, entered: Tensor, mixed: Tensor) -> Tensor:
        joined = self._after(self.mixer_norm, self.mixer_residual(x, self.drop(self.mixer_out_norm(mixed))))
        if not self.has_ffn:
            return joined
        reads = x if self.parallel else joined
        y = self.ffn(entered if self.shared_norm else self._before(self.ffn_norm, reads))
        return self._after(self.ffn_norm, self.ffn_residual(joined, self.drop(self.ffn_out_norm(y))))

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = x if self.norm_place == "post" else norm(x)
        return y

    def _after(self, norm: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = norm(x) if self.norm_place == "post" else x
        return y
