"""Limits on a server's responses: bytes and seconds per response, and responses per call. A run's file may have any
size and take any time, as long as data keeps arriving and the disk has room."""

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
"""Maximum size of a response in bytes. A page of 1,000 runs with 200 long parameters each has a fifth of it."""
MOST_SECONDS = 60.0
"""Maximum seconds until a response is complete, even if bytes keep arriving."""
MOST_ANSWERS = 1000
"""Maximum responses to one call of MLflow's client, which requests pages as long as the server announces more."""
CHUNK = 2**16
LEAST_BYTES = 2**16
"""Minimum bytes of a file that must arrive within `MOST_SECONDS`."""
ROOM = 2**28
"""Bytes that a download must leave free on the disk."""

_ASKED = local()


class OutOfBoundsError(RequestException):
    """A response exceeds one of the limits."""


@dataclass
class Download:
    """A download of files into a folder.

    Attributes:
        broken_off: reason for an incomplete file, which MLflow does not report; None = complete.
    """

    folder: Path
    broken_off: str | None = None


_downloads: list[Download] = []
"""Active downloads, shared by all threads because MLflow downloads in its own threads."""


@contextmanager
def downloading(folder: Path) -> Iterator[Download]:
    """Records the outcome of MLflow's downloads within the context."""
    _downloads.append(Download(folder))
    try:
        yield _downloads[-1]
    finally:
        _downloads.pop()


class BoundedAdapter(HTTPAdapter):
    """HTTP adapter that enforces the limits."""

    def send(self, request: PreparedRequest, stream: bool = False, *args: Any, **kwargs: Any) -> Response:
        """Sends a request like `HTTPAdapter.send`, and reads the content unless it is streamed."""
        if hasattr(request.body, "read"):  # file upload
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
                    if response.is_redirect:  # not followed; its content is not the file
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

        # A server that sends a byte now and then never triggers a socket timeout.
        thread = Thread(target=answer, daemon=True)
        thread.start()
        thread.join(MOST_SECONDS)
        if not came:
            raise OutOfBoundsError(f"its answer takes more than {MOST_SECONDS:g} s", request=request)
        if isinstance(came[0], BaseException):
            raise came[0]
        return came[0]


def bound_answers() -> None:
    """Makes MLflow's client use a `BoundedAdapter` for every request."""
    from mlflow.utils import request_utils

    name = "TCPKeepAliveHTTPAdapter"
    theirs = getattr(request_utils, name)
    if not issubclass(theirs, BoundedAdapter):
        setattr(request_utils, name, type(name, (BoundedAdapter, theirs), {}))
        request_utils._cached_get_request_session.cache_clear()


def begin_call() -> None:
    """Resets the response count."""
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
    """Yields the content of a file while data keeps arriving."""
    announced = response.headers.get("Content-Length", "")
    try:
        since, came = time.monotonic(), 0
        # `read1` returns available data; `read` waits for a whole chunk, possibly forever.
        while chunk := response.raw.read1(CHUNK, decode_content=True):
            came += len(chunk)
            if time.monotonic() - since > MOST_SECONDS:
                if came < LEAST_BYTES:
                    raise OutOfBoundsError(f"only {came} bytes of it arrived in {MOST_SECONDS:g} s")
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
