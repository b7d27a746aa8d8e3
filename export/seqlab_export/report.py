"""What `verify_bundle` found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was checked.

    Attributes:
        kind: what was checked, such as "files" or "prefill".
        subject: on what: a file, or a cell and an output.
        ok: whether it is as it should be.
        note: in words, what was found.
        error: RMS error against float64, where numbers were compared.
        torch_error: the same of PyTorch in this precision.
        limit: what `error` may be at most.
        largest: the largest single error, which is not gated.
    """

    kind: str
    subject: str
    ok: bool
    note: str = ""
    error: float | None = None
    torch_error: float | None = None
    limit: float | None = None
    largest: float | None = None


@dataclass
class Report:
    """The checks of one bundle with one provider."""

    provider: str
    onnxruntime: str
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything was checked and is as it should be."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {"ok": self.ok, **asdict(self)}

    def table(self) -> Table:
        """A line a kind of check; the failures one by one below."""
        from rich.table import Table

        table = Table(title=f"Parity with float64, onnxruntime {self.onnxruntime} on {self.provider}")
        table.add_column("check")
        table.add_column("compared", justify="right")
        table.add_column("worst RMS error", justify="right")
        table.add_column("PyTorch's there", justify="right")
        table.add_column("of its limit", justify="right")
        table.add_column("largest error", justify="right")
        table.add_column("result")
        for kind, group in groupby(self.checks, key=lambda check: check.kind):
            table.add_row(kind, *_summary(list(group)))
        for check in self.failures[:10]:
            table.caption = f"{table.caption or ''}\n{check.kind}: {check.subject}: {check.note}".strip()
        return table


def _summary(checks: list[Check]) -> Iterable[str]:
    failed = sum(not check.ok for check in checks)
    result = f"[red]{failed} failed[/red]" if failed else "[green]ok[/green]"
    measured = [check for check in checks if check.error is not None and check.limit is not None]
    if not measured:
        return str(len(checks)), "", "", "", "", result
    worst = max(measured, key=_share)
    largest = max(check.largest or 0.0 for check in measured)
    return (
        str(len(checks)),
        f"{worst.error:.1e}",
        f"{worst.torch_error:.1e}",
        f"{_share(worst):.0%}",
        f"{largest:.1e}",
        result,
    )


def _share(check: Check) -> float:
    """The error as a share of its limit; infinite where it is not a number."""
    assert check.error is not None and check.limit is not None
    if check.error == 0:
        return 0.0
    return check.error / check.limit if check.limit > 0 and check.error == check.error else float("inf")
