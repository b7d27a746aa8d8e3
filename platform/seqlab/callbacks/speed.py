"""Training speed of a fit."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor


class Speed:
    """Counts tokens and seconds of training, without validation and without each process's first batch. It is the one
    meter: the progress bar and the run's metrics both read it.

    The first batch compiles and warms up: its tokens are counted, but not timed.

    Attributes:
        num_tokens: read so far, by all ranks (`num_tokens` of seqlab.batch).
        timed_tokens: those of them that were timed.
        seconds: that they took.
        peak: tokens a second that the devices would train at their peak; None = not known.
    """

    peak: float | None = None

    def __init__(self) -> None:
        self.num_tokens = 0
        self.timed_tokens = 0
        self.seconds = 0.0
        self._unread: Tensor | None = None
        self._warm = False
        self._timed_from: float | None = None
        self._reported = (0, 0.0)

    def count(self, num_tokens: Tensor) -> None:
        """Counts a trained batch, num_tokens () of all ranks.

        The number is read later, since reading it off a GPU waits for the GPU.
        """
        self._unread = num_tokens if self._unread is None else self._unread + num_tokens
        if not self._warm:
            self._warm = True
            self._read()
            self.resume()

    def pause(self) -> None:
        """Stops timing: something other than training begins."""
        self._read()
        self._timed_from = None

    def resume(self) -> None:
        """Resumes timing: training goes on."""
        if self._warm:
            self._timed_from = time.perf_counter()

    @property
    def rate(self) -> float:
        """Tokens a second of all that was timed, up to the last batch that was read; 0 before."""
        if self._unread is not None:
            self._read()
        return self.timed_tokens / self.seconds if self.seconds else 0.0

    def metrics(self) -> dict[str, float]:
        """Tokens, seconds, the speed of all that was timed and of what was timed since the last call, and the
        share of the peak that the first is (MFU: Chowdhery et al. 2022, "PaLM", appendix B)."""
        rate = self.rate
        tokens, seconds = self.timed_tokens - self._reported[0], self.seconds - self._reported[1]
        self._reported = self.timed_tokens, self.seconds
        metrics = {"num_tokens": float(self.num_tokens), "perf/train_seconds": self.seconds}
        if tokens > 0 and seconds > 0:
            metrics["perf/tokens_per_s"] = rate
            metrics["perf/tokens_per_s_now"] = tokens / seconds
            if self.peak is not None:
                metrics["perf/mfu"] = rate / self.peak
        return metrics

    def state_dict(self) -> dict[str, Any]:
        self._read()
        return {"num_tokens": self.num_tokens, "timed_tokens": self.timed_tokens, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_tokens = state_dict["num_tokens"]
        self.timed_tokens = state_dict["timed_tokens"]
        self.seconds = state_dict["seconds"]
        self._reported = self.timed_tokens, self.seconds

    def _read(self) -> None:
        tokens = 0 if self._unread is None else int(self._unread.item())
        self._unread = None
        self.num_tokens += tokens
        if self._timed_from is not None:
            now = time.perf_counter()
            self.timed_tokens += tokens
            self.seconds += now - self._timed_from
            self._timed_from = now
