"""Report of `verify_bundle`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from seqlab.files.finite_json import finite

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of one check.

    Attributes:
        kind: kind of check, such as "files" or "prefill".
        subject: subject of the check, such as a file or a cell.
        ok: True if the check passed.
        note: finding, if any.
        error: RMS error against float64, relative to the RMS of the reference; set if numbers were compared.
        torch_error: PyTorch's own relative RMS error in this precision.
        limit: maximum allowed `error`.
        largest: largest single relative error, which has no limit.
    """

    kind: str
    subject: str
    ok: bool
    note: str = ""
    error: float | None = None
    torch_error: float | None = None
    limit: float | None = None
    largest: float | None = None


class ValidationLoss(NamedTuple):
    """Validation loss of a model and of its bundle on the same rows.

    Attributes:
        model, bundle: mean loss per target.
        half_width: half-width of the 95% interval of their difference.
        targets, rows: number of targets, and of rows that hold them.
    """

    model: float
    bundle: float
    half_width: float
    targets: int
    rows: int

    def __str__(self) -> str:
        digits = max(2 - math.floor(math.log10(self.half_width)), 4) if self.half_width > 0 else 4
        change = f"{self.bundle - self.model:+.{digits}f} ± {self.half_width:.{digits}f}"
        return (
            f"Validation loss {self.model:.4f} before, {self.bundle:.4f} after: {change} "
            f"({self.targets:,} targets in {self.rows:,} rows)."
        )


@dataclass
class Report:
    """The checks of one bundle with one provider.

    Attributes:
        provider: "cpu" or "cuda".
        options: options of the provider.
        onnxruntime: version of onnxruntime.
        precision: precision of the bundle.
        divergence: as in `Proof.distribution`; set if every check passed.
        validation: cost of quantisation, measured by an export of a run.
    """

    provider: str
    options: dict[str, str]
    onnxruntime: str
    checks: list[Check] = field(default_factory=list)
    precision: str = "fp32"
    divergence: dict[str, float] | None = None
    validation: ValidationLoss | None = None

    @property
    def ok(self) -> bool:
        """True if there is at least one check and every check passed."""
        return bool(self.checks) and not self.failures

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe values; numbers that are not finite become null. `validation` is absent if it is None."""
        content: dict[str, Any] = finite({"ok": self.ok, **asdict(self)})
        if self.validation is None:
            del content["validation"]
        return content

    def table(self) -> Table:
        """One line per kind of check, with the cell that is nearest to its limit, followed by the failures."""
        from rich.table import Table

        options = "".join(f", {name} {value}" for name, value in self.options.items())
        table = Table(
            title=f"Parity of {self.precision} with float64: onnxruntime {self.onnxruntime}, {self.provider}{options}"
        )
        table.add_column("check")
        for heading in ("compared", "RMS error", "PyTorch's", "of limit", "largest"):
            table.add_column(heading, justify="right")
        table.add_column("result")
        for kind, group in groupby(self.checks, key=lambda check: check.kind):
            table.add_row(kind, *_summary(list(group)))
        lines = [f"{check.kind}: {check.subject}: {check.note}" for check in self.failures]
        more = [f"and {len(lines) - 10} more"] if len(lines) > 10 else []
        notes = [f"{check.kind}: {check.subject}: {check.note}" for check in self.checks if check.ok and check.note]
        if self.divergence is not None:
            kl, top1 = max(self.divergence["kl"], 0.0), self.divergence["top1"]
            notes.append(
                f"KL from float64's distribution {kl:.1e} nats, the likeliest the same at {top1:.1%} of places."
            )
        notes += [str(self.validation)] if self.validation is not None else []
        table.caption = "\n".join([*lines[:10], *more, *notes, "Errors are relative to the RMS of the reference."])
        table.caption_justify = "left"
        return table


def _summary(checks: list[Check]) -> tuple[str, ...]:
    failed = sum(not check.ok for check in checks)
    result = f"[red]{failed} failed[/red]" if failed else "[green]ok[/green]"
    measured = [check for check in checks if check.error is not None and check.limit]
    if not measured:
        return str(len(checks)), "", "", "", "", result
    nearest = max(measured, key=share)
    largest = max(check.largest or 0.0 for check in measured)
    numbers = (f"{nearest.error:.1e}", f"{nearest.torch_error:.1e}", f"{share(nearest):.0%}", f"{largest:.1e}")
    return str(len(checks)), *numbers, result


def share(check: Check) -> float:
    """The error as a fraction of its limit; infinite if it is not a number."""
    assert check.error is not None and check.limit
    return math.inf if math.isnan(check.error) else check.error / check.limit
