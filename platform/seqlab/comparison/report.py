"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path

from seqlab.comparison.comparison import TEXT_COLUMNS, Comparison
from seqlab.comparison.costs import quality_against_costs
from seqlab.comparison.curves import key, learning_curves
from seqlab.comparison.differences import differences
from seqlab.comparison.drawing import mark
from seqlab.comparison.lengths import by_length, length_curves, length_surfaces
from seqlab.comparison.repeat import command
from seqlab.comparison.rows import short
from seqlab.comparison.settings import settings
from seqlab.files.atomic import write_atomically
from seqlab.files.html_page import html_page
from seqlab.tracking.runs import TrackedRun

STYLE = """
body { padding: 2.5rem 2rem 3rem; max-width: 68rem; }
h1 { margin: 0 0 .25rem; font-size: 1.6rem; font-weight: 650; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.1rem; font-weight: 600; }
p { margin: .25rem 0; max-width: 46rem; }
th, td { padding: .4rem 1.1rem .4rem 0; white-space: nowrap; }
.told { border-left: 3px solid #d55e00; padding-left: .7rem; margin: .5rem 0; }
.number { text-align: right; }
.best td { font-weight: 600; background: #f0f6fb; }
.mark { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; vertical-align: -.1rem; }
.key { max-width: none; } .key span { white-space: nowrap; margin-right: 1.2rem; }
.FAILED { color: #b42318; } .KILLED { color: #92600a; } .RUNNING { color: #0b6e99; } .FINISHED { color: #1f7a4d; }
code { font: .85em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
figure { margin: 0; } figure svg { width: 100%; max-width: 50rem; height: auto; }
svg text { font-family: inherit !important; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(25rem, 100%), 1fr)); gap: 1.5rem; }
.panels { grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: 1rem; }
figcaption { font-size: .88rem; color: #52606d; }
.origins table { font-size: .82rem; } .origins td:nth-child(2) { font: .85em ui-monospace, monospace; }
.origins td:last-child { white-space: normal; }
.commands td { vertical-align: top; } .commands td:not(:first-child) { white-space: normal; min-width: 16rem; }
.commands code { overflow-wrap: anywhere; }
.differs td:not(:first-child) { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
/* Tables, keys and figures are laid out when they come into view; until then their heights are estimates. */
.wide, .key, figure { content-visibility: auto; }
.wide { contain-intrinsic-height: auto calc(var(--rows) * 2.2rem); }
.commands { contain-intrinsic-height: auto calc(var(--rows) * 7rem); }
.key { contain-intrinsic-height: auto calc(var(--rows) * .3rem); }
.differs, figure { contain-intrinsic-height: auto 20rem; }
@media print {
  .wide, .key, figure { content-visibility: visible; }
  body { padding: 0; max-width: none; font-size: 11px; } h2 { margin-top: 1.2rem; }
  .best td { background: none; } .wide { overflow: visible; } figure, tr { break-inside: avoid; }
}
"""
TRAIN_LOSS = "train/loss"
TRAIN_CAPTION = "The loss of each training batch, from the first on."
BAND = " With several seeds the line is the mean, and the band spans the minimum to the maximum."
COSTS = "The dashed line is the best value for each cost. The runs on it have a ring: no other run is better in both."
INTERVALS = (
    " With several seeds the point is the mean, each small circle a seed, and the line the 95% interval of the mean."
)
BEYOND = " Hollow markers are beyond the lengths of the run's training."
SURFACE = " Darker is better; the lengths right of the white line are beyond those of training."
SETTINGS = "Each line is a setting, with its result at the right. Darker is better; the thick line is the best."
AGAIN = (
    "Run these in the folder where the run was begun, which has its store and its data files, at the commit and on the "
    "data below. The config repeats a run bit for bit; elsewhere use the command that began it."
)


def write_report(comparison: Comparison, path: Path) -> None:
    """Writes the page atomically.

    Raises:
        CannotWriteError: the file cannot be written.
    """
    write_atomically(path, page(comparison))


