"""The run that a fit continues if its command line does not name one."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from seqlab.tracking.params import config_hash
from seqlab.tracking.runs import TrackedRun, listed, unfinished_runs


def check_findable(options: Any) -> None:
    """Refuses `--resume auto` if a restart of the job could not find its run or checkpoint."""
    if options.ckpt_path is not None or options.trainer.logger is False:
        given = "trainer.logger is false" if options.ckpt_path is None else f"--ckpt_path is {options.ckpt_path}"
        raise ValueError(f"--resume auto finds the run and its checkpoint in the tracking store, but {given}")


def only_unfinished(experiment: str, config: dict[str, Any]) -> str:
    """Id of the experiment's only unfinished run with this config."""
    runs = unfinished_runs(experiment, config_hash(config))
    if len(runs) != 1:
        raise ValueError(
            f"--ckpt_path last needs one unfinished run of experiment {experiment} with this config, "
            f"and there {f'are {len(runs)}: {listed(runs)}' if runs else 'is none'}"
        )
    return runs[0].id


@rank_zero_only
def say_finished(run: TrackedRun) -> None:
    on = f"to train it on: seqlab resume {run.id[:8]} --trainer.max_steps N"
    print(f"Run {run.name} ({run.id[:8]}) is FINISHED and is not trained again · {on}", flush=True)
