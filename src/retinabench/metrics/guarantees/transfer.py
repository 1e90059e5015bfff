"""Choose the referral threshold on validation patients, freeze it, and report what it does on new ones.

A threshold read off the test curve is a result of the test set. Here it is chosen on the validation split, and the test
split, in domain and shifted, only says what it costs and what it yields. The guaranteed mode is in `risk_control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.tabular import Tabular
from retinabench.metrics.guarantees.resemblance import Resemblance, resemblance
from retinabench.metrics.guarantees.risk_control import Certificate, certify_threshold
from retinabench.metrics.guarantees.threshold import Choice, Realised, choose_threshold, realised
from retinabench.metrics.inference.bootstrap import check_draws
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SCHEMA = "retinabench.transfer/1"


@dataclass(frozen=True)
class Transfer(Tabular):
    """A threshold from validation, what it does to the test sets, and whether its guarantee still applies there.

    Args:
        uncertainty: What orders the referral.
        choice: The threshold chosen by its plain estimate.
        certificate: The certified threshold in guaranteed mode, else None.
        sets: `validation`, `in_domain` and `shifted`, as far as they exist -> what the threshold does there.
        notes: What a reader of the numbers must know.

    Examples:
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
        delta: None for the plain choice; else certify `selective_risk` (or `accuracy`) with confidence 1 - delta.
        uncertainty: What orders the referral, as in `score`.
        threshold: The model calls an image referable at prob >= threshold; None: at prob > 1/2.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Replicates of the intervals, which are at 95 %.
        seed: Seed of everything random.
        resemblance_level: Level of the test that a set resembles validation; where refuted the guarantee is void.

    Returns:
        The threshold and what it does on every set.

    Raises:
        InputError: Validation or test images are missing, or a patient is in both.

    Examples:
        >>> import retinabench as rb
        >>> split = ["validation", "validation", "test", "test"]
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], split=split)
        >>> round(rb.transfer(predictions, "accuracy", 1.0, bootstrap=20).threshold, 4)
        0.3251
    """
    check_draws(bootstrap, seed)
    validation, tests = _parts(predictions)
    seen = {
        name: _Seen.of(part, uncertainty, threshold)
        for name, part in {"validation": validation, **tests}.items()
    }
    choice, certificate = _chosen(seen["validation"], target, goal, delta, seed)
    frozen = choice.threshold if certificate is None else certificate.threshold
    table = (
        {}
        if frozen is None
        else {name: one.realised(frozen, reader, bootstrap, seed) for name, one in seen.items()}
    )
    for name in tests if table else ():
        alike = _resemblance(seen["validation"], seen[name], resemblance_level, seed)
        kind = "none" if certificate is None else "void" if alike.void else "not refuted"
        table[name] = replace(table[name], resemblance=alike, guarantee=kind)
    notes = _notes(validation, choice, certificate)
    return Transfer(referral_uncertainty(validation, uncertainty)[1], choice, certificate, table, notes)


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

    def realised(self, threshold: float, reader: tuple[float, float], bootstrap: int, seed: int) -> Realised:
        options: Any = {"reader": reader, "bootstrap": bootstrap, "seed": seed}
        return realised(self.label, self.positive, self.uncertainty, threshold, self.patient, **options)


def _chosen(
    first: _Seen, target: str, goal: float, delta: float | None, seed: int
) -> tuple[Choice, Certificate | None]:
    """The plain choice on the validation images and, in guaranteed mode, the certificate."""
    if delta is not None and target not in ("selective_risk", "accuracy"):
        raise InputError(
            f"'{target}' cannot be guaranteed", hint="Use the target selective_risk or accuracy."
        )
    choice = choose_threshold(first.label, first.positive, first.uncertainty, target, goal)
    if delta is None:
        return choice, None
    risk = goal if target == "selective_risk" else 1 - goal
    return choice, certify_threshold(
        first.label, first.positive, first.uncertainty, first.patient, risk, delta, seed=seed
    )


def _resemblance(first: _Seen, other: _Seen, level: float, seed: int) -> Resemblance:
    return resemblance(
        first.uncertainty, first.patient, other.uncertainty, other.patient, level=level, seed=seed
    )


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
    notes = [*validation.notes]
    if validation.patient_id is None:
        notes.append("no patient_id: every image counts as a patient")
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
