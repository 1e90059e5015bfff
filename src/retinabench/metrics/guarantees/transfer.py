"""Choose the referral threshold on validation patients, freeze it, and report what it does on new ones.

A threshold read off the test curve is a result of the test set. Here it is chosen on the validation split, and the test
split, in domain and shifted, only says what it costs and what it yields. What is certified (`certificate.py`) is the very ratio that is
reported for every set and held against its labels (`refutation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import Row
from retinabench.metrics.decisions import DecisionThreshold, FrozenThreshold, by_patient, referral_uncertainty
from retinabench.metrics.follow_up import Watched, reference_values
from retinabench.metrics.guarantees.certificate import Certificate, certify
from retinabench.metrics.guarantees.goals import TARGETS, Goal, Per, ReferralCases, as_goals
from retinabench.metrics.guarantees.threshold import (
    Choice,
    FrozenOnSets,
    Realised,
    choose_threshold,
    notes_on,
    of_file,
    on_sets,
    validation_and_test,
)
from retinabench.metrics.proportions import Interval
from retinabench.metrics.weighted_images import check_draws
from retinabench.predictions.table import Predictions

SCHEMA = "retinabench.transfer/3"


@dataclass(frozen=True)
class Transfer(FrozenOnSets):
    """A threshold from validation, what it does to the test sets, and whether its guarantee holds there.

    Args:
        per: The estimand of everything that is chosen, certified and reported, one of `risks.PER`.
        uncertainty: What orders the referral.
        decision: From which probability on the model calls an image referable.
        choice: The threshold chosen by its plain estimate.
        certificate: The certified threshold in guaranteed mode, else None.
        alone: Sensitivity of the model on the validation images, without referral.
        sets: `validation`, `in_domain` and `shifted`, as far as they exist -> what the threshold does there.
        reference: Probability and uncertainty of validation patients, by which drift is seen later.
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

    _schema, _also = SCHEMA, ("threshold",)
    _keys: ClassVar = {"decision": "decision_threshold", "alone": "model_sensitivity"}

    per: Per
    uncertainty: str
    decision: FrozenThreshold
    choice: Choice
    certificate: Certificate | None
    alone: Interval
    sets: Mapping[str, Realised]
    reference: Mapping[str, Sequence[float]]
    notes: tuple[str, ...]

    @property
    def goals(self) -> tuple[Goal, ...]:
        return self.choice.goals

    @property
    def threshold(self) -> float | None:
        """The frozen threshold: the certified one in guaranteed mode, else the chosen one."""
        return self.choice.threshold if self.certificate is None else self.certificate.threshold

    @property
    def refused(self) -> bool:
        """Whether a certificate was asked for and cannot be given."""
        return self.certificate is not None and not self.certificate.granted

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for name, one in self.sets.items():
            row: Row = {"set": name, "per": self.per, "images": one.images, "read_by_expert": one.referred}
            row |= {"share_read": one.referral_rate.value, "selective_risk": one.selective_risk.value}
            row |= {"low": one.selective_risk.low, "high": one.selective_risk.high}
            rows.append(row | {"sensitivity": one.targets["sensitivity"].value, "guarantee": one.guarantee})
        return rows


def transfer(
    predictions: Predictions,
    target: str = "selective_risk",
    goal: float = 0.05,
    *,
    goals: Sequence[Goal | str] = (),
    delta: float | None = None,
    per: Per = "image",
    most_images: int | None = None,
    uncertainty: str = "auto",
    threshold: DecisionThreshold | float | str = 0.5,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
) -> Transfer:
    """Choose a referral threshold on the in-domain validation split, freeze it, and report on the test sets.

    Args:
        predictions: Predictions with a validation and a test split.
        target: What the threshold must reach, one of `risks.TARGETS`.
        goal: The value to reach.
        goals: Several of them instead, such as ``["sensitivity=.9", "npv=.99", "workload=.5"]``.
        delta: None for the plain choice; else certify all goals with confidence 1 - delta.
        per: The estimand: ``image`` (all images count alike), ``patient-image`` (all patients do: an image of a random one), or
            ``patient`` (any eye).
        most_images: The largest number of images that a new patient may have; None: that of the validation patients.
        uncertainty: What orders the referral, as in `score`.
        threshold: From which probability on the model calls an image referable; see `DecisionThreshold`.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Permutations of the screen for covariate shift, at least 199.
        seed: Seed of these permutations.

    Returns:
        The threshold and what it does on every set.

    Raises:
        InputError: Validation or test images are missing, a patient is in both, or validation images chose the decision threshold.

    Examples:
        >>> import retinabench as rb
        >>> p = rb.Predictions(list("abcd"), [0, 1] * 2, [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2)
        >>> round(rb.transfer(p, "accuracy", 1.0, bootstrap=20).threshold, 4)
        0.3251
    """
    check_draws(bootstrap, seed)
    wanted, parts = as_goals(target, goal, goals), validation_and_test(predictions, certifying=delta is not None)
    decision = DecisionThreshold.parse(threshold).freeze(predictions)
    if delta is not None and decision.chosen_on == "validation":
        problem = f"the threshold {decision.rule} is chosen on the validation images, which cannot certify it as well"
        raise InputError(problem, hint=f"Fix a number beforehand, such as {decision.value:.3g} from earlier patients.")
    name = referral_uncertainty(parts["validation"], uncertainty, threshold=decision.value)[1]
    reference = reference_values(Watched.of(parts["validation"], name, None, decision=decision.value))
    if per == "patient":
        parts = {of: by_patient(part, uncertainty, decision.value) for of, part in parts.items()}
        uncertainty, most_images = "own", None
    cases = {of: ReferralCases.of(part, uncertainty, decision.value, per) for of, part in parts.items()}
    sets: dict[str, Realised] = {}
    with of_file(predictions.source):
        choice = choose_threshold(first := cases["validation"], wanted)
        certificate = None if delta is None else certify(first, wanted, delta, most_images=most_images)
        frozen = choice.threshold if certificate is None else certificate.threshold
        if frozen is not None:
            seen = {name: np.column_stack([parts[name].prob, one.uncertainty]) for name, one in cases.items()}
            sets = on_sets(cases, parts, frozen, wanted, seen, reader, bootstrap, seed, certified=delta is not None)
    notes = notes_on(parts["validation"], sets, [certificate] if certificate else [], "missed")
    notes += [decision.note] if decision.note else []
    alone = TARGETS["sensitivity"].estimate(first, np.inf)
    return Transfer(per, name, decision, choice, certificate, alone, sets, reference, tuple(notes))
