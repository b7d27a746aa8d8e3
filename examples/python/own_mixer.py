"""A mixer of your own: checked against the laws, fitted, exported, proven, and run from its bundle, in a few seconds.

$ python own_mixer.py bundle
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seqlab import Mixer, State, StateEntry, models, positions
from seqlab.laws import CAUSAL, LIMIT, Subject
from seqlab.nn.scan import Carry, scan_over_time
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export import export_bundle, open_text_model

TEXT = "the quick brown fox jumps over the lazy dog. " * 20


class Decay(Mixer):
    """h_t = a * h_{t-1} + W x_t with a factor a between 0 and 1 for each channel; the output is h_t."""

    def __init__(self, d_model: int, layer: int = 0, *, start: float = 2.0) -> None:
        super().__init__(d_model, layer)
        self.in_proj = nn.Linear(d_model, d_model)
        self.decay = nn.Parameter(torch.full((d_model,), start))

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        state = self.init_state(x.shape[0]) if state is None else state
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if pad_mask is None else pad_mask

        def advance(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
            (h,), (x_t, is_real) = carry, now
            h = torch.where(is_real[:, None], self.decay.sigmoid() * h + x_t, h)  # a pad changes nothing
            return (h,), h

        y, (h,) = scan_over_time(advance, (state["h"],), (self.in_proj(x), real))
        return y, {"h": h}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        h = self.decay.sigmoid() * state["h"] + self.in_proj(x_t)
        return h, {"h": h}

    def state_spec(self) -> tuple[StateEntry, ...]:
        return (StateEntry("h", (self.d_model,)),)


def main(folder: str) -> None:
    torch.manual_seed(0)
    of_vectors = Subject(Decay(16).double(), lambda batch, length: torch.randn(batch, length, 16).double())
    for law in CAUSAL:
        broken = [what for what, error in law(of_vectors, 9) if not error <= LIMIT]
        print(f"{law.__name__}: {', '.join(broken) or 'kept'}")

    tokenizer = CharTokenizer(TEXT)
    rows = torch.tensor(tokenizer.encode(TEXT)).unfold(0, 17, 16)  # (B, T + 1)
    model = models.DecoderLM(
        tokenizer.vocab_size, 16, d_model=32, mixer=Decay, positions=positions.NoPositions, num_layers=1
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    for step in range(1, 61):
        logits, _ = model(rows[:, :-1])  # (B, T, V)
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss:.3f}")

    report = export_bundle(model, tokenizer, folder, seq_len=16)  # written only if it is proven
    print(f"{folder}: {len(report.checks)} checks, all well: {report.ok}")
    print(open_text_model(folder).write("the quick", max_new_tokens=36, temperature=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
