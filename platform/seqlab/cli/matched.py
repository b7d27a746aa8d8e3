"""`--match`: solves for the model size that meets a budget, before the fit."""

from __future__ import annotations

from typing import Any

from seqlab.budgets.match import Matched, match
from seqlab.callbacks.step_seconds import step_seconds


def matched(options: Any, config: dict[str, Any]) -> Matched | None:
    """Solves the size requested by a fit's options, in its resolved config; None if not requested. A match of seconds
    is removed from the config, because measuring again would give another size.

    Raises:
        ValueError: the options conflict, or as in `match`.
    """
    if (options.match is None) != (options.to is None):
        raise ValueError("--match needs --to, and --to needs --match: a budget and its amount")
    if options.match is None:
        return None
    if options.match == "seconds" and (options.resume, options.ckpt_path) != (None, None):
        raise ValueError(
            "--match seconds finds another number each time, which a resumed fit cannot use; find it first, then give "
            f"{options.match_by}"
        )

    measure = lambda task, data: step_seconds(task, data, options)  # noqa: E731
    found = match(config, options.match, options.to, options.match_by, measure)
    if options.match == "seconds":
        config |= {"match": None, "to": None}
    return found
