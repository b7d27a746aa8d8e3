"""Lines for people: a control character in them is shown as `\\x1b`, and steers no terminal."""

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
"""The controls C0, DEL and C1, and what overrides the direction of writing. A newline and a tab are layout.
`Shown` of export/runtime/tools/shown.cc shows the same."""
DRAWING = ("rich", "tqdm")
"""Libraries whose colours and bars are control characters; `shown_for_people` has Rich show those of its texts."""


def shown(text: str) -> str:
    return text.translate(SHOWN)


class _ShownStream:
    """A stream that shows the control characters of all that is written to it."""

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
    """Takes no colours out of a line, where Rich's own decoder would: its control characters are shown."""

    def decode_line(self, line: str) -> Text:
        from rich.text import Text

        return Text(line)


@contextmanager
def shown_for_people() -> Iterator[None]:
    """Has stdout and stderr, and what Rich prints, show control characters; a character that the encoding lacks is
    written as a backslash and its number."""
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
    """Has Rich show the control characters of its texts, if it is installed: a machine that runs bundles needs none."""
    try:
        from rich import control, file_proxy
    except ImportError:
        yield
        return
    # The characters that Rich drops of a text, and what it makes of a line that is printed beside its bars.
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
    """Standard output for texts that another program may read: a pipe and a file get them as they are."""
    return getattr(sys.stdout, "as_written", sys.stdout) if not sys.stdout.isatty() else sys.stdout
