"""Time limit of a fit, including its closing validation."""

from __future__ import annotations

from datetime import timedelta

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.trainer.states import RunningStage


class MaxTime(Timer):
    """Ends a fit early enough for one more validation, which is expected to take as long as the last one.

    Args:
        duration: time limit, in the format of Lightning's `max_time`.

    Raises:
        ValueError: the limit is not a valid duration.
    """

    def __init__(self, duration: str | timedelta | dict[str, int]) -> None:
        try:
            super().__init__(duration)
        except MisconfigurationException as error:
            raise ValueError(f"--trainer.max_time {duration} is not a time; accepted: DD:HH:MM:SS") from error
        assert self._duration is not None
        self.limit: float = self._duration

    @property
    def state_key(self) -> str:
        return "Timer"

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if not trainer.sanity_checking:
            self._duration = self.limit - self.time_elapsed(RunningStage.VALIDATING)
