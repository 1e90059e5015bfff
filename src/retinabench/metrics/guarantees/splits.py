"""The validation and test images of a file, and what a rule that was frozen on validation does to them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import IntervalRow, Tabular, draw_intervals
from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.refutation import LabelledRisk, judge
from retinabench.metrics.guarantees.risks import ReferralCases
from retinabench.metrics.guarantees.shift.resemblance import resemblance
from retinabench.metrics.guarantees.threshold import Realised, realised
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
LEAST_PERMUTATIONS = 199


@contextmanager
def of_file(source: str | None) -> Iterator[None]:
    """Let errors about a column, which the images of a file are judged without, name the file."""
    try:
        yield
    except InputError as error:
        if error.column is None or error.file is not None:
            raise
        raise InputError(
            error.problem, file=source, row=error.row, column=error.column, hint=error.hint
        ) from None


def validation_and_test(predictions: Predictions) -> dict[str, Predictions]:
    """Return the in-domain validation images, and the test images of each domain that has some."""
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
        raise InputError(
            "holds no image of the test split",
            file=predictions.source,
            hint="Mark the images that the rule is tried on by split = test.",
        )
    for name, test in tests.items():
        if test.patient_id is None or validation.patient_id is None:
            continue
        both = np.intersect1d(validation.patient_id, test.patient_id)
        if len(both):
            split, hint = "test split", "Split by patient."
            if name == "shifted":
                split = "shifted test split"
                hint += " Where the other site numbers other patients alike, write the site before their ids."
            raise InputError(
                f"{len(both)} patients are in the validation and in the {split}, such as '{both[0][:60]}'",
                file=validation.source,
                column="patient_id",
                hint=hint,
            )
    return {"validation": validation, **tests}


class FrozenOnSets(Tabular):
    """The result of a rule that was chosen on validation, frozen, and applied to the sets of a file."""

    sets: Mapping[str, Realised]

    @property
    @abstractmethod
    def goals(self) -> tuple[Goal, ...]:
        """What the rule was to reach."""

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw what each goal's target is on every set, with its interval, and the goal as an upright line."""
        rows = [
            IntervalRow(
                f"{goal.spec.heading}, {name.replace('_', '-')}", one.value, one.low, one.high, goal.value
            )
            for goal in self.goals
            for name, found in self.sets.items()
            if (one := found.targets.get(goal.target))
        ]
        return draw_intervals(rows, axes)

    def __getitem__(self, name: str) -> Realised:
        return self.sets[name]

    @property
    def broken(self) -> tuple[str, ...]:
        """The sets whose labels refute the certificate."""
        return tuple(name for name, one in self.sets.items() if one.guarantee == "broken")

    @property
    def unmet(self) -> tuple[str, ...]:
        """The sets whose labels refute a goal that was not certified."""
        return tuple(name for name, one in self.sets.items() if one.judged == "broken" and not one.certified)


def on_sets(
    cases: Mapping[str, ReferralCases],
    threshold: float,
    goals: Sequence[Goal],
    features: Mapping[str, Floats],
    reader: tuple[float, float],
    permutations: int,
    seed: int,
    *,
    certified: bool,
) -> dict[str, Realised]:
    """Return what a frozen threshold does to every set; test sets are screened for shift, and their labels judge the goals.

    Shapes: `features` (N, D).
    """
    tested = [goal for goal in goals if 0 < goal.max_risk < 1]
    found = {name: realised(one, threshold, reader=reader) for name, one in cases.items()}
    tests = [name for name in cases if name != "validation"]
    risks = [
        LabelledRisk(*goal.spec.sums(cases[name], threshold), cases[name].patient, goal.max_risk)
        for name in tests
        for goal in tested
    ]
    verdicts = iter(judge(risks))
    for name in tests:
        screen = resemblance(
            features["validation"], cases["validation"].patient, features[name], cases[name].patient,
            permutations=max(permutations, LEAST_PERMUTATIONS), seed=seed,
        )  # fmt: skip
        of_set = tuple(next(verdicts) for _ in tested)
        found[name] = replace(found[name], resemblance=screen, verdicts=of_set, certified=certified)
    return found


def notes_on(
    validation: Predictions, sets: Mapping[str, Realised], certificates: Sequence[Certificate], missed: str
) -> list[str]:
    """Return what a reader of the numbers must know of the patients, the certificates, and missed disease."""
    notes = [*validation.notes]
    if validation.patient_id is None:
        notes.append("no patient_id: every image counts as a patient")
    most = max((one.most_images for one in certificates if one.granted), default=1)
    if sets and most > 1:
        notes.append(f"the certificate covers patients with at most {most} images")
    for name, one in sets.items():
        images, positives = one.missed
        if 2 * images > positives:
            notes.append(
                f"{name.replace('_', '-')}: {images:,} of {positives:,} referable images are {missed}; "
                "ask for --goal sensitivity=0.9"
            )
    return notes


def infinity_as_text(content: Any) -> Any:
    """Return the content of a JSON file with infinite numbers as text, since JSON has none."""
    if isinstance(content, dict):
        return {key: infinity_as_text(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [infinity_as_text(value) for value in content]
    return str(content) if isinstance(content, float) and not np.isfinite(content) else content
