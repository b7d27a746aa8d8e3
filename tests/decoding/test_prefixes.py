"""Loss per word after true, corrupted and own prefixes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from seqlab.batch import PairBatch
from seqlab.decoding.prefixes import forced_nats, free_nats
from seqlab.models import RNNSeq2Seq


def test_own_words_are_a_prefix_like_any_other() -> None:
    model = RNNSeq2Seq(9, 9, 8, d_model=16).eval()
    source, targets = torch.randint(3, 9, (2, 4, 6))
    tokens = F.pad(targets[:, :-1], (1, 0), value=1)
    batch = PairBatch(source, torch.ones_like(source, dtype=torch.bool), tokens, targets, torch.arange(4))
    with torch.no_grad():
        logits, _ = model(batch.tokens, model.begin(batch.source, batch.source_mask))
    expected = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").double()
    torch.testing.assert_close(forced_nats(model, batch), expected)

    nats, written = free_nats(model, batch)
    own = F.pad(written[:, :-1], (1, 0), value=1)
    torch.testing.assert_close(nats, forced_nats(model, batch, own))
    assert not torch.allclose(nats, expected)
