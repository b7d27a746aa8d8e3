"""Writes the claims with their verdicts and a number of docs/studies/*.json into docs/studies.md, three of them into
README, and the verdicts into the index of the pages: `python scripts/verdicts.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

from seqlab.study.page import index
from seqlab.study.rules import Claim, Verdict
from seqlab.study.study import Study
from seqlab_studies.book import STUDIES

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/studies"
HEAD = "| study | claim | verdict | measured |\n|---|---|---|---|\n"
IN_README: dict[tuple[str, str], tuple[tuple[str, ...], Callable[..., str]]] = {
    ("layers", "equal"): (
        ("no residuals",),
        lambda apart: f"after 8 layers they are the same to within {10**apart:.0e} of their size",
    ),
    ("joined", "any-length"): (
        ("Sinusoidal",),
        lambda left: (
            f"when four sentences are translated as one, {left:.0%} of the BLEU is left with sinusoidal positions"
        ),
    ),
    ("order", "bag"): (
        ("encoder, 2 deep", "causal decoder, 2 deep"),
        lambda encoder, decoder: (
            f"another order of the words changes an encoder's output by {10**encoder:.0e} of what other words change, "
            f"and that of two causal layers by {10**decoder:.0%}"
        ),
    ),
}
"""Claims in README by study and key: the cases whose means the sentence tells, and the sentence."""
GROUP = "|".join((Verdict.SUPPORTED, Verdict.REFUTED, Verdict.ABOUT, Verdict.INCONCLUSIVE))


def verdicts(study: Study) -> Mapping[str, Mapping[str, str]]:
    """Verdicts of each scale, by the keys of the claims."""
    scales = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]
    return {scale: {key: verdict for key, (verdict, _) in of["verdicts"].items()} for scale, of in scales.items()}


def told(claim: Claim, verdict: str, reason: str) -> tuple[str, str, str]:
    """A claim, its verdict, and the number of the first case that has the verdict, or of the first case; where it
    depends, one number of each kind."""
    if verdict == Verdict.DEPENDS:
        groups = re.findall(rf"({GROUP}): (.*?)(?=; (?:{GROUP}): |$)", reason)
        number = "; ".join(f"{group}: {first(cases)}" for group, cases in groups)
    else:
        number = first(reason.partition(f"{verdict}: ")[2] or reason)
    measured = f"{number}; {claim.rule.quantity.rstrip(',')}" if ": " in number else number
    return claim.says, verdict, measured


def first(cases: str) -> str:
    """First of some cases, with its number after a colon."""
    return cases.removeprefix(f"{Verdict.SUPPORTED}: ").partition("; ")[0].replace(" = ", ": ")


def claims(study: Study) -> Iterator[tuple[str, str, str]]:
    """A study's claims at scale cpu, as `told`."""
    found = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]["cpu"]["verdicts"]
    return (told(claim, *found[claim.key]) for claim in study.claims)


def sentences() -> Iterator[str]:
    """Lines of README's claims."""
    for (name, key), (cases, says) in IN_README.items():
        record = json.loads((PAGES / f"{name}.json").read_text(encoding="utf-8"))["scales"]["cpu"]
        [claim] = [one for one in STUDIES[name].claims if one.key == key]
        means = [fmean(seed[case] for seed in record["values"]) for case in cases]
        yield f"- *{claim.says}* {record['verdicts'][key][0].capitalize()}: {says(*means)}.\n"


def pages() -> dict[Path, str]:
    """Contents of the three files, whose claims are made anew."""
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/studies.md"))
    rows = [f"| `{study.name}` | {' | '.join(one)} |\n" for study in STUDIES.values() for one in claims(study)]
    [table] = re.finditer(rf"(?<={re.escape(HEAD)})(\|.*\n)*", page)
    [places] = re.finditer(r"(?<=<!-- claims -->\n)[^<]*", readme)
    made = {
        ROOT / "README.md": readme[: places.start()] + "".join(sentences()) + readme[places.end() :],
        ROOT / "docs/studies.md": page[: table.start()] + "".join(rows) + page[table.end() :],
    }
    found = [(study, scale, of) for study in STUDIES.values() for scale, of in verdicts(study).items()]
    return made | {PAGES / "index.html": index(found)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
