"""Scores of a run on each example of its test split, from what `seqlab predict` wrote of it.

N examples, K numbers of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEANS = {"nats": ("nats", False), "right": ("of accuracy", True), "squared_error": ("of squared error", False)}
"""Scores of an example, or of each place in it: the unit of the mean, and whether more of it is better."""
ORDERS = 4
"""Longest n-grams of BLEU, in words."""


@dataclass(frozen=True)
class Scores:
    """The score of a run, in numbers that add up over examples.

    Attributes:
        unit: of the score.
        more: whether more of it is better.
        parts: (N, K).
        total: the score of sums of `parts`, (..., K) to (...).
        examples: what each example is, the same for every run of the same data.
    """

    unit: str
    more: bool
    parts: NDArray[Any]
    total: Callable[[NDArray[Any]], NDArray[Any]]
    examples: list[Any]


def read_scores(path: Path, name: str, tokenize: str) -> Scores:
    """The scores of predictions: the mean of one of `MEANS`, or BLEU where they have a "text" and its "references".

    Args:
        name: of the run, for a message.
        tokenize: sacrebleu's tokenizer for BLEU.

    Raises:
        ValueError: they have none of these, there are fewer than two, one is no number, or the file is damaged.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            said = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not what seqlab predicts: {error}; delete it to have it made again") from error
    if len(said) < 2:
        raise ValueError(f"{name} has predictions of {len(said)} rows of its test split; a comparison needs two")
    rows = [one.get("row", place) for place, one in enumerate(said)]  # a data module may not know them
    for field, (unit, more) in MEANS.items():
        if field in said[0]:
            values = [np.atleast_1d(np.asarray(one[field], dtype=float)) for one in said]
            parts = np.array([(its.sum(), its.size) for its in values])
            if not np.isfinite(parts).all():
                raise ValueError(f"{name} has {field} that are no numbers: it has diverged, and is compared with none")
            return Scores(unit, more, parts, _quotient, [*zip(rows, map(len, values), strict=True)])
    if "references" in said[0]:
        references = [one["references"] for one in said]
        parts = bleu_parts([one["text"] for one in said], references, tokenize)
        return Scores("BLEU", True, parts, bleu_of, [*zip(rows, references, strict=True)])
    raise ValueError(
        f"{path} says {', '.join(said[0])} of a row; {name} can be compared by {', '.join(MEANS)} or references. "
        "A file of an older seqlab is made again where it is deleted"
    )


def bleu_parts(texts: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = "13a") -> NDArray[Any]:
    """Matching n-grams and all n-grams of each text by order, its length and its reference's: (N, 10)."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    metric = BLEU(tokenize=tokenize, force=True)
    found = [metric.corpus_score([text], [[one] for one in its]) for text, its in zip(texts, references, strict=True)]
    return np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in found])


def bleu_of(sums: NDArray[Any]) -> NDArray[Any]:
    """sacrebleu's BLEU of summed `bleu_parts`, (..., 10) to (...)."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    def score(its: NDArray[Any]) -> float:
        counts, totals = its[:ORDERS].tolist(), its[ORDERS : 2 * ORDERS].tolist()
        return BLEU.compute_bleu(counts, totals, int(its[-2]), int(its[-1]), smooth_method="exp").score

    return np.apply_along_axis(score, -1, sums)


def _quotient(sums: NDArray[Any]) -> NDArray[Any]:
    quotient: NDArray[Any] = sums[..., 0] / sums[..., 1]
    return quotient
