"""The failure gallery of a method: the images that its first seed gets wrong with the least uncertainty."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.sets import SET_LABELS
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.set_statistics import SetPredictions
from retinabench.reports.toolkit.number_format import plain

EACH = 6
ImageSource = Callable[[str], NDArray[np.uint8] | None]


@dataclass(frozen=True)
class Failure:
    """An image that is predicted wrongly.

    Args:
        image_id: The image.
        file: Name of its file below the folder of images; empty without one.
        truth: What it shows.
        predicted: What the method says.
        place: The set.
    """

    image_id: str
    file: str
    truth: str
    predicted: str
    place: str


def failures(predictions: Predictions, name: str, *, shown: bool) -> list[Failure]:
    """Return the wrong predictions of a set with the least uncertainty, missed disease first.

    Args:
        predictions: One seed.
        name: The set.
        shown: Whether there are images.
    """
    case = SetPredictions.of(predictions, name)
    if case is None:
        return []
    order = np.lexsort((case.image_id, case.uncertainty))
    wrong = order[~case.correct[order]]
    missed, alarms = wrong[case.label[wrong]], wrong[~case.label[wrong]]
    found = []
    for row in [*missed[:EACH].tolist(), *alarms[:EACH].tolist()]:
        image = str(case.image_id[row])
        grade = "" if case.grade is None else f", grade {case.grade[row]}"
        called = "referable" if case.called[row] else "not referable"
        found.append(
            Failure(
                image,
                image_file(image) if shown else "",
                ("Referable" if case.label[row] else "Not referable") + grade,
                f"Predicted {called}, {_probability(float(case.prob[row]))}",
                SET_LABELS[name].lower(),
            )
        )
    return found


def _probability(p: float) -> str:
    """Write P(referable) without claiming certainty by rounding."""
    return "P > 0.999" if 0.9995 <= p < 1 else "P < 0.001" if 0 < p < 0.0005 else f"P = {plain(p, 3)}"


def image_file(image_id: str) -> str:
    """Return the name of an image's file, which no name of an image can lead out of its folder."""
    return f"{hashlib.sha256(image_id.encode()).hexdigest()[:16]}.jpg"
