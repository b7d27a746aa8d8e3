"""Draws the flowcharts of docs/ during the build of the site, so that readers do not need Mermaid's script."""

from __future__ import annotations

import re
from typing import Any

import pygraphviz

NODE = re.compile(r'(\w+)\["(.*)"\]')
GROUP = re.compile(r"subgraph (\w+) \[(.*)\]")
ARROW = re.compile(r"(\w+) (-->|-\.->) (\w+)")


def drawing(source: str, *of_markdown: Any, **options: Any) -> str:
    """A Mermaid flowchart of named nodes in boxes, groups and arrows, as SVG.

    Raises:
        ValueError: a line is none of these.
    """
    lines = ['bgcolor=transparent; node [shape=box, style=rounded, fontname="sans-serif", fontsize=12]', "ranksep=0.35"]
    head, *rest = source.strip().splitlines()
    if head != "flowchart TD":
        raise ValueError(f"a drawing begins with flowchart TD, got {head}")
    for line in map(str.strip, rest):
        lines.append(_line(line))
    svg = pygraphviz.AGraph(string=f"digraph {{ {'; '.join(lines)} }}").draw(format="svg", prog="dot").decode()
    svg = re.sub(r' (fill|stroke)="black"', r' \1="currentColor"', svg[svg.index("<svg") :])
    return f'<div class="drawing">{re.sub(r" (width|height)=.[0-9]+pt.", "", svg)}</div>'


def _line(line: str) -> str:
    if found := GROUP.fullmatch(line):
        return f'subgraph cluster_{found[1]} {{ label="{found[2]}"; fontname="sans-serif"'
    if found := NODE.fullmatch(line):
        return f'{found[1]} [label="{found[2].replace("<br>", chr(92) + "n")}"]'
    if found := ARROW.fullmatch(line):
        return f"{found[1]} -> {found[3]} [style={'solid' if found[2] == '-->' else 'dashed'}]"
    if line == "end":
        return "}"
    raise ValueError(f"a line of a drawing is a node, a group, its end or an arrow, got {line}")
