"""Source texts in, target texts out.

B texts, S source length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from seqlab.decoding.beam import beam_search
from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.text import TextTokenizer
from seqlab.decoding.torch_model import TorchDecoder


def translate(
    model: Any,
    source_tokenizer: TextTokenizer,
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    *,
    max_new_tokens: int,
    beams: int = 1,
    length_penalty: float = 1.0,
    repetition: Repetition = FREE,
    prefix: str = "",
) -> list[list[str]]:
    """What a model such as `EncoderDecoder` writes of each text, the best first: at most as many texts as beams.

    Args:
        source_tokenizer, tokenizer: of the source and of the target.
        max_new_tokens: the most tokens of a target.
        beams, length_penalty, repetition: as of `beam_search`; one beam is greedy.
        prefix: each target begins with it.

    Raises:
        ValueError: as `beam_search` does, or a text is longer than the model reads.
    """
    sources = [torch.tensor([*source_tokenizer.encode(text), source_tokenizer.eos_id]) for text in texts]
    device = next(model.parameters()).device
    padded = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True).to(device)
    mask = torch.arange(padded.shape[1]) < torch.tensor([len(source) for source in sources]).unsqueeze(1)
    with torch.inference_mode():
        state = model.eval().begin(padded, mask.to(device))
    forced = tokenizer.encode(prefix) if prefix else []
    found = beam_search(
        TorchDecoder(model, state),
        [[tokenizer.bos_id, *forced]] * len(texts),
        beams=beams,
        max_new_tokens=max_new_tokens,
        stop_ids=(tokenizer.eos_id,),
        length_penalty=length_penalty,
        repetition=repetition,
    )
    return [[tokenizer.decode([*forced, *hypothesis.tokens]) for hypothesis in hypotheses] for hypotheses in found]
