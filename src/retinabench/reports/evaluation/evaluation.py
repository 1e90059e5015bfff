"""`Evaluation`: all numbers of a report, which page, tables and files only read; `evaluate.py` computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from retinabench.core.errors import InputError
from retinabench.metrics import selective
from retinabench.metrics.referral_curves import area_of
from retinabench.metrics.registry import SCORES, ScoreSpec, referred_scores
from retinabench.metrics.score_results import Scores
from retinabench.metrics.scoring import ScoreSettings
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import set_statistics as stats
from retinabench.reports.evaluation.set_statistics import Floats, SetPredictions
from retinabench.reports.toolkit.number_format import Place, Quantity
from retinabench.reports.toolkit.style import Mark

Progress = Callable[[str, float], None]
BASIC = (
    "auroc", "accuracy", "nll", "sensitivity", "specificity", "brier_skill", "accuracy_gain", "ece_positive_class",
    "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
"""Scores whose replicates the report needs, for paired differences between methods and for the mean of several seeds."""


@dataclass(frozen=True)
class EvaluationSettings(ScoreSettings):
    """How the predictions of a page are scored; what a page adds to the scores always follows the corrected rules.

    Attributes:
        referred: Share of the images that statements and figures refer, 0.01 to 0.95.
    """

    referred: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.referred <= 0.95:
            raise InputError(
                f"the share referred is {self.referred:g}",
                hint="Give a share between 0.01 and 0.95, such as 0.1.",
            )


DEFAULTS = EvaluationSettings()


@dataclass(frozen=True)
class MethodPredictions:
    """One method by its name, with the predictions of one or more seeds."""

    name: str
    predictions: tuple[Predictions, ...]

    @classmethod
    def of(cls, name: str, predictions: Predictions | Sequence[Predictions]) -> MethodPredictions:
        """Return a method of one file or several seeds; raises `InputError` where there is none."""
        files = (predictions,) if isinstance(predictions, Predictions) else tuple(predictions)
        if not files:
            raise InputError(f"method '{name}' has no predictions", hint="Give one file or more.")
        return cls(name, files)


@dataclass(frozen=True)
class Band:
    """A curve (G,) over `x` with the ends of its band."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Lead:
    """The leading method minus another in accuracy at the share referred, paired, on one set."""

    other: int
    set: str
    gap: Quantity


