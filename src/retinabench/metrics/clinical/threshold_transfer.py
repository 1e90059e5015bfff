"""Choose the referral threshold on validation patients, freeze it, and report what it does on new ones.

A threshold read off the test curve is a result of the test set. Here it is chosen on the validation split, and the test
split, in domain and shifted, only says what it costs and what it yields. The guaranteed mode is in `risk_control.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.clinical.risk_control import Certificate, Resemblance, certify_threshold, resemblance
from retinabench.metrics.clinical.screening import referral_view_intervals
from retinabench.metrics.clinical.threshold import Choice, choose_threshold
from retinabench.metrics.inference.bootstrap import check_draws, cluster_bootstrap, percentile_interval
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import binary
from retinabench.metrics.tabular import Tabular
from retinabench.metrics.uncertainty import referral_uncertainty, uncertainties
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SCHEMA = "retinabench.transfer/1"


@dataclass(frozen=True)
class Realised:
    """What a frozen threshold does to a set.

    Args:
        images: Number of images.
        referred: Number of images referred.
        referral_rate: Share of the images that is referred.
        selective_risk: Share of wrong calls among the retained.
        readings: Reading of "referred" -> rate -> value with its interval; see `referral_views`.
        resemblance: Test of whether the uncertainty of the set resembles validation's; None on validation itself.
        guarantee: `not refuted`, `void` or `none`; None on validation itself.
    """

    images: int
    referred: int
    referral_rate: Interval
    selective_risk: Interval
    readings: Mapping[str, Mapping[str, Interval]]
    resemblance: Resemblance | None = None
    guarantee: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the set's part of the JSON of `retinabench transfer`."""
        content: dict[str, Any] = {
            "images": self.images,
            "referred": self.referred,
            "referral_rate": self.referral_rate.to_dict(),
            "selective_risk": self.selective_risk.to_dict(),
            "readings": {
                name: {rate: one.to_dict() for rate, one in rates.items()}
                for name, rates in self.readings.items()
            },
        }
        if self.resemblance is not None:
            content |= {"resemblance": self.resemblance.to_dict(), "guarantee": self.guarantee}
        return content


@dataclass(frozen=True)
class Transfer(Tabular):
    """A threshold from validation, what it does to the test sets, and whether its guarantee still applies there.

    Args:
        uncertainty: What orders the referral.
        choice: The threshold chosen by its plain estimate.
        certificate: The certified threshold in guaranteed mode, else None.
        sets: `validation`, `in_domain` and `shifted`, as far as they exist -> what the threshold does there.
        notes: What a reader of the numbers must know.

    Example:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(
        ...     ["a", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2
        ... )
        >>> found = rb.transfer(predictions, "accuracy", 1.0, bootstrap=20)
        >>> found["in_domain"].referred
        1
    """

    uncertainty: str
    choice: Choice
    certificate: Certificate | None
    sets: Mapping[str, Realised]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Realised:
        return self.sets[name]

    @property
    def threshold(self) -> float | None:
        """The frozen threshold: the certified one in guaranteed mode, else the chosen one."""
        return self.choice.threshold if self.certificate is None else self.certificate.threshold

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per set."""
        return [
            {
                "set": name,
                "images": one.images,
                "referred": one.referred,
                "referral_rate": one.referral_rate.value,
                "selective_risk": one.selective_risk.value,
                "low": one.selective_risk.low,
                "high": one.selective_risk.high,
                "guarantee": one.guarantee,
            }
            for name, one in self.sets.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries; an infinite threshold, which refers no image, is written as the text "inf"."""
        content = {
            "schema": SCHEMA,
            "uncertainty": self.uncertainty,
            "threshold": self.threshold,
            "choice": asdict(self.choice),
            "certificate": None if self.certificate is None else asdict(self.certificate),
            "sets": {name: one.to_dict() for name, one in self.sets.items()},
            "notes": list(self.notes),
        }
        return {key: _infinity_as_text(value) for key, value in content.items()}


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
    """Choose a referral threshold on the in-domain validation split, freeze it, and report on the test sets.

    Args:
        predictions: Predictions with a validation and a test split.
        target: What the threshold must reach, see `choose_threshold`.
        goal: The value to reach.
        delta: None for the plain choice; a number for the guaranteed mode, which needs the target `selective_risk` (or
            `accuracy`, its complement) and certifies it with confidence 1 - delta, or refuses.
        uncertainty: What orders the referral, as in `score`.
        threshold: The model calls an image referable at prob >= threshold; None: at prob > 1/2, as accuracy does.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Replicates of the intervals, which are at 95 %.
        seed: Seed of everything random.
        resemblance_level: Level of the test, per set, that the uncertainty of a set resembles validation's; where that
            is refuted the guarantee is void.

    Returns:
        The threshold and what it does on every set.

    Raises:
        InputError: Validation or test images are missing, or a patient is in both: a guarantee is about new patients.

    Example:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(
        ...     ["a", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2
        ... )
        >>> round(rb.transfer(predictions, "accuracy", 1.0, bootstrap=20).threshold, 4)
        0.3251
    """
    check_draws(bootstrap, seed)
    if delta is not None and target not in ("selective_risk", "accuracy"):
        raise InputError(
            f"'{target}' cannot be guaranteed", hint="Use the target selective_risk or accuracy."
        )
    validation, tests = _parts(predictions)
    seen = {
        name: _Seen.of(part, uncertainty, threshold)
        for name, part in (("validation", validation), *tests.items())
    }
    first = seen["validation"]
    choice = choose_threshold(first.label, first.positive, first.uncertainty, target, goal)
    certificate = None
    if delta is not None:
        risk = goal if target == "selective_risk" else 1 - goal
        certificate = certify_threshold(
            first.label, first.positive, first.uncertainty, first.patient, risk, delta, seed=seed
        )
    frozen = choice.threshold if certificate is None else certificate.threshold
    table: dict[str, Realised] = {}
    for name, one in seen.items() if frozen is not None else ():
        assert frozen is not None
        table[name] = realised(
            one.label,
            one.positive,
            one.uncertainty,
            frozen,
            one.patient,
            reader=reader,
            bootstrap=bootstrap,
            seed=seed,
        )
        if name != "validation":
            alike = resemblance(
                first.uncertainty,
                first.patient,
                one.uncertainty,
                one.patient,
                level=resemblance_level,
                seed=seed,
            )
            kind = "none" if certificate is None else "void" if alike.void else "not refuted"
            table[name] = replace(table[name], resemblance=alike, guarantee=kind)
    notes = _notes(validation, choice, certificate)
    return Transfer(referral_uncertainty(validation, uncertainty)[1], choice, certificate, table, notes)


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
) -> Realised:
    """Return what a frozen threshold does to a set, with intervals clustered by patient.

    Args:
        label: (N,) 0 or 1.
        positive: (N,) the model's call.
        uncertainty: (N,) finite.
        threshold: Images with a larger uncertainty are referred.
        cluster: (N,) patients; None: every image its own.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Number of replicates.
        seed: Seed of the bootstrap.
        level: Level of the intervals.

    Returns:
        Referral rate, selective risk and the four readings.
    """
    y, said = binary(label, "label"), binary(positive, "positive")
    sent = uncertainties(uncertainty, len(y)) > threshold
    ids: Any = np.arange(len(y)) if cluster is None else cluster
    wrong = (y != said) & ~sent

    def statistic(weight: Floats) -> Floats:
        retained = float(weight[~sent].sum())
        risk = float(weight[wrong].sum()) / retained if retained else np.nan
        return np.array([1 - retained / float(weight.sum()), risk])

    values = statistic(np.ones(len(y)))
    low, high = percentile_interval(cluster_bootstrap(statistic, ids, replicates=bootstrap, seed=seed), level)
    rate, risk = (Interval(*map(float, ends)) for ends in zip(values, low, high, strict=True))
    views = referral_view_intervals(
        y, said, sent, ids, reader=reader, replicates=bootstrap, seed=seed, level=level
    )
    readings = {name: {key: Interval(*ends) for key, ends in rates.items()} for name, rates in views.items()}
    return Realised(len(y), int(sent.sum()), rate, risk, readings)


