"""Checks answers to the worksheet. Source: the exercises of L3."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.positions import Sinusoidal


def check(name: str, answer: Any) -> bool | None:
    """Prints feedback on an answer.

    Returns:
        True if it is right; None where something is still blank.

    Raises:
        ValueError: there is no such exercise.
    """
    if name not in EXERCISES:
        raise ValueError(f"there is no exercise {name!r}; accepted: {', '.join(EXERCISES)}")
    test, hint = EXERCISES[name]
    try:
        right = None if _blank(answer) else bool(test(answer))
    except BlankError:
        right = None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        print(f"{name}: this could not be tried: {error}. {hint}")
        return False
    print(f"{name}: " + ("fill in the blank." if right is None else "right." if right else f"not yet. {hint}"))
    return right


class BlankError(Exception):
    """A function in the answer returns a blank."""


def _blank(answer: Any) -> bool:
    if isinstance(answer, Mapping):
        return any(map(_blank, answer.values()))
    return answer is ... or (isinstance(answer, list | tuple | set) and any(map(_blank, answer)))


def _given(answer: Any) -> Any:
    """Returns what a function gave; raises if it is a blank."""
    if answer is ...:
        raise BlankError
    return answer


def _equals(*pairs: tuple[Any, float]) -> Callable[[Callable[[Any], Any]], bool]:
    """A test of a function by arguments and values."""
    return lambda function: all(math.isclose(_given(function(given)), value) for given, value in pairs)


def _rows(matrix: Any, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights (size, size).

    Raises:
        ValueError: it is no such matrix, or a row does not sum to 1.
    """
    weights = np.asarray(matrix, dtype=float)
    if weights.shape != (size, size) or (weights < 0).any() or not np.allclose(weights.sum(1), 1):
        raise ValueError(f"it must be {size} by {size}, no number below 0, each row's sum 1")
    return weights


def _relevance(answer: Any) -> bool:
    weights = np.asarray(answer, dtype=float)
    return (
        weights.shape == (8,) and bool((weights >= 0).all()) and np.isclose(weights.sum(), 1) and weights.argmax() == 1
    )


def _attention(answer: Callable[..., Any]) -> bool:
    """Tests an answer against our block with identity projections."""
    block = Attention(4, num_heads=1, pattern=Bidirectional, bias=False).double()
    with torch.no_grad():
        for projection in (block.q_proj, block.k_proj, block.v_proj, block.out_proj):
            projection.weight.copy_(torch.eye(4))
        x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        ours = block(x.unsqueeze(0))[0][0].numpy()
    return bool(np.allclose(_given(answer(x.numpy(), x.numpy(), x.numpy())), ours))


def _sines(answer: Any) -> bool:
    return bool(np.allclose(answer, Sinusoidal(4, 0).encode(torch.tensor([[2]]), torch.float64)[0, 0], atol=5e-3))


def _two_heads(answer: Any) -> bool:
    first, second = (_rows(matrix, 5) for matrix in answer)
    return bool((first.argmax(1) == [0, 0, 1, 2, 3]).all() and (second.argmax(1)[[1, 4]] == [0, 2]).all())


EXERCISES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "dependency": (lambda word: word.strip().lower() == "animal", "Who can be tired, and is named before?"),
    "connections": (_equals((1, 1), (12, 144)), "Draw the table: a row and a column for each word."),
    "relevance": (_relevance, "Eight numbers, none below 0, their sum 1, the second the largest."),
    "roles": (
        lambda roles: roles == {"looks for": "query", "is found by": "key", "hands over": "value"},
        "A look-up: the query is compared with keys, and what comes out are values.",
    ),
    "divisor": (_equals((1, 1.0), (64, 8.0)), "A sum of d_k products of numbers with variance 1 has which deviation?"),
    "heads": (lambda answer: tuple(answer) == (8, 512), "The heads share the channels among them."),
    "encodings": (lambda names: set(names) == {"sines", "rotary"}, "A table has as many rows as it was made with."),
    "sines": (_sines, "Two angles: 2 and 0.02. Mind the sign of the cosine."),
    "layer": (
        lambda parts: list(parts) == ["attention", "add and norm", "feed-forward", "add and norm"],
        "Words exchange first; each is worked on alone after that.",
    ),
    "sizes": (_equals((1, 12), (12_288, 1_811_939_328)), "Four square matrices of attention, and two of 4 d by d."),
    "steps": (
        lambda steps: steps == {"recurrent": 100, "attention": 1},
        "Which of them needs the word before to be finished?",
    ),
    "attention": (_attention, "Scores are q @ k.T divided; the softmax goes along each row."),
    "treats": (lambda matrix: _rows(matrix, 3)[2].argmax() == 1, "The third row is what treats looks at."),
    "two heads": (_two_heads, "Row i is what word i looks at."),
}
"""Test of the answer, and hint for a wrong one, by name."""