def page(comparison: Comparison) -> str:
    """HTML of the page. All user-supplied text is escaped."""
    runs = comparison.runs
    title = f"{len(runs)} run{'s' if len(runs) > 1 else ''} by {comparison.metric}"
    told = [f'<p class="told">{escape(text)}</p>' for text in comparison.warnings]
    experiments = ", ".join(sorted({run.experiment for run in runs}))
    drawn = [
        (learning_curves(comparison), f"{comparison.metric} while training.{BAND if comparison.several_seeds else ''}"),
        (learning_curves(comparison, TRAIN_LOSS) if comparison.metric != TRAIN_LOSS else None, TRAIN_CAPTION),
    ]
    figures = [_figure(svg, caption) for svg, caption in drawn if svg is not None]
    body = f"""<h1>{escape(title)}</h1>
<p class="note">Experiment {escape(experiments)} · {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>
{"".join(told)}
<div class="wide">{_comparison_table(comparison)}</div>
<p class="note">{escape(_notes(comparison))}</p>
{_apart(comparison)}
<h2>Learning curves</h2>
{key(comparison)}
<div class="figures">{"".join(figures)}</div>
{_costs(comparison)}
{_lengths(comparison)}
{_settings(comparison)}
{_differences(comparison)}
<h2>How to repeat them</h2>
<p class="note">{AGAIN}</p>
<div class="wide commands">{_commands(comparison)}</div>
<h2>Where the runs come from</h2>
<div class="wide origins">{_origins(comparison)}</div>"""
    return html_page(title, body, f":root {{ --rows: {len(comparison.rows)}; }}{STYLE}", "compare")


def _comparison_table(comparison: Comparison) -> str:
    classes = ["" if title in TEXT_COLUMNS else "number" for title in comparison.header]
    lines, letters = [], comparison.letters
    for index, row in enumerate(comparison.rows):
        cells = [escape(cell) for cell in comparison.cells(row)]
        cells[0] += f" <sup>{letters[index]}</sup>" if letters else ""
        cells[1] = mark(index) + cells[1]
        if comparison.has_unfinished:
            cells[-2] = f'<span class="{escape(row.run.status)}">{cells[-2]}</span>'
        cells[-1] = f'<code title="{escape(row.run.id)}">{cells[-1]}</code>'
        lines.append(_row("td", cells, classes, "best" if comparison.ranks[index][0] == 1 else ""))
    return _table(_row("th", [escape(title).replace("\n", "<br>") for title in comparison.header], classes), lines)


def _apart(comparison: Comparison) -> str:
    """Tables of the runs of other tasks and datasets."""
    parts = [
        f"<h2>{escape(f'Not ranked with these, {comparison.reason(group)}: {group.title}')}</h2>\n"
        f'<div class="wide">{_comparison_table(group)}</div>'
        for group in comparison.apart
    ]
    return "\n".join(parts)


def _costs(comparison: Comparison) -> str:
    if not (figures := quality_against_costs(comparison)):
        return ""
    note = COSTS + (INTERVALS if comparison.has_intervals else "")
    return (
        f'<h2>Quality against cost</h2>\n{key(comparison)}\n<p class="note">{escape(note)}</p>\n'
        f'<div class="figures panels">{"".join(map(_figure, figures))}</div>'
    )


def _lengths(comparison: Comparison) -> str:
    figures = []
    for one in by_length(comparison):
        caption = f"{one.metric}.{BEYOND if any(any(one.beyond(k)) for k in range(len(one.values))) else ''}"
        figures.append(_figure(length_curves(one), caption))
        for name, svg in length_surfaces(comparison, one).items():
            figures.append(_figure(svg, f"{one.metric} of {name}.{SURFACE}"))
    if not figures:
        return ""
    return f'<h2>By position and length</h2>\n{key(comparison)}\n<div class="figures">{"".join(figures)}</div>'


