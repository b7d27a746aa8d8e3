"""The catalogue of mixers on the site: equations, state, costs, measured errors, places in the leaderboard."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import torch

from leaderboard import TRACKS, Track, ordered
from seqlab.budgets import decoding_flops, forward_flops
from seqlab.comparison.rows import short
from seqlab.comparison.statistics import mean
from seqlab.mixer import Mixer, StateEntry, size_of
from seqlab_export.reports.conformance import all_mixers

MATRIX = Path(__file__).parents[1] / "docs/conformance.json"
D_MODEL, SHORT, LONG = 128, 1024, 16384
WIDTH, ROW, MOST = 420, 22, 7.0
"""Width of a bar of 10^MOST numbers, and height of a row, in pixels."""
COLOURS = {"fixed": "#4477aa", "window": "#228833", "growing": "#ee6677", "revised": "#ee6677", "source": "#888888"}
INTRO = f"""# Mixers

Every block that mixes over time, with the equations of its paper, the state that a step hands to the next, and its
costs. Numbers are of one mixer of {D_MODEL} channels with its default options. Errors are the largest in the
[conformance matrix](../conformance.md); places are those of the [leaderboard](../leaderboard.md) where it has them.
A drawing has a bar for each entry of the state, as long as the logarithm of how many numbers it holds after {SHORT:,}
tokens; where it grows, the pale part is what it holds after {LONG:,}.
"""


def catalogue() -> str:
    """The page in Markdown."""
    makers: dict[str, Any] = dict(all_mixers())
    with torch.device("meta"):
        made = {name: make(D_MODEL) for name, make in makers.items() if "," not in name}  # without parts of Attention
    boards = [(track, board) for track in TRACKS if (board := stored(track))]
    sections = [part for name, mixer in made.items() for part in section(name, mixer, boards)]
    return "\n".join([INTRO, *overview(made), "", *sections]) + "\n"


def overview(made: dict[str, Mixer]) -> Iterator[str]:
    yield f"| mixer | state after {SHORT:,} tokens | after {LONG:,} | parameters | FLOPs a token | FLOPs a step |"
    yield "|---|---|---|---|---|---|"
    for name, mixer in made.items():
        sizes = [short(size_of(mixer.state_spec(), length)) for length in (SHORT, LONG)]
        yield f"| [{name}](#{name.lower()}) | {' | '.join([*sizes, *costs(mixer)])} |"


def costs(mixer: Mixer) -> list[str]:
    """Parameters, FLOPs a token of a sequence, forward, and FLOPs of a decode step after it."""
    params = sum(weight.numel() for weight in mixer.parameters())
    return [short(params), short(forward_flops(mixer, SHORT) / SHORT), short(decoding_flops(mixer, SHORT))]


def section(name: str, mixer: Mixer, boards: list[tuple[Track, dict[str, str]]]) -> Iterator[str]:
    text = inspect.getdoc(type(mixer)) or ""
    yield f"## {name}\n\n{text.partition(chr(10) + 'Args:')[0].partition(chr(10) + 'Raises:')[0].strip()}\n"
    if spec := [entry for entry in mixer.state_spec() if entry.kind != "counter"]:
        yield drawing(spec) + "\n"
    module = type(mixer).__module__.split(".")[1]
    line = f"[Options](seqlab.{module}.md#seqlab.{module}.{name}) · {errors(name)}"
    yield " · ".join([line, *(f"{track.name}: {board[name]}" for track, board in boards if name in board)]) + "\n"


def errors(name: str) -> str:
    """Largest measured errors of a mixer over the positional encodings that it takes."""
    rows = [row for row in json.loads(MATRIX.read_text(encoding="utf-8")) if row["mixer"] == name]
    parts = []
    for check in ("laws", "fp32", "ONNX step"):
        known = [row[check]["error"] for row in rows if "error" in row[check]]
        parts += [f"{check} {max(known):.1e}"] if known else []
    return "largest errors: " + ", ".join(parts)


def stored(track: Track) -> dict[str, str]:
    """Place and number of each model of a track, if every model of the track is stored."""
    rows = json.loads(track.stored.read_text(encoding="utf-8")) if track.stored.exists() else {}
    if rows.keys() != track.models.keys():
        return {}
    return {
        name: f"{track.metric} {mean(row['values']).value:.3f}, rank {low}-{high} of {len(rows)}"
        for name, row, (low, high) in ordered(track, rows)
    }


def drawing(spec: list[StateEntry]) -> str:
    """SVG of a state: a bar for each entry."""
    rows = []
    for place, entry in enumerate(spec):
        y, colour = place * ROW, COLOURS[entry.kind]
        lengths = [WIDTH * math.log10(max(numbers(entry, tokens), 1.3)) / MOST for tokens in (SHORT, LONG)]
        bars = "".join(
            f'<rect x="0" y="{y + 3}" width="{length:.0f}" height="{ROW - 8}" fill="{colour}" opacity="{opacity}"/>'
            for length, opacity in zip(lengths, (0.9, 0.35), strict=True)
        )
        shape = " x ".join(map(str, entry.dims)) or "1"
        says = f"{entry.name}: {shape}, {entry.kind}, {short(numbers(entry, SHORT))} numbers"
        rows.append(f'{bars}<text x="{max(lengths) + 8:.0f}" y="{y + ROW - 8}">{escape(says)}</text>')
    size = f'viewBox="0 0 {2 * WIDTH} {ROW * len(spec)}"'
    return f'<div class="state"><svg {size} role="img" aria-label="The state">{"".join(rows)}</svg></div>'


def numbers(entry: StateEntry, tokens: int) -> int:
    return math.prod(tokens if isinstance(dim, str) else dim for dim in entry.dims)