@dataclass
class Evaluation:
    """Everything that a report says, by the index of a method and the name of a set.

    Attributes:
        methods: Methods in the order in which they are shown.
        settings: How the files are scored.
        sets: Names of the sets, `joint` last where it exists.
        marks: The colour and line pattern of each method.
        files: Per method and seed the scores of the file.
        leader: Index of the method with the largest referral accuracy area on the last set.
        cases: (method, set) -> its files on that set.
        estimates: (method, set, score) -> the score.
        replicates: (method, set) -> values (F, K) and replicates (F, R, K) of the scores `replicated`.
        curves: (method, set, curve) -> the curve with its band.
        changes: (method, score) -> shifted minus in-domain.
    """

    methods: list[MethodPredictions]
    settings: EvaluationSettings
    sets: list[str]
    marks: list[Mark]
    files: list[list[Scores]] = field(default_factory=list)
    leader: int = 0
    cases: dict[tuple[int, str], list[SetPredictions]] = field(default_factory=dict)
    estimates: dict[tuple[int, str, str], Quantity] = field(default_factory=dict)
    replicates: dict[tuple[int, str], tuple[Floats, Floats]] = field(default_factory=dict)
    curves: dict[tuple[int, str, str], Band] = field(default_factory=dict)
    changes: dict[tuple[int, str], Quantity] = field(default_factory=dict)

    @property
    def replicated(self) -> tuple[str, ...]:
        """Names of the scores in `replicates`."""
        return *selective.names(self.settings.referred), *BASIC

    def at(self, name: str) -> str:
        """Return the name of a number at the share referred, such as `gain_at_50` for `gain`."""
        return f"{name}_at_{100 * self.settings.referred:g}"

    def spec(self, score: str) -> ScoreSpec:
        """Return label and direction of a score, also at a share referred that the registry does not name."""
        return referred_scores(self.settings.referred).get(score) or SCORES[score]

    @property
    def domains(self) -> list[str]:
        """The sets other than `joint`."""
        return [name for name in self.sets if name != "joint"]

    @property
    def leading(self) -> str:
        """Name of the leading method."""
        return self.methods[self.leader].name

    @property
    def same_images(self) -> bool:
        """Whether every method has the images of the leading one on every set that both have, so that they can be ranked."""
        others = (i for i in range(len(self.methods)) if i != self.leader)
        pairs = [(i, name) for i in others for name in self.sets if (i, name) in self.cases]
        return all(
            self._paired(self.leader, i, name) for i, name in pairs if (self.leader, name) in self.cases
        )

    def get(self, method: int, name: str, score: str) -> Quantity:
        """Return a score."""
        found = self.estimates.get((method, name, score), Quantity(np.nan))
        return replace(found, place=Place(self.methods[method].name, name, score))

    def lead_value(self, name: str, score: str) -> Quantity:
        """Return a score of the leading method on a set."""
        return self.get(self.leader, name, score)

    def change(self, method: int, score: str) -> Quantity | None:
        """Return shifted minus in-domain, None where the method lacks one of the sets."""
        found = self.changes.get((method, score))
        place = Place(self.methods[method].name, "shifted_minus_in_domain", score)
        return None if found is None else replace(found, place=place)

    def first(self, method: int, name: str) -> SetPredictions | None:
        """Return the first file of a method on a set: the one whose images and histograms are shown."""
        cases = self.cases.get((method, name))
        return cases[0] if cases else None

    def difference(self, a: int, b: int, name: str, score: str) -> Quantity:
        """Return the difference of a score between two methods."""
        if score not in self.replicated or not self._paired(a, b, name):
            return Quantity(self.get(a, name, score).value - self.get(b, name, score).value)
        k = self.replicated.index(score)
        (values_a, found_a), (values_b, found_b) = self.replicates[a, name], self.replicates[b, name]
        gap = np.atleast_2d(values_a[:, k].mean() - values_b[:, k].mean())
        found = found_a[..., k].mean(axis=0) - found_b[..., k].mean(axis=0)
        wholes = [case.cases.weighted() for i in (a, b) for case in self.cases[i, name]]
        return stats.differences([self.spec(score)], wholes, gap, found[None, :, None])[0]

    def best(self, name: str, score: str) -> int | None:
        """Return the method whose paired interval against every other one excludes 0 in its favour, if any."""
        sign = self.spec(score).sign
        known = [i for i in range(len(self.methods)) if self.get(i, name, score).defined]
        if len(known) < 2 or self.settings.rules != "corrected":  # replicates follow the corrected rules
            return None
        top = max(known, key=lambda i: sign * self.get(i, name, score).value)
        ahead = (self.difference(top, i, name, score).sign() == sign for i in known if i != top)
        return top if all(ahead) else None

    def leads(self) -> list[Lead]:
        """Return the leading method minus every other one, on the last set."""
        found, name, score = [], self.sets[-1], self.at("accuracy")
        for other in (i for i in range(len(self.methods)) if i != self.leader):
            place = Place(f"{self.leading} − {self.methods[other].name}", name, score)
            gap = self.difference(self.leader, other, name, score)
            found.append(Lead(other, name, replace(gap, place=place)))
        return found

    def controls(self, name: str) -> dict[str, dict[str, float]]:
        """Return what the baseline scores, and the predictions of the leading method under random and oracle referral.

        The baseline does not depend on the images: it always gives the larger class and the prevalence as P(referable).
        """
        cases = self.cases.get((self.leader, name))
        if not cases:
            return {}
        share = float(cases[0].label.mean())
        both = 0 < share < 1
        positive = share > 0.5
        baseline = {
            "auroc": 0.5 if both else np.nan, "accuracy": max(share, 1 - share), "sensitivity": float(positive),
            "specificity": float(not positive), "brier_skill": 0.0 if both else np.nan, "ece_positive_class": 0.0,
            "nll": float(binary_entropy(share)), self.at("accuracy"): max(share, 1 - share),
            "referral_accuracy_area": max(share, 1 - share), "failure_auroc": 0.5 if both else np.nan,
        }  # fmt: skip
        answer = "referable" if positive else "not referable"
        accuracy = self.lead_value(name, "accuracy").value
        area = float(np.mean([area_of(case.oracle.weighted(), "accuracy") for case in cases]))
        return {
            f"always “{answer}”": baseline,
            "random referral": {
                self.at("accuracy"): accuracy, "referral_accuracy_area": accuracy, "failure_auroc": 0.5,
            },
            "oracle referral": {
                self.at("accuracy"): self.lead_value(name, self.at("perfect_accuracy")).value,
                "referral_accuracy_area": area,
                "failure_auroc": 1.0 if accuracy < 1 else np.nan,
            },
        }  # fmt: skip

    def _paired(self, a: int, b: int, name: str) -> bool:
        one, two = self.first(a, name), self.first(b, name)
        return (
            one is not None
            and two is not None
            and len(one) == len(two)
            and np.array_equal(np.sort(one.image_id), np.sort(two.image_id))
        )
