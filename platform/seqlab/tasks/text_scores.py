"""Scores of written text against its references, by sacrebleu (Post 2018), which says how in a signature."""

from __future__ import annotations

from collections.abc import Sequence


def score_texts(
    written: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a"
) -> tuple[dict[str, float], dict[str, str]]:
    """Scores of a corpus.

    Args:
        written: one text a row.
        references: the texts that would be right, one or more a row.
        tokenize: sacrebleu's tokenizer for BLEU.

    Returns:
        "bleu" and "chrf", of 100, and "exact_match", the share of rows that are one of their references; then the
        signatures of the first two.
    """
    # It is slow to import, and other tasks do without.
    from sacrebleu.metrics import BLEU, CHRF  # type: ignore[attr-defined]

    most = max(map(len, references))
    # sacrebleu wants the first reference of every row, then the second of every row, and so on.
    streams = [[row[k] if k < len(row) else None for row in references] for k in range(most)]
    scores, signatures = {}, {}
    for name, metric in (("bleu", BLEU(tokenize=tokenize, force=True)), ("chrf", CHRF())):
        scores[name] = metric.corpus_score(written, streams).score  # type: ignore[arg-type]
        signatures[name] = str(metric.get_signature())
    exact = [text in right for text, right in zip(written, references, strict=True)]
    return scores | {"exact_match": sum(exact) / len(exact)}, signatures
