"""What a run targets, in numbers, and the two tracks: the stated posterior, and any other.

A run belongs to the stated track where the posterior that it approximates is that of the target, temperature 1 and prior
N(0, s² I), without augmentation and reweighting. Methods that state no density of the weights (MC dropout, SWAG) belong to it
where the loss that they are trained on is the negative logarithm of the stated posterior. All others belong to the open track.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen
from retinabench.fidelity.targets.target import Target

Track = Literal["stated", "open"]
TOLERANCE = 1e-6  # relative, of temperature and variance
_TEMPERATURES = ("temperature", "kl_temperature")


class Implied(Frozen):
    """The posterior that a run approximates, π(w) ∝ p(D | w)^(1/T) N(w; 0, v I).

    Args:
        temperature: T; None where no T and v describe it.
        prior_variance: v; None for an improper prior as well.
        how: In which sense it is approximated, or why there is none.
        augment: What changes the training images at random, or ``none``.
        reweight: How classes are weighed, or ``none``.
        loss_variance: Without T and v, the prior variance of the log posterior that it is trained on.
    """

    temperature: float | None = None
    prior_variance: float | None = None
    how: str = ""
    augment: str = "none"
    reweight: str = "none"
    loss_variance: float | None = None

    def departures(self, target: Target) -> list[str]:
        """Return in which points it is not the target's posterior, in words; an empty list where it is."""
        found = []
        if self.augment != "none":
            found.append(f"augmentation ({self.augment})")
        if self.reweight != "none":
            found.append(f"reweighted classes ({self.reweight})")
        if found:
            return found
        if self.temperature is None and not _close(self.loss_variance, target.prior_variance):
            return [f"no target posterior: {self.how}"]
        if self.temperature is not None:
            if not _close(self.temperature, target.temperature):
                found.append(f"temperature {self.temperature:.4g}, not {target.temperature:g}")
            if not _close(self.prior_variance, target.prior_variance):
                variance = "none" if self.prior_variance is None else f"{self.prior_variance:.4g}"
                found.append(f"prior variance {variance}, not {target.prior_variance:.4g}")
        return found

    def text(self) -> str:
        """Return the posterior in a few words."""
        extra = [
            f"{name} {value}"
            for name, value in (("augment", self.augment), ("reweight", self.reweight))
            if value != "none"
        ]
        if self.temperature is None:
            return ", ".join(["none", *extra])
        variance = "none" if self.prior_variance is None else f"{self.prior_variance:.3g}"
        return ", ".join([f"T {self.temperature:.3g}, s² {variance}", *extra])


def implied_by(run: Any, points: int) -> Implied:
    """Return what a run on N = `points` training points targets.

    Args:
        run: A `TrainingRun`.
        points: N.
    """
    found, plain = run.target_posterior(points), run.optimizer
    return Implied(
        temperature=found.temperature, prior_variance=_finite(found.prior_variance), how=found.how,
        augment=plain.augment, reweight=plain.reweight, loss_variance=_finite(found.loss_variance),
    )  # fmt: skip


def check_track(implied: Implied, target: Target, track: Track) -> None:
    """Refuse a run that does not target the stated posterior, unless it takes part in the open track.

    Args:
        implied: What the run targets.
        target: The target.
        track: The track in which it takes part.

    Raises:
        InputError: It targets another posterior; the message says in which points.
    """
    departures = implied.departures(target)
    if track == "stated" and departures:
        raise InputError(
            f"does not target the posterior of '{target.name}': {'; '.join(departures)}",
            hint="Leave these settings out, or take part in the open track by --track open.",
        )


def departures_of(run: JsonObject | None, implied: Implied | None, target: Target) -> list[str]:
    """Return in which points a submission departs from the target's posterior, by what it states and by its settings.

    Args:
        run: The settings of the run, as JSON; None where the file holds none.
        implied: What the file says that it targets; None where it does not.
        target: The target.
    """
    found = [] if implied is None else implied.departures(target)
    if run is None:
        return found if implied is not None else ["it does not state what it targets"]
    return list(dict.fromkeys(found + _of_settings(run, target)))


def _of_settings(run: JsonObject, target: Target) -> list[str]:
    """Return the departures that the settings of a run show by themselves, without its method."""
    optimizer = run.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return []
    found = []
    for key, word in (("augment", "augmentation"), ("reweight", "reweighted classes")):
        if (value := optimizer.get(key, "none")) not in ("none", False):
            found.append(f"{word} ({str(value)[:20]})")
    cold = [value for value in _temperatures(run.get("method")) if not _close(value, target.temperature)]
    found += [f"temperature {value:.4g}, not {target.temperature:g}" for value in cold[:1]]
    l2 = optimizer.get("l2")
    if isinstance(l2, int | float):
        variance = 1 / (2 * target.train * l2) if l2 > 0 else None
        if not _close(variance, target.prior_variance):
            stated = "none" if variance is None else f"{variance:.4g}"
            found.append(f"prior variance {stated}, not {target.prior_variance:.4g}")
    return found


def _temperatures(method: Any) -> Iterator[float]:
    while isinstance(method, Mapping):
        for key in _TEMPERATURES:
            if isinstance(value := method.get(key), int | float):
                yield float(value)
        method = method.get("member")


def _close(value: float | None, wanted: float) -> bool:
    return value is not None and math.isfinite(value) and abs(value / wanted - 1) <= TOLERANCE


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
