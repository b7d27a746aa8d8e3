"""Notebooks of studies and of the worksheet, converted from Markdown by Jupytext."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from seqlab.study.find import packaged
from seqlab.study.rules import Claim
from seqlab.study.study import Study

WORKSHEET = "worksheet"


def notebook(study: Study | None) -> str:
    """Notebook of a study as `.ipynb`; None = the worksheet."""
    import jupytext

    text = "\n\n".join(_parts(study)) if study else (files("seqlab_studies") / "worksheet.md").read_text("utf-8")
    read = jupytext.reads(text, fmt="md")
    read.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for place, cell in enumerate(read.cells):
        cell["id"] = f"cell-{place}"  # deterministic ids, so that the same source gives the same file
    return str(jupytext.writes(read, fmt="ipynb"))


def _parts(study: Study) -> Iterator[str]:
    name = study.name if study.name in packaged() else str(study.file().resolve())
    yield f"# {study.question}\n\n{study.matched}"
    yield "## See it"
    yield (
        "At scale `smoke`, which shows that it runs and trains nothing large. For its own verdict take `cpu`, or read "
        f"what that gave on the page of `seqlab study page {name}`."
    )
    yield _code(f"""
import altair

from seqlab.study.conduct import conduct
from seqlab.study.find import find_study

altair.renderers.enable("svg")  # figures that need no network
study = find_study({name!r})
result = conduct(study, "smoke", seeds=3, jobs=1)""")
    for place, claim in enumerate(study.claims):
        yield from _claim(place, claim)
    yield """## Break it

A measure that tells nothing gives every case the same number. The controls must find that out: one of them must pass
the rule and another must not."""
    yield _code("""
from seqlab.study.study import Measured

cases = {case for claim in study.claims for case in (*claim.cases, *(one.case for one in claim.controls))}
for key, found in study.judge([Measured(dict.fromkeys(cases, 1.0), [])]).items():
    print(f"{key}: {found.verdict}: {found.reason}")""")
    yield f"What would change the result: {study.change} Change it in the study's file, and run the study again:"
    yield _code(f'print(study.file(), {f"seqlab study run {name}"!r}, sep="\\n")')


def _claim(place: int, claim: Claim) -> Iterator[str]:
    controls = "\n".join(f"- **{one.case}** must be {one.expected}. {one.why}" for one in claim.controls)
    yield f"""## {claim.says}

{claim.source}. What do you expect: supported, refuted, or does it depend? Supported where {claim.rule}. The controls:

{controls}"""
    yield _code(f"""
claim = study.claims[{place}]
print(result.judgements[claim.key].verdict, "\\n".join(result.judgements[claim.key].told), sep="\\n")
study.figure(claim, result.points)""")


def _code(lines: str) -> str:
    return f"```python\n{lines.strip()}\n```"
