"""Terminal output in which control characters are escaped, as `\\x1b`, so that they cannot control the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.text import Text

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
SHOWN = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _DIRECTIONS}
"""Escapes of the control characters C0, DEL and C1, except newline and tab, and of overrides of the text direction.
`Shown` in export/runtime/tools/shown.cc has the same."""
DRAWING = ("rich", "tqdm")
"""Libraries that print control characters for colours and bars; `shown_for_people` escapes those in Rich's texts."""


def shown(text: str) -> str:
    return text.translate(SHOWN)


class _ShownStream:
    """Stream that escapes control characters in everything written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.as_written = stream

    def write(self, text: str) -> int:
        writer = str(sys._getframe(1).f_globals.get("__name__"))
        self.as_written.write(text if writer.partition(".")[0] in DRAWING else shown(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        self.as_written.writelines(map(shown, lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.as_written, name)


def _shown_stream(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, _ShownStream) else cast(TextIO, _ShownStream(stream))


class _PlainLines:
    """Decoder for Rich that does not interpret colour codes in a line, so that they are escaped."""

    def decode_line(self, line: str) -> Text:
        from rich.text import Text

        return Text(line)


@contextmanager
def shown_for_people() -> Iterator[None]:
    """Escapes control characters in stdout, stderr and Rich's output. Characters that the encoding lacks are written as
    backslash escapes."""
    streams = sys.stdout, sys.stderr
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = map(_shown_stream, streams)
    try:
        with _rich_for_people():
            yield
    finally:
        sys.stdout, sys.stderr = streams


@contextmanager
def _rich_for_people() -> Iterator[None]:
    """Makes Rich escape control characters in its texts, if Rich is installed; running bundles does not need it."""
    try:
        from rich import control, file_proxy
    except ImportError:
        yield
        return
    # The characters that Rich removes from texts, and its decoder of lines printed next to its bars.
    dropped, decoder = control._CONTROL_STRIP_TRANSLATE.copy(), vars(file_proxy)["AnsiDecoder"]
    cast(dict[int, str], control._CONTROL_STRIP_TRANSLATE).update(SHOWN)
    vars(file_proxy)["AnsiDecoder"] = _PlainLines
    try:
        yield
    finally:
        control._CONTROL_STRIP_TRANSLATE.clear()
        control._CONTROL_STRIP_TRANSLATE.update(dropped)
        vars(file_proxy)["AnsiDecoder"] = decoder


def for_programs() -> TextIO:
    """Standard output for text that other programs read; pipes and files receive it unescaped."""
    return getattr(sys.stdout, "as_written", sys.stdout) if not sys.stdout.isatty() else sys.stdout
