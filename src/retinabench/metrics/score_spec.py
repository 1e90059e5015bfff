"""`ScoreSpec`: what a score is called, which way is better, its unit, its version, its function and its interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.inference.interval_methods import IntervalMethod, Percentile
from retinabench.metrics.selective import referral_curves
from retinabench.metrics.sorted_images import Weighted

Direction = Literal["higher", "lower", ""]
Needs = Literal["", "classes", "ten", "positives", "negatives", "errors", "domains"]
ON_REQUEST: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoreSpec:
    """A named score of a set of images.

    Args:
        name: Its key in files, such as ``auroc``.
        label: What tables and figures call it.
        direction: Which way is better; empty where neither is.
        unit: Its unit, such as ``nats``; empty for a pure number.
        version: Raised by any change of a number.
        function: Weighted images -> value, NaN where undefined.
        needs: What makes it defined: both ``classes``, ``ten`` images of each class, ``positives``, ``negatives``, right
            and wrong predictions (``errors``), or both ``domains``.
        sets: The sets that `retinabench.score` computes it for; None for all, `ON_REQUEST` for none.
        batched: The same for many weightings at once, (R,) values equal to those of the function to 1e-12, of a share
            of the retained to 1e-9; None where only the function is known. Bootstrap replicates use it.
        interval: How its interval is computed, see `metrics.inference.interval_methods`.
        formula: Its definition, in the notation of `docs/scores.md`.
        misleads: When its value misleads, as the end of a sentence that begins with "It misleads when".
    """

    name: str
    label: str
    direction: Direction
    unit: str
    version: int
    function: Callable[[Weighted], float]
    needs: Needs = ""
    sets: tuple[str, ...] | None = None
    interval: IntervalMethod = field(default_factory=Percentile)
    batched: Callable[[Batch], NDArray[np.float64]] | None = None
    formula: str = ""
    misleads: str = ""

    def __call__(self, w: Weighted) -> float:
        """Return the value for weighted images, NaN where undefined."""
        return self.function(w)

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is better, else 0."""
        return {"higher": 1, "lower": -1, "": 0}[self.direction]

    @property
    def arrow(self) -> str:
        """The direction as an arrow; empty where neither way is better."""
        return {"higher": "↑", "lower": "↓", "": ""}[self.direction]

    @property
    def heading(self) -> str:
        """Label, unit and arrow for the header of a column, such as `NLL, nats ↓`; the arrow is not broken off."""
        text = f"{self.label}, {self.unit}" if self.unit else self.label
        return f"{text}\u00a0{self.arrow}" if self.arrow else text

    def given_for(self, set_name: str) -> bool:
        """Whether `retinabench.score` computes the score for this set."""
        return self.sets is None or set_name in self.sets

    def available_for(self, set_name: str) -> bool:
        """Whether the score can be asked for on this set."""
        return self.given_for(set_name) or self.sets == ON_REQUEST

    def why_undefined(self, w: Weighted) -> str:
        """Say why the score has no value on these images, with the counts."""
        label, error = w.cases.label, w.cases.error
        classes = f"{int(label.sum())} positive and {int((~label).sum())} negative images"
        reasons = {
            "classes": f"needs both classes; the set has {classes}",
            "ten": f"needs at least {referral_curves.MIN_CLASS:g} images of each class; the set has {classes}",
            "positives": f"needs positive images; the set has {classes}",
            "negatives": f"needs negative images; the set has {classes}",
            "errors": f"needs correct and wrong predictions; the set has {int((~error).sum())} correct and {int(error.sum())} wrong",
        }
        return reasons.get(self.needs, "undefined on this set")
