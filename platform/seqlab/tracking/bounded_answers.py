"""Bounds on what a server answers: the bytes and the seconds of one answer, and the answers to one call. A file of a
run may be of any size and take any time, as long as it keeps coming and the disk has room."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, local
from typing import Any

from requests import PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter

MOST_BYTES = 2**28
"""The bytes of an answer; a page of 1,000 runs has a fifth of it where each has 200 long parameters."""
MOST_SECONDS = 60.0
"""The seconds until an answer is whole, however often a byte of it comes."""
MOST_ANSWERS = 1000
"""The answers to one call of MLflow's client, which asks for page after page while a server says that there is one."""
CHUNK = 2**16
LEAST_BYTES = 2**16
"""The bytes of a file that come in `MOST_SECONDS` at least."""
ROOM = 2**28
"""The bytes that a download leaves free on the disk."""

_ASKED = local()


class OutOfBoundsError(RequestException):
    """An answer is larger than it may be, or takes longer."""


@dataclass
class Download:
    """Files that come into a folder.

    Attributes:
        broken_off: the reason why one did not come whole, which MLflow does not tell.
    """

    folder: Path
    broken_off: str | None = None


_downloads: list[Download] = []
"""The one at hand; not by thread, as MLflow has threads of its own."""


@contextmanager
def downloading(folder: Path) -> Iterator[Download]:
    """Tells what becomes of the files that MLflow fetches meanwhile."""
    _downloads.append(Download(folder))
    try:
        yield _downloads[-1]
    finally:
        _downloads.pop()


class BoundedAdapter(HTTPAdapter):
    """Reads answers within the bounds."""

    def send(self, request: PreparedRequest, stream: bool = False, *args: Any, **kwargs: Any) -> Response:
        """Sends a request as `HTTPAdapter.send`, and reads the content, unless it is to be streamed."""
        if hasattr(request.body, "read"):  # a file goes up
            return super().send(request, stream, *args, **kwargs)
        _ASKED.times = getattr(_ASKED, "times", 0) + (request.method == "GET")
        if _ASKED.times > MOST_ANSWERS:
            raise OutOfBoundsError(f"it has more than {MOST_ANSWERS} pages", request=request)
        ask, came = super().send, list[Response | BaseException]()

        def answer() -> None:
            try:
                response = ask(request, stream, *args, **kwargs)
                if stream and _downloads:
                    download = _downloads[-1]
                    if response.is_redirect:  # it is not followed, and its content is not the file's
                        response.close()
                        raise OutOfBoundsError(f"it is redirected ({response.status_code})", request=request)
                    response.iter_content = lambda *_, **__: _keeps_coming(response, download)  # type: ignore[method-assign]
                elif not stream:
                    _read(response)
                came.append(response)
            except BaseException as error:
                came.append(error)
                if _downloads:
                    _downloads[-1].broken_off = str(error)

        # A server that sends a byte now and then is silent for no socket's timeout.
        thread = Thread(target=answer, daemon=True)
        thread.start()
        thread.join(MOST_SECONDS)
        if not came:
            raise OutOfBoundsError(f"its answer takes more than {MOST_SECONDS:g} s", request=request)
        if isinstance(came[0], BaseException):
            raise came[0]
        return came[0]


def bound_answers() -> None:
    """Has MLflow's client read every answer by a `BoundedAdapter`."""
    from mlflow.utils import request_utils

    name = "TCPKeepAliveHTTPAdapter"
    theirs = getattr(request_utils, name)
    if not issubclass(theirs, BoundedAdapter):
        setattr(request_utils, name, type(name, (BoundedAdapter, theirs), {}))
        request_utils._cached_get_request_session.cache_clear()


def begin_call() -> None:
    """Counts answers anew."""
    _ASKED.times = 0


def _read(response: Response) -> None:
    content = bytearray()
    for chunk in response.iter_content(CHUNK):
        content += chunk
        if len(content) > MOST_BYTES:
            response.close()
            raise OutOfBoundsError(f"its answer has more than {MOST_BYTES} bytes", request=response.request)
    response._content = bytes(content)


def _keeps_coming(response: Response, download: Download) -> Iterator[bytes]:
    """The content of a file."""
    announced = response.headers.get("Content-Length", "")
    try:
        since, came = time.monotonic(), 0
        # `read1` returns what has come; `read` waits for a whole chunk, for ever where a byte comes now and then.
        while chunk := response.raw.read1(CHUNK, decode_content=True):
            came += len(chunk)
            if time.monotonic() - since > MOST_SECONDS:
                if came < LEAST_BYTES:
                    raise OutOfBoundsError(f"only {came} bytes of it came in {MOST_SECONDS:g} s")
                since, came = time.monotonic(), 0
            if shutil.disk_usage(download.folder).free < ROOM:
                raise OutOfBoundsError(f"it would leave less than {ROOM} bytes free on the disk")
            yield chunk
        if announced.isdecimal() and (whole := response.raw.tell()) < int(announced):
            raise OutOfBoundsError(f"it ends after {whole} of {announced} bytes")
    except Exception as error:
        response.close()
        download.broken_off = str(error)
        raise
