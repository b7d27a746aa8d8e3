"""HTML page of a study, and index of all verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from seqlab.files.finite_json import compact, in_page
from seqlab.files.html_page import html_page
from seqlab.study.conduct import FIXED_TAG, SCALE_TAG, Result
from seqlab.study.rules import LECTURE, LECTURES, Claim, Control, Verdict
from seqlab.study.study import Study
from seqlab.study.words import MEANING, TOO_SMALL, words_of

STYLE = """
body { padding: 2rem 1.25rem 3rem; max-width: 50rem; font-size: 17px; }
h1 { margin: 0 0 .5rem; font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.25rem; line-height: 1.35; }
h3 { margin: 1.5rem 0 .25rem; font-size: 1rem; }
fieldset { margin: 1rem 0; padding: .5rem 1rem .75rem; border: 1px solid #9aa5b1; border-radius: .4rem; }
label { display: inline-block; margin-right: 1.2rem; padding: .25rem 0; }
summary { cursor: pointer; padding: .5rem 0; font-weight: 600; }
:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px; }
.verdict { border-left: 5px solid #0072b2; padding: .25rem 0 .25rem .8rem; margin: 1rem 0; }
.verdict b { font-size: 1.1rem; } .verdict p { margin: .25rem 0; }
.verdict ul { margin: .25rem 0 0; padding-left: 1.2rem; }
nav ol { padding-left: 1.4rem; } nav li { padding: .15rem 0; }
.words dt { font-weight: 600; } .words dd { margin: 0 0 .4rem; }
.figure.vega-embed { display: flex; flex-direction: column; padding: 0; } .figure .vega-bindings { order: -1; }
.figure input[type=range] + span { display: none; }
.figure svg { max-width: 100%; height: auto; }
.figure select { max-width: 18rem; } .figure input[type=range] { width: 14rem; vertical-align: middle; }
@media (max-width: 45rem) { th:nth-child(3), td:nth-child(3) { display: none; } }
@media (min-width: 45rem) { .figure svg { width: 32rem; } }
th, td { padding: .35rem 1rem .35rem 0; } td { vertical-align: top; }
pre { overflow-x: auto; padding: .7rem .9rem; background: #f4f6f8; font-size: .85rem; }
@media print {
  @page { size: landscape; margin: 12mm; }
  body { padding: 0; max-width: none; font-size: 12px; } section + section { break-before: page; }
  section, .figure { break-inside: avoid; } h2 { margin-top: 0; } h3 { margin-top: .5rem; }
  .figure { float: right; width: 50%; margin: 0 0 1rem 1rem; } .figure svg { width: auto; max-height: 105mm; }
  .note { font-size: 11px; } nav, .words, fieldset, summary, .seed, .vega-bindings { display: none; }
}
"""
DRAW = """
const views = {};
for (const [key, spec] of Object.entries(figures.specs)) {
  const datasets = Object.fromEntries(spec.datasets.map(name => [name, structuredClone(figures.rows[name])]));
  vegaEmbed(document.getElementById(`figure-${key}`), {...spec, datasets}, {actions: false, renderer: "svg"})
    .then(({view}) => (views[key] = view));
}
const choose = (key, seed) => {
  for (const name of figures.specs[key].datasets)
    views[key].data(name, figures.rows[name].filter(row => seed === "" || String(row.seed ?? seed) === seed));
  views[key].runAsync();
};
for (const one of document.querySelectorAll(".seed select"))
  one.addEventListener("change", () => choose(one.name, one.value));
"""
VOTE = """
for (const form of document.querySelectorAll("section > form")) form.addEventListener("change", () => {
  const said = new FormData(form).get("vote"), answer = form.nextElementSibling;
  answer.querySelector(".said").textContent = `You said: ${said}.`;
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => (one.open = true)));
"""
RECORD_MARK = '{\n "study": "'
SCRIPT_MARK = "/* seqlab study: Vega, Vega-Lite and Vega-Embed */\n"
VOTES = ("supported", "refuted", "it depends")


def page(results: Sequence[Result], script: str = "") -> str:
    """HTML page of one study.

    Args:
        results: result at each scale; the figures show the last one.
        script: file next to the page that contains `figure_script`; "" = embed the script in the page.
    """
    study, last = results[-1].study, results[-1]
    sections = "".join(_section(claim, results) for claim in study.claims)
    measured = [claim for claim in study.claims if last.judgements[claim.key].intervals]
    specs = {_anchor(claim): study.figure(claim, last.points).to_dict() for claim in measured}
    rows: dict[str, Any] = {}
    for spec in specs.values():  # claims with the same rows share one copy
        rows |= spec["datasets"]
        spec["datasets"] = list(spec["datasets"])
    figures = in_page(_shortened({"specs": specs, "rows": rows}))
    script_tag = f'<script src="{script}"></script>' if script else f"<script>{figure_script()}</script>"
    body = f"""<h1>{escape(study.question)}</h1>
<p class="note"><a href="index.html">all studies</a></p>
{_contents(study)}
{_words(sections + figures)}
{sections}
<section>
{_why(results)}
<h2>What would change it</h2><p>{escape(study.change)}</p>
{_published(study)}
<h2 id="measured">How it was measured</h2><p>{escape(study.matched)}</p>
{"".join(_origin(result) for result in results)}
<p class="note">{escape(LECTURES)}</p>
</section>
{script_tag}
<script>
const figures = {figures};
{DRAW}{VOTE}</script>"""
    return html_page(study.question, body, STYLE, "study")


def record(results: Sequence[Result]) -> str:
    """Data of the page as JSON, by scale."""
    scales = {
        result.run.tags[SCALE_TAG]: {
            "seeds": len(result.seeds),
            "verdicts": {key: [found.verdict, found.reason] for key, found in result.judgements.items()},
            "values": [seen.values for seen in result.seeds],
            "points": result.points,
        }
        for result in results
    }
    content = compact({"study": results[-1].study.name, "scales": scales})
    return RECORD_MARK + content.removeprefix('{"study":"')


def index(verdicts: Sequence[tuple[Study, str, Mapping[str, str]]]) -> str:
    """HTML index of verdicts: each study at a scale, with the verdicts by the keys of its claims."""
    rows = [
        f'<tr><td><a href="{study.name}.html">{escape(study.name)}</a></td>'
        f'<td><a href="{study.name}.html#{_anchor(claim)}">{escape(claim.says)}</a></td>'
        f"<td>{escape(scale)}</td><td><b>{found[claim.key]}</b></td></tr>"
        for study, scale, found in verdicts
        for claim in study.claims
    ]
    head = "<tr><th>study</th><th>claim</th><th>scale</th><th>verdict</th></tr>"
    title = "What lectures say of sequence models, put to the test"
    table = f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'
    body = f'<h1>{title}</h1>{table}<p class="note">{escape(LECTURES)}</p>'
    return html_page(title, body, STYLE, "study")


def _why(results: Sequence[Result]) -> str:
    """Explanation of the result at the scale that it was written for; empty if that was not run."""
    study = results[-1].study
    if study.explained not in {result.run.tags[SCALE_TAG] for result in results}:
        return ""
    return f"<h2>Why, at {study.explained} scale</h2><p>{escape(study.why)}</p>"


def _published(study: Study) -> str:
    return f"<h2>What was published</h2><p>{escape(study.published)}</p>" if study.published else ""


def _contents(study: Study) -> str:
    """Table of contents of the claims; empty if there is only one."""
    links = "".join(f'<li><a href="#{_anchor(claim)}">{escape(claim.says)}</a></li>' for claim in study.claims)
    return f"<nav><ol>{links}</ol></nav>" if len(study.claims) > 1 else ""


def _anchor(claim: Claim) -> str:
    """Element id of a claim, without spaces."""
    return claim.key.replace(" ", "-")


def _said_by(source: str) -> str:
    """Source of a claim, with the titles of the lectures that it names."""
    named = source.replace("L0 to L4", " ".join(LECTURE))
    titles = [f"{name}: {title}" for name, title in LECTURE.items() if name in named]
    return "<br>".join(escape(line) for line in (source, "; ".join(titles)) if line)


def _words(shown: str) -> str:
    """Glossary of the terms that occur in a text."""
    terms = "".join(f"<dt>{escape(word)}</dt><dd>{escape(means)}</dd>" for word, means in words_of(shown).items())
    return f'<details class="words"><summary>Words</summary><dl>{terms}</dl></details>' if terms else ""


def _section(claim: Claim, results: Sequence[Result]) -> str:
    votes = "".join(f'<label><input type="radio" name="vote" value="{vote}"> {vote}</label>' for vote in VOTES)
    verdicts = "".join(_verdict(claim, result) for result in results)
    controls = "".join(f"<li>{_control(claim, control, results[-1])}</li>" for control in claim.controls)
    return f"""<section id="{_anchor(claim)}">
<h2>{escape(claim.says)}</h2>
<p class="note">{_said_by(claim.source)}</p>
<form><fieldset><legend>What do you expect?</legend>{votes}</fieldset></form>
<details><summary>What was found</summary>
<p class="said"></p>
{verdicts}
{_seeds(claim, results[-1])}
<div class="figure" id="figure-{_anchor(claim)}" role="figure" aria-label="{escape(claim.says)}"></div>
<h3>The rule</h3>
<p>Supported where {escape(str(claim.rule))}{_between(claim)}. The whole 95% interval must lie there, of each case by
itself.</p>
<h3>The controls</h3>
<ul>{controls}</ul>
</details>
</section>
"""


def _between(claim: Claim) -> str:
    return f"; in between, {Verdict.ABOUT}" if claim.rule.beyond else ""


def _seeds(claim: Claim, result: Result) -> str:
    """Selector of the seed shown in the figure; empty if there is only one."""
    if len(result.seeds) < 2 or not result.judgements[claim.key].intervals:
        return ""
    options = "".join(f"<option>{seed}</option>" for seed in range(len(result.seeds)))
    choice = f'<select name="{_anchor(claim)}"><option value="">all</option>{options}</select>'
    return f'<p class="seed"><label>Seed: {choice}</label></p>'


def _verdict(claim: Claim, result: Result) -> str:
    found = result.judgements[claim.key]
    meaning = MEANING[found.verdict]
    of = result.run.tags[SCALE_TAG]
    small = TOO_SMALL if of == "smoke" else ""
    scale = "" if claim.exact else f', at <a href="#measured">{escape(of)} scale</a>{small}'
    told = "".join(f"<li>{escape(part)}</li>" for part in found.told)
    quantity = f'<p class="note">Measured: {escape(claim.rule.quantity.rstrip(","))}.</p>' if found.intervals else ""
    return f'<div class="verdict"><b>{escape(found.verdict)}</b>: {meaning}{scale}{quantity}<ul>{told}</ul></div>'


def _control(claim: Claim, control: Control, result: Result) -> str:
    rule = "the same rule" if control.rule == claim.rule else f"the rule that {control.rule}"
    interval = result.judgements[claim.key].intervals.get(control.case)
    was = "was not measured" if interval is None else f"was {interval}"
    return (
        f"<b>{escape(control.case)}</b> {was}; by {escape(rule)} it must be {control.expected}. {escape(control.why)}"
    )


def _origin(result: Result) -> str:
    tags, name = result.run.tags, result.study.name
    scale = tags[SCALE_TAG]
    return f"""<h3>{escape(scale)}: {len(result.seeds)} seed{"s" if len(result.seeds) > 1 else ""}</h3>
<pre>seqlab study run {name} --scale {escape(scale)}
seqlab study page {name} --out pages</pre>
<p class="note">The commit of these rules: {escape(tags[FIXED_TAG])}. Run {escape(result.run.name)} on
{escape(tags.get("hardware.cpu", "unknown"))}, GPUs: {escape(tags.get("hardware.gpus", "none"))}.</p>"""


def _shortened(value: Any) -> Any:
    """Rounds numbers to four significant digits, more than a figure can resolve."""
    if isinstance(value, dict):
        return {key: _shortened(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_shortened(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@cache
def figure_script() -> str:
    """Vega, Vega-Lite and Vega-Embed, which draw the figures."""
    import vl_convert

    bundle = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]
    return SCRIPT_MARK + bundle.replace("</script", "<\\/script")
