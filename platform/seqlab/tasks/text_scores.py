"""Scores of generated text against references, by sacrebleu (Post 2018), with its signatures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from seqlab.parallel.ranks import of_all_ranks
from seqlab.tasks.metrics import RANGES, Buckets


class Written(NamedTuple):
    """Text generated for a source, and the length of the source in tokens, eos included."""

    text: str
    source_len: int


class TextScores(Metric):
    """BLEU, overall and by source length, chrF and exact match of the texts generated for the rows of a split. Texts
    are gathered from all devices as Python objects.

    Args:
        references: reference texts, one or more per row of the split.
        tokenize: sacrebleu's tokenizer for BLEU.
        buckets: buckets of source lengths.

    Attributes:
        signatures: sacrebleu signatures of BLEU and chrF; empty before `compute`.
    """

    full_state_update = False

    def __init__(self, references: Sequence[Sequence[str]], tokenize: str = "13a", buckets: Buckets = RANGES) -> None:
        super().__init__()
        self.references = references
        self.tokenize = tokenize
        self.buckets = buckets
        self.signatures: dict[str, str] = {}
        self._written: dict[int, Written] = {}

    def update(self, rows: Iterable[int], texts: Iterable[str], source_lens: Iterable[int]) -> None:
        """Adds the text of each row of the split; negative rows are ignored."""
        found = zip(rows, map(Written, texts, source_lens), strict=True)
        self._written |= {row: written for row, written in found if row >= 0}

    def compute(self) -> dict[str, Tensor]:
        written = {row: text for some in of_all_ranks(self._written) for row, text in some.items()}
        scores, self.signatures = self._score(written)
        rows = sorted(written)
        places = self.buckets.places(torch.tensor([written[row].source_len for row in rows])).tolist()
        for place in sorted(set(places)):
            of_length = {row: written[row] for row, its in zip(rows, places, strict=True) if its == place}
            scores[f"bleu_by_length/{self.buckets.names[place]}"] = self._score(of_length)[0]["bleu"]
        return {name: torch.tensor(value, dtype=torch.float32) for name, value in scores.items()}

    def reset(self) -> None:
        super().reset()
        self._written = {}

    def _score(self, written: dict[int, Written]) -> tuple[dict[str, float], dict[str, str]]:
        rows = sorted(written)
        texts = [written[row].text for row in rows]
        return score_texts(texts, [self.references[row] for row in rows], tokenize=self.tokenize)


def score_texts(
    written: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a"
) -> tuple[dict[str, float], dict[str, str]]:
    """Corpus-level scores of generated texts.

    Args:
        written: generated texts, one per row.
        references: reference texts, one or more per row.
        tokenize: sacrebleu's tokenizer for BLEU.

    Returns:
        "bleu" and "chrf", from 0 to 100, and "exact_match", the share of rows equal to one of their references; and
        the signatures of BLEU and chrF.
    """
    # Imported here because it is slow to import and other tasks do not need it.
    from sacrebleu.metrics import BLEU, CHRF  # type: ignore[attr-defined]

    most = max(map(len, references))
    # sacrebleu takes the first reference of every row, then the second of every row, and so on.
    streams = [[row[k] if k < len(row) else None for row in references] for k in range(most)]
    scores, signatures = {}, {}
    for name, metric in (("bleu", BLEU(tokenize=tokenize, force=True)), ("chrf", CHRF())):
        scores[name] = metric.corpus_score(written, streams).score  # type: ignore[arg-type]
        signatures[name] = str(metric.get_signature())
    exact = [text in right for text, right in zip(written, references, strict=True)]
    return scores | {"exact_match": sum(exact) / len(exact)}, signatures
