"""What to tell of a name that is not accepted: the one that was meant, or all that are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def instead(given: str, accepted: Sequence[str]) -> str:
    """Asks for the name that is close to the given one, or to its first part, in any case; or lists all."""
    by_lower = {name.lower(): name for name in accepted}
    for text in (given.lower(), given.lower().partition(".")[0]):
        if close := difflib.get_close_matches(text, by_lower, n=1):
            return f"did you mean {by_lower[close[0]]}?"
    return f"accepted: {', '.join(accepted) or 'none'}"
