"""Per-example scores of a run on its test split, from a prediction file of `seqlab predict`.

N examples, K numbers per example.
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
"""Fields with scores per example or per position: the unit of their mean, and whether higher is better."""
ORDERS = 4
"""Maximum n-gram order of BLEU."""


@dataclass(frozen=True)
class Scores:
    """Score of a run, in sufficient statistics that add up over examples.

    Attributes:
        unit: unit of the score.
        more: whether a higher score is better.
        parts: statistics of each example, (N, K).
        total: maps sums of `parts`, (..., K), to scores, (...).
        examples: identity of each example; equal for all runs on the same data.
    """

    unit: str
    more: bool
    parts: NDArray[Any]
    total: Callable[[NDArray[Any]], NDArray[Any]]
    examples: list[Any]


def read_scores(path: Path, name: str, tokenize: str) -> Scores:
    """Reads the scores of predictions: the mean of a field in `MEANS`, or BLEU of "text" against "references".

    Args:
        name: name of the run, for error messages.
        tokenize: sacrebleu's tokenizer for BLEU.

    Raises:
        ValueError: no field can be scored, there are fewer than two rows, a score is not finite, or the file is
            damaged.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            said = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a prediction file of seqlab: {error}; delete it to make it again") from error
    if len(said) < 2:
        raise ValueError(f"{name} has predictions of {len(said)} rows of its test split; a comparison needs two")
    rows = [one.get("row", place) for place, one in enumerate(said)]  # a data module may not know it
    for field, (unit, more) in MEANS.items():
        if field in said[0]:
            values = [np.atleast_1d(np.asarray(one[field], dtype=float)) for one in said]
            parts = np.array([(its.sum(), its.size) for its in values])
            if not np.isfinite(parts).all():
                raise ValueError(f"{name} has {field} that are not numbers: it has diverged and cannot be compared")
            return Scores(unit, more, parts, _quotient, [*zip(rows, map(len, values), strict=True)])
    if "references" in said[0]:
        references = [one["references"] for one in said]
        parts = bleu_parts([one["text"] for one in said], references, tokenize)
        return Scores("BLEU", True, parts, bleu_of, [*zip(rows, references, strict=True)])
    raise ValueError(
        f"{path} has {', '.join(said[0])} for a row; {name} can be compared by {', '.join(MEANS)} or "
        "references; delete a file of an older seqlab to make it again"
    )


def bleu_parts(texts: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = "13a") -> NDArray[Any]:
    """BLEU statistics of each text, (N, 10): matching and total n-grams by order, its length, reference length."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    metric = BLEU(tokenize=tokenize, force=True)
    found = [metric.corpus_score([text], [[one] for one in its]) for text, its in zip(texts, references, strict=True)]
    return np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in found])


def bleu_of(sums: NDArray[Any]) -> NDArray[Any]:
    """sacrebleu's BLEU from summed `bleu_parts`, (..., 10) to (...)."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    def score(its: NDArray[Any]) -> float:
        counts, totals = its[:ORDERS].tolist(), its[ORDERS : 2 * ORDERS].tolist()
        return BLEU.compute_bleu(counts, totals, int(its[-2]), int(its[-1]), smooth_method="exp").score

    return np.apply_along_axis(score, -1, sums)


def _quotient(sums: NDArray[Any]) -> NDArray[Any]:
    quotient: NDArray[Any] = sums[..., 0] / sums[..., 1]
    return quotient
