"""The validation and test images of a file, and what a rule that was frozen on validation meets on the test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.refutation import LabelledRisk, judge
from retinabench.metrics.guarantees.resemblance import resemblance
from retinabench.metrics.guarantees.risks import Cases, Goal
from retinabench.metrics.guarantees.threshold import Realised
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
LEAST_PERMUTATIONS = 199


def validation_and_test(predictions: Predictions) -> dict[str, Predictions]:
    """Return the in-domain validation images, and the test images of each domain that has some.

    Args:
        predictions: Predictions with a validation and a test split.

    Returns:
        `validation`, `in_domain` and `shifted`, as far as they exist.

    Raises:
        InputError: There are no validation or no test images, or a patient is in both.
    """
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
    return {"validation": validation, **tests}


def screened(
    sets: Mapping[str, Realised],
    shapes: Mapping[str, tuple[Floats, NDArray[np.intp]]],
    permutations: int,
    seed: int,
) -> dict[str, Realised]:
    """Return the sets, those of the test splits with the screen for covariate shift.

    Args:
        sets: Name of a set -> what the rule does to it.
        shapes: Name of a set -> (N, D) features of its images and (N,) patients.
        permutations: Number of permutations.
        seed: Their seed.

    Returns:
        The sets with `resemblance`.
    """
    first = shapes["validation"]
    return {
        name: one
        if name == "validation"
        else replace(
            one, resemblance=resemblance(*first, *shapes[name], permutations=permutations, seed=seed)
        )
        for name, one in sets.items()
    }


def judged(
    sets: Mapping[str, Realised], cases: Mapping[str, Cases], goals: Sequence[Goal], threshold: float
) -> dict[str, Realised]:
    """Return the sets with what the labels of the test splits say about every goal, tested together.

    Args:
        sets: Name of a set -> what the rule does to it; the set `validation` is not judged.
        cases: Their images.
        goals: The certified goals.
        threshold: Images with a larger uncertainty are referred.

    Returns:
        The sets with verdicts.
    """
    tests = [name for name in sets if name != "validation"]
    risks = [
        LabelledRisk(*goal.spec.sums(cases[name], threshold), cases[name].patient, goal.max_risk)
        for name in tests
        for goal in goals
    ]
    verdicts = iter(judge(risks))
    found = {name: replace(sets[name], verdicts=tuple(next(verdicts) for _ in goals)) for name in tests}
    return {**sets, **found}


def infinity_as_text(content: Any) -> Any:
    """Return the content of a JSON file with infinite numbers as text, since JSON has none."""
    if isinstance(content, dict):
        return {key: infinity_as_text(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [infinity_as_text(value) for value in content]
    return str(content) if isinstance(content, float) and not np.isfinite(content) else content
