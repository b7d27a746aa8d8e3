"""Glossary for readers of the studies' pages."""

from __future__ import annotations

import re

from seqlab.study.rules import Verdict

MEANING = {
    Verdict.SUPPORTED: "it is as the claim says",
    Verdict.REFUTED: "it is not as the claim says",
    Verdict.ABOUT: "it lies in the margin between what would support the claim and what would refute it",
    Verdict.DEPENDS: "its cases differ: not all are as the claim says",
    Verdict.INCONCLUSIVE: "the numbers do not decide it in every case",
    Verdict.INVALID: "a control came out wrong, so that the numbers tell nothing",
    Verdict.NOT_MEASURED: "no model learned the task, or all stand at a floor or a ceiling, where nothing can differ",
    Verdict.NOT_TESTABLE: "something that it needs is missing",
}
"""Meanings of the verdicts."""
TOO_SMALL = ", which shows that the study runs and decides nothing"
"""Addition to a verdict of scale smoke on a page."""
WORDS = {
    "nats": "of loss: the natural logarithm of 1 over the probability of what came. 0 is certain; less is better.",
    "BLEU": "how near a translation is to the true one, from 0 to 100.",
    "FLOPs": "additions and multiplications of numbers.",
    "d_k": "how many numbers a query or a key of a head has.",
    "NoPositions": "a model that is told no positions.",
    "Sinusoidal": "positions as sines and cosines, which are added to the words' vectors.",
    "Learned": "positions as vectors that are learned and added to the words' vectors.",
    "RoPE": "queries and keys are turned by an angle that grows with their position.",
    "ALiBi": "attention is lowered with the distance.",
    "Seed": "a repetition with other first weights and another order of the data.",
    "±": "half of the 95% interval of the mean, over all seeds.",
    "cpu scale": "models so small that all seeds take at most 30 minutes on two cores.",
    "controls": "cases whose outcome is known; where one comes out otherwise, the study tells nothing.",
}


def words_of(text: str) -> dict[str, str]:
    """Glossary entries whose terms occur in a text."""
    return {word: means for word, means in WORDS.items() if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)}