def _settings(comparison: Comparison) -> str:
    figures = [
        f"<h2>{escape(f'What the sweep {name} has tried')}</h2>\n{_figure(svg, SETTINGS)}"
        for name, svg in settings(comparison).items()
    ]
    return "\n".join(figures)


def _differences(comparison: Comparison) -> str:
    lines = []
    commits = [sorted({_commit(run) for run in row.runs}) for row in comparison.rows]
    if len(set().union(*commits)) > 1:
        lines.append(_row("td", ["commit", *(escape(", ".join(some)) for some in commits)]))
    for one in differences(comparison.rows):
        title = f'<code title="{escape(one.name)}">{escape(one.title)}</code>'
        values = (f'<span title="{escape(text)}">{escape(_digits(text))}</span>' for text in one.values)
        lines.append(_row("td", [title, *values]))
    if not lines:
        return ""
    head = _row("th", ["parameter", *(escape(row.name) for row in comparison.rows)])
    return f'<h2>What differs</h2>\n<div class="wide differs">{_table(head, lines)}</div>'


def _commands(comparison: Comparison) -> str:
    """Table of the commands that repeat each run, from its config and as originally typed."""
    lines = []
    for run in comparison.runs:
        try:
            again = command(run) or ""
        except ValueError as error:
            again = f"not known: {error}"
        commands = (again, run.tags.get("command", ""))
        lines.append(_row("td", [escape(run.name), *(f"<code>{escape(text)}</code>" for text in commands)]))
    return _table(_row("th", ["run", "again, exactly", "as it was begun"]), lines)


def _origins(comparison: Comparison) -> str:
    lines = []
    for run in comparison.runs:
        tags = run.tags
        started = datetime.fromtimestamp(run.started / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        gpus = tags.get("hardware.gpus", "none")
        hardware = tags.get("hardware.cpu", "") if gpus == "none" else gpus
        cells = [run.name, run.id, started, _commit(run), tags.get("dataset", ""), hardware]
        lines.append(_row("td", [escape(cell) for cell in cells]))
    return _table(_row("th", ["run", "run id", "started (UTC)", "commit", "data", "hardware"]), lines)


def _commit(run: TrackedRun) -> str:
    return run.tags.get("git.commit", "")[:10] + (" + changes" if run.tags.get("git.dirty") == "true" else "")


def _table(head: str, lines: list[str]) -> str:
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def _row(tag: str, cells: list[str], classes: list[str] | None = None, row_class: str = "") -> str:
    classes = classes or [""] * len(cells)
    texts = [f'<{tag} class="{name}">{cell}</{tag}>' for cell, name in zip(cells, classes, strict=True)]
    return f'<tr class="{row_class}">{"".join(texts)}</tr>'


def _digits(text: str) -> str:
    """A sweep's number, shortened to four significant digits."""
    try:
        return text if len(text) <= len("0.000123") else f"{float(text):.4g}"
    except ValueError:
        return text


def _figure(svg: str, caption: str = "") -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _notes(comparison: Comparison) -> str:
    best = "the best of each run" if comparison.metric.startswith("val/") else "the last of each run"
    notes = [
        f"{comparison.metric} is {best}.",
        "Params: parameters. State: numbers to remember of one sequence when decoding, at the training length.",
        "Tokens/s: the speed measured in training, without validation.",
    ]
    if comparison.several_seeds:
        notes.append(
            "Runs that differ in nothing but their seeds are one row of n: their mean, standard deviation and "
            "95% interval (Student's t)."
        )
    if comparison.has_intervals:
        notes.append(
            "A row of rank 2-4 is certainly worse than one other, and certainly better than all but the first four "
            "(Welch's test, with Holm's correction over all pairs)."
        )
    if comparison.letters:
        notes.append("Rows that share a letter are not told apart.")
    if comparison.tokens is not None:
        notes.append(f"Days: for {short(comparison.tokens)} tokens at that speed.")
    if comparison.price is not None:
        notes.append(f"Cost: of those days at {comparison.price:g} per device and hour.")
    return " ".join(notes)
