"""Template of a self-contained HTML page."""

from __future__ import annotations

from html import escape

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; background: #fff; color: #1f2933;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { letter-spacing: -.01em; }
.note { color: #52606d; font-size: .88rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: #52606d; border-bottom: 1.5px solid #9aa5b1; vertical-align: bottom; }
td { border-bottom: 1px solid #e4e7eb; }
"""


def made_by(command: str) -> str:
    """Meta tag that names the command that wrote a page."""
    return f'<meta name="generator" content="seqlab {command}">'


def html_page(title: str, body: str, style: str, command: str) -> str:
    """Complete HTML page.

    Args:
        body: content of the body, as HTML.
        style: CSS in addition to the common style.
        command: verb that writes the page, such as compare or study.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{made_by(command)}
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
