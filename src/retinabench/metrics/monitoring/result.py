"""What a monitor found: paths of evidence, windows of time, and the whole as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import (
    GREY,
    VERMILION,
    Document,
    JsonObject,
    Row,
    Tabular,
    axes_or_new,
    json_content,
    vars_of,
)
from retinabench.metrics.guarantees.shift.estimates import ShiftEstimates
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.proportions import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Days = NDArray[np.datetime64]
SCHEMA = "retinabench.monitor/1"


@dataclass(frozen=True, eq=False)
class Evidence:
    """The path of an e-process.

    Shapes: `day` (D,), `log_wealth` (D,).
    """

    name: str
    day: Days
    log_wealth: Floats
    needed: float
    alarm: np.datetime64 | None
    patients: int

    @property
    def wealth(self) -> float:
        """The wealth now: how strong the evidence against the hypothesis is; 1 where there is none."""
        return float(np.exp(min(self.log_wealth[-1], 500.0)))

    def to_dict(self) -> JsonObject:
        """Return the path for JSON."""
        return {
            "name": self.name,
            "patients": self.patients,
            "needed": self.needed,
            "log_wealth": float(self.log_wealth[-1]),
            "largest_log_wealth": float(self.log_wealth.max()),
            "alarm": None if self.alarm is None else str(self.alarm),
            "path": [[str(day), float(value)] for day, value in zip(self.day, self.log_wealth, strict=True)],
        }


@dataclass(frozen=True)
class Window(Document):
    """What a window of time shows."""

    start: str
    images: int
    patients: int
    labelled: int
    referred: Interval
    calibration: Interval
    risks: Mapping[str, Interval]


@dataclass(frozen=True, eq=False)
class Monitoring(Tabular):
    """What the follow-up of a certificate shows."""

    certified: Certified
    level: float
    images: int
    patients: int
    labelled: int
    overall: Mapping[str, Interval]
    risks: tuple[Evidence, ...]
    combined: Evidence
    drift: Evidence
    reference: int
    unit: str
    windows: tuple[Window, ...]
    expected: ShiftEstimates | None
    notes: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised."""
        return self.combined.alarm is not None or self.drift.alarm is not None

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the certified risks that reached their own limit."""
        return tuple(one.name for one in self.risks if one.alarm is not None)

    def records(self) -> list[Row]:
        """Return one dictionary per window of time."""
        return [
            {
                "start": one.start,
                "images": one.images,
                "patients": one.patients,
                "labelled": one.labelled,
                "referred": one.referred.value,
                "calibration": one.calibration.value,
                **{name: risk.value for name, risk in one.risks.items()},
            }
            for one in self.windows
        ]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against the certificate and for drift, day by day, and the wealth of an alarm."""
        axes = axes_or_new(axes)
        for one, name in ((self.combined, "certified risks"), (self.drift, "drift")):
            axes.plot(one.day, np.exp(np.clip(one.log_wealth, -20, 20)), label=name)
        axes.axhline(self.combined.needed, color=VERMILION, linestyle="--", linewidth=1, label="alarm")
        axes.axhline(1, color=GREY, linewidth=0.6)
        axes.set(yscale="log", ylabel="evidence (wealth)")
        axes.tick_params(axis="x", rotation=30)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return axes

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries for JSON."""
        rest = {
            name: json_content(one)
            for name, one in vars_of(self).items()
            if name not in ("certified", "reference")
        }
        return {
            "schema": SCHEMA,
            "alarm": self.alarm,
            **{name: rest.pop(name) for name in ("level", "images", "patients", "labelled")},
            "certified": self.certified.to_dict(),
            **rest,
            "drift": {**self.drift.to_dict(), "reference_patients": self.reference},
        }
