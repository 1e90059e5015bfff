"""`StudyPlan`: what a study must show, and the patients that each question needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from retinabench.core.results import BLUE, JsonObject, Row, Tabular, axes_or_new, json_content
from retinabench.metrics.planning.assumptions import Assumptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = "retinabench.plan/1"


@dataclass(frozen=True)
class Aims:
    """What the study must show.

    Attributes:
        half_width: Half-width of the intervals of sensitivity, specificity and AUROC.
        above_sensitivity: A sensitivity that must be shown to be exceeded; None: none.
        above_specificity: A specificity that must be shown to be exceeded; None: none.
        other_auroc: AUROC of a second model from which the first must be told; None: none.
        between: Correlation between the two estimates of the AUROC.
        power: Probability of showing what must be shown.
        level: Level of the intervals; tests have (1 - level) / 2 on each side.
    """

    half_width: float = 0.05
    above_sensitivity: float | None = None
    above_specificity: float | None = None
    other_auroc: float | None = None
    between: float = 0.5
    power: float = 0.8
    level: float = 0.95


@dataclass(frozen=True)
class Requirement:
    """What one question needs.

    Attributes:
        question: What the study then knows.
        images: Images of both classes together.
        patients: Patients: images by the mean number of images of a patient.
        positives: Referable images that are expected among them.
        design_effect: What the dependence of a patient's images costs; NaN where each class has its own.
        source: Whose formula it is.
    """

    question: str
    images: int
    patients: int
    positives: int
    design_effect: float
    source: str


@dataclass(frozen=True)
class StudyPlan(Tabular):
    """The patients that each question needs; `patients` is the number that answers all of them."""

    assumptions: Assumptions
    aims: Aims
    requirements: dict[str, Requirement]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Requirement:
        return self.requirements[name]

    @property
    def patients(self) -> int:
        """Patients that answer every question."""
        return max(one.patients for one in self.requirements.values())

    @property
    def decisive(self) -> str:
        """Name of the question that needs the most patients."""
        return max(self.requirements, key=lambda name: self.requirements[name].patients)

    def records(self) -> list[Row]:
        """Return one dictionary per question."""
        return [{"name": name, **asdict(one)} for name, one in self.requirements.items()]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the patients that each question needs."""
        axes = axes_or_new(axes, 0.9 + 0.28 * len(self.requirements))
        axes.barh(list(self.requirements), [one.patients for one in self.requirements.values()], color=BLUE)
        axes.invert_yaxis()
        axes.set_xlabel("patients")
        axes.spines[["top", "right"]].set_visible(False)
        return axes

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries, lists, text, finite numbers and None."""
        return {
            "schema": SCHEMA,
            "assumptions": self.assumptions.to_dict(),
            "aims": json_content(self.aims),
            "patients": self.patients,
            "decisive": self.decisive,
            "requirements": json_content(self.requirements),
            "notes": list(self.notes),
        }
