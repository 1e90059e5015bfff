"""Pictures that say more than a curve: most certain, most uncertain, and wrong though certain."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.evidence import SetCase
from retinabench.reports.evaluation.study import Study
from retinabench.reports.toolkit.number_format import plain

ImageSource = Callable[[str], NDArray[np.uint8] | None]
SIDE = 300
EACH = 6
DARK = 20


@dataclass(frozen=True)
class Card:
    """One picture and what is said of it; `source` is a data URI or empty."""

    source: str
    alt: str
    width: int
    height: int
    truth: str
    said: str
    unsure: str
    id: str
    wrong: bool


@dataclass(frozen=True)
class Group:
    """Cards under one heading."""

    heading: str
    text: str
    cards: list[Card]


def groups(study: Study, images: ImageSource | None) -> list[Group]:
    """Choose pictures of the leading method over all sets; equal uncertainties go by image id."""
    case = study.first(study.leader, study.sets[-1])
    if case is None:
        return []
    order = np.lexsort((case.image_id, case.uncertainty))
    right, wrong = order[case.correct[order]], order[~case.correct[order]]
    chosen = (
        (
            "Wrong and certain",
            "The dangerous ones: the surest of the wrong answers. Referral by uncertainty sends these last.",
            wrong[:EACH],
        ),
        ("Most uncertain", "The first to be sent to the expert, right or wrong.", order[::-1][:EACH]),
        ("Most certain and right", "The last to be sent.", right[:EACH]),
    )
    none = "There is no wrong answer in this set."
    return [
        Group(heading, text if len(rows) else none, [_card(case, int(row), images) for row in rows])
        for heading, text, rows in chosen
    ]


def _card(case: SetCase, row: int, images: ImageSource | None) -> Card:
    picture = images(str(case.image_id[row])) if images else None
    source, width, height = data_uri(picture) if picture is not None else ("", 0, 0)
    grade = None if case.grade is None else int(case.grade[row])
    truth = "referable" if case.label[row] else "not referable"
    truth = truth.capitalize() + (f", grade\u00a0{grade}" if grade is not None else "")
    wrong = not case.correct[row]
    verdict = "referable" if case.prob[row] > 0.5 else "not referable"
    unit = "" if case.uncertainty_name == "own" else " nats"
    value = _uncertainty(case, row)
    return Card(
        source,
        f"Fundus photograph {case.image_id[row]}",
        width,
        height,
        truth,
        f"{'Wrongly said' if wrong else 'Said'} {verdict}, {_probability(float(case.prob[row]))}",
        f"Uncertainty {value}{unit}, {_rank(case, row)}",
        f"{case.image_id[row]}, {SET_LABELS[str(case.domain[row])].lower()}",
        wrong,
    )


def _trimmed(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut away the black rows and columns around the field of view."""
    bright = picture.reshape(*picture.shape[:2], -1).max(axis=2) > DARK
    rows, columns = np.flatnonzero(bright.mean(axis=1) > 0.02), np.flatnonzero(bright.mean(axis=0) > 0.02)
    if not (rows.size and columns.size):
        return picture
    return picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _rank(case: SetCase, row: int) -> str:
    """Say how the uncertainty of a picture stands among all; whole percent, rounded down."""
    above = int(100 * np.mean(case.uncertainty < case.uncertainty[row]))
    below = int(100 * np.mean(case.uncertainty > case.uncertainty[row]))
    return f"surer than {below} % of all" if below > above else f"less sure than {above} % of all"


def _probability(p: float) -> str:
    """Write P(referable) without claiming certainty by rounding."""
    text = "P > 0.999" if 0.9995 <= p < 1 else "P < 0.001" if 0 < p < 0.0005 else f"P = {plain(p, 3)}"
    return text.replace(" ", "\u00a0")


def _uncertainty(case: SetCase, row: int) -> str:
    value = float(case.uncertainty[row])
    if case.uncertainty_name == "own":
        return f"{value:.3g}"
    return "< 0.001" if 0 < value < 0.0005 else plain(value, 3)


def data_uri(picture: NDArray[np.uint8]) -> tuple[str, int, int]:
    """Return an (H, W, 3) or (H, W) uint8 picture as a JPEG data URI at most `SIDE` pixels wide or high, and its size."""
    image = Image.fromarray(np.ascontiguousarray(_trimmed(picture))).convert("RGB")
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    with io.BytesIO() as out:
        image.save(out, "JPEG", quality=84)
        text = base64.b64encode(out.getvalue()).decode()
    return f"data:image/jpeg;base64,{text}", image.width, image.height
