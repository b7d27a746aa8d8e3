"""Training speed of a fit."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor


class Speed:
    """Counts training tokens and training seconds, excluding validation. The progress bar and the run's metrics share
    one meter.

    Tokens of each process's first batch are counted but not timed, because it includes compilation and warm-up.

    Attributes:
        num_tokens: tokens read so far by all ranks (`num_tokens` of seqlab.batch).
        timed_tokens: tokens read in the timed intervals.
        seconds: duration of the timed intervals.
        peak: tokens per second at the devices' peak FLOP/s; None = unknown.
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
        """Counts a training batch, num_tokens () over all ranks.

        The value is read later, because reading it synchronises with the GPU.
        """
        self._unread = num_tokens if self._unread is None else self._unread + num_tokens
        if not self._warm:
            self._warm = True
            self._read()
            self.resume()

    def pause(self) -> None:
        """Stops timing, before something other than training."""
        self._read()
        self._timed_from = None

    def resume(self) -> None:
        """Resumes timing when training continues."""
        if self._warm:
            self._timed_from = time.perf_counter()

    @property
    def rate(self) -> float:
        """Tokens per second over all timed intervals; 0 before the first."""
        if self._unread is not None:
            self._read()
        return self.timed_tokens / self.seconds if self.seconds else 0.0

    def metrics(self) -> dict[str, float]:
        """Metrics: tokens, seconds, the overall speed and the speed since the last call, and the overall speed as a
        share of the peak (MFU: Chowdhery et al. 2022, "PaLM", appendix B)."""
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
