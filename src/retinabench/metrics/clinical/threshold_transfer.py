"""Choose the referral threshold on validation patients, freeze it, and see what it does to new ones.

A threshold read off the test curve is a result of the test set. Here it is chosen on the validation split, and the test
split, in domain and shifted, only says what it costs and what it yields. `guarantee.py` holds the guaranteed mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.clinical.risk_control import Certificate, certify_threshold, resemblance
from retinabench.metrics.clinical.screening import referral_view_intervals
from retinabench.metrics.clinical.threshold import Choice, choose_threshold
from retinabench.metrics.inference.bootstrap import check_draws, cluster_bootstrap, percentile_interval
from retinabench.metrics.inference.proportions import binary
from retinabench.metrics.uncertainty import referral_uncertainty, uncertainties
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
SCHEMA = "retinabench.transfer/1"


def realised(
    label: ArrayLike,
    positive: ArrayLike,
    uncertainty: ArrayLike,
    threshold: float,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    *,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Any]:
    """What a frozen threshold does to a set: referral rate, selective risk, and the four readings, with intervals.

    All (N,); cluster: patients, None: every image its own. Returns {images, referred, referral_rate, selective_risk,
    readings: {reading: {rate: {value, low, high}}}}; every value clustered by patient, None where undefined.
    """
    y, said = binary(label, "label"), binary(positive, "positive")
    sent = uncertainties(uncertainty, len(y)) > threshold
    ids: Any = np.arange(len(y)) if cluster is None else cluster
    wrong = (y != said) & ~sent

    def statistic(weight: Floats) -> Floats:
        retained = float(weight[~sent].sum())
        risk = float(weight[wrong].sum()) / retained if retained else np.nan
        return np.array([1 - retained / float(weight.sum()), risk])

    rate, risk = _intervals(statistic, ids, len(y), bootstrap, seed, level)
    views = referral_view_intervals(
        y, said, sent, ids, reader=reader, replicates=bootstrap, seed=seed, level=level
    )
    return {
        "images": len(y),
        "referred": int(sent.sum()),
        "referral_rate": rate,
        "selective_risk": risk,
        "readings": {
            name: {key: _entry(*values) for key, values in rates.items()} for name, rates in views.items()
        },
    }


@dataclass(frozen=True)
class Transfer:
    """A threshold from validation, what it does to the test sets, and whether its guarantee still applies there.

    sets: {"validation" | "in_domain" | "shifted": {…`realised`, resemblance: {distance, p_value, level, void, …} and, in
    guaranteed mode, guarantee: "not refuted" | "void" | "none"}}.
    """

    uncertainty: str
    choice: Choice
    certificate: Certificate | None
    sets: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def threshold(self) -> float | None:
        """The frozen threshold: the certified one in guaranteed mode, else the chosen one."""
        return self.choice.threshold if self.certificate is None else self.certificate.threshold

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries; an infinite threshold is written as text ("inf": nobody is referred)."""
        content = {
            "schema": SCHEMA,
            "uncertainty": self.uncertainty,
            "threshold": self.threshold,
            "choice": asdict(self.choice),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "sets": self.sets,
            "notes": list(self.notes),
        }
        return {key: _finite(value) for key, value in content.items()}


def transfer(
    predictions: Predictions,
    target: str = "selective_risk",
    goal: float = 0.05,
    *,
    delta: float | None = None,
    uncertainty: str = "auto",
    threshold: float | None = None,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
    resemblance_level: float = 0.05,
) -> Transfer:
    """Choose on the in-domain validation split, freeze, report on the test sets.

    Arguments
    ---------
    target, goal: see `choose_threshold`. delta: None for the plain choice; a number for the guaranteed mode, which needs
    the target `selective_risk` (or `accuracy`, its complement) and certifies it with confidence 1 - delta, or refuses.
    threshold: the model calls an image referable at prob >= threshold; None: at prob > 1/2, as accuracy does.
    resemblance_level: of the test (per set) that the uncertainty of a set resembles validation's; where that is refuted
    the guarantee is void there. Intervals are at 95 %.

    Raises `InputError` without validation or test images, and where a patient is in both: a guarantee is about new ones.
    """
    check_draws(bootstrap, seed)
    if delta is not None and target not in ("selective_risk", "accuracy"):
        raise InputError(
            f"'{target}' cannot be guaranteed", hint="Use the target selective_risk or accuracy."
        )
    validation = predictions.select(domain="in_domain", split="validation")
    if validation is None:
        raise InputError(
            "holds no in-domain image of the validation split",
            file=predictions.source,
            hint="Mark the images that may choose the threshold by split = validation.",
        )
    sets = {name: predictions.select(domain=name, split="test") for name in ("in_domain", "shifted")}
    if not any(sets.values()):
        raise InputError("holds no image of the test split", file=predictions.source)
    _check_new_patients(validation, sets["in_domain"])

    def seen(part: Predictions) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats]:
        said = part.prob > 0.5 if threshold is None else part.prob >= threshold
        return part.label == 1, said, referral_uncertainty(part, uncertainty)[0]

    choice = choose_threshold(*seen(validation), target, goal)
    certificate = None
    if delta is not None:
        risk = goal if target == "selective_risk" else 1 - goal
        certificate = certify_threshold(*seen(validation), validation.patient_id, risk, delta, seed=seed)
    frozen = choice.threshold if certificate is None else certificate.threshold
    table: dict[str, Any] = {}
    if frozen is not None:
        for name, part in (("validation", validation), *sets.items()):
            if part is None:
                continue
            y, said, values = seen(part)
            table[name] = realised(
                y, said, values, frozen, part.patient_id, reader=reader, bootstrap=bootstrap, seed=seed
            )
            if name == "validation":
                continue
            alike = resemblance(
                seen(validation)[2],
                validation.patient_id,
                values,
                part.patient_id,
                level=resemblance_level,
                seed=seed,
            )
            table[name]["resemblance"] = alike.to_dict()
            table[name]["guarantee"] = (
                "none" if certificate is None else "void" if alike.void else "not refuted"
            )
    notes = [] if validation.patient_id is not None else ["no patient_id: every image counts as a patient"]
    if certificate is not None and not certificate.granted:
        notes.append(f"no guarantee: {certificate.why}")
    if frozen is None and certificate is None:
        notes.append(f"no threshold: {choice.why}")
    return Transfer(
        referral_uncertainty(validation, uncertainty)[1], choice, certificate, table, tuple(notes)
    )


def _check_new_patients(validation: Predictions, test: Predictions | None) -> None:
    if test is None or test.patient_id is None or validation.patient_id is None:
        return
    both = np.intersect1d(validation.patient_id, test.patient_id)
    if len(both):
        raise InputError(
            f"{len(both)} patients are in the validation and in the test split, such as '{both[0][:60]}'",
            file=validation.source,
            column="patient_id",
            hint="Split by patient.",
        )


def _intervals(
    statistic: Any, cluster: Any, n: int, bootstrap: int, seed: int, level: float
) -> list[dict[str, float | None]]:
    values = statistic(np.ones(n))
    low, high = percentile_interval(
        cluster_bootstrap(statistic, cluster, replicates=bootstrap, seed=seed), level
    )
    return [_entry(*ends) for ends in zip(values.tolist(), low.tolist(), high.tolist(), strict=True)]


def _entry(value: float, low: float, high: float) -> dict[str, float | None]:
    return {
        key: number if np.isfinite(number) else None
        for key, number in (("value", value), ("low", low), ("high", high))
    }


def _finite(content: Any) -> Any:
    """JSON knows no infinity: it becomes text."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return str(content) if isinstance(content, float) and not np.isfinite(content) else content