@dataclass(frozen=True, eq=False)
class _Seen:
    """Truth (N,), the model's calls, their uncertainty and the patients of a set."""

    label: Bools
    positive: Bools
    uncertainty: Floats
    patient: NDArray[np.str_] | None

    @classmethod
    def of(cls, part: Predictions, uncertainty: str, threshold: float | None) -> _Seen:
        said = part.prob > 0.5 if threshold is None else part.prob >= threshold
        return cls(part.label == 1, said, referral_uncertainty(part, uncertainty)[0], part.patient_id)


def _parts(predictions: Predictions) -> tuple[Predictions, dict[str, Predictions]]:
    """The validation images, and the test images of each domain that has some; no patient is in both."""
    validation = predictions.select(domain="in_domain", split="validation")
    if validation is None:
        raise InputError(
            "holds no in-domain image of the validation split",
            file=predictions.source,
            hint="Mark the images that may choose the threshold by split = validation.",
        )
    found = {name: predictions.select(domain=name, split="test") for name in ("in_domain", "shifted")}
    tests = {name: part for name, part in found.items() if part is not None}
    if not tests:
        raise InputError("holds no image of the test split", file=predictions.source)
    test = found["in_domain"]
    if test is not None and test.patient_id is not None and validation.patient_id is not None:
        both = np.intersect1d(validation.patient_id, test.patient_id)
        if len(both):
            raise InputError(
                f"{len(both)} patients are in the validation and in the test split, such as '{both[0][:60]}'",
                file=validation.source,
                column="patient_id",
                hint="Split by patient.",
            )
    return validation, tests


def _notes(validation: Predictions, choice: Choice, certificate: Certificate | None) -> tuple[str, ...]:
    notes = [] if validation.patient_id is not None else ["no patient_id: every image counts as a patient"]
    if certificate is not None and not certificate.granted:
        notes.append(f"no guarantee: {certificate.why}")
    if certificate is None and choice.threshold is None:
        notes.append(f"no threshold: {choice.why}")
    return tuple(notes)


def _infinity_as_text(content: Any) -> Any:
    """JSON has no infinity: it becomes text."""
    if isinstance(content, dict):
        return {key: _infinity_as_text(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_infinity_as_text(value) for value in content]
    return str(content) if isinstance(content, float) and not np.isfinite(content) else content
