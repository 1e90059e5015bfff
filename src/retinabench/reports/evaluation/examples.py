"""Example images: missed disease first, then false alarms, the most uncertain, and correct with low uncertainty."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.evaluation.evaluation import Evaluation, SetPredictions
from retinabench.reports.toolkit.number_format import plain

ImageSource = Callable[[str], NDArray[np.uint8] | None]  # image_id -> its pixels (H, W, 3), None where there are none.
SIDE = 300
EACH = 6
DARK = 20
QUALITIES = (84, 60, 35, 15)
MOST_BYTES = 20_000  # of one image in the page, if the lowest quality allows it


def groups(evaluation: Evaluation, images: ImageSource | None) -> list[dict[str, Any]]:
    """Return the first examples of each kind of the leading method over all sets, and how many images there are of it.

    Missed disease is ordered by whether it is retained at the share referred, then by severity, then by uncertainty.
    """
    case = evaluation.first(evaluation.leader, evaluation.sets[-1])
    if case is None:
        return []
    order = np.lexsort((case.image_id, case.uncertainty))
    retained = np.zeros(len(case), bool)
    retained[order[: int((1 - evaluation.settings.referred) * len(case) + 1e-9)]] = True
    grade = np.zeros(len(case)) if case.grade is None else case.grade
    wrong = order[~case.correct[order]]
    missed = wrong[case.label[wrong]]
    chosen = {
        "missed": missed[np.lexsort((-grade[missed], ~retained[missed]))],
        "alarm": wrong[~case.label[wrong]],
        "uncertain": order[::-1],
        "right": order[case.correct[order]],
    }
    return [
        {"kind": kind, "cards": [_card(case, int(k), images, retained[k]) for k in rows[:EACH]], "images": len(rows)}
        for kind, rows in chosen.items()
    ]


def _card(case: SetPredictions, row: int, images: ImageSource | None, retained: bool) -> dict[str, object]:
    """Return the caption of an image, and the image as a data URI (`source`, empty where there is none)."""
    image = images(str(case.image_id[row])) if images else None
    source, width, height = data_uri(image) if image is not None else ("", 0, 0)
    known = -1 if case.grade is None else int(case.grade[row])
    grade = f", grade\u00a0{known}" if known >= 0 else ""
    wrong = not case.correct[row]
    predicted = "referable" if case.called[row] else "not referable"
    chance = probability_text(float(case.prob[row])).replace(" ", "\u00a0")
    unit = " nats" if case.uncertainty_name in ("total", "aleatoric", "epistemic") else ""
    after = "retained" if retained else "referred"
    return {
        "source": source, "alt": f"Fundus image {case.image_id[row]}", "width": width, "height": height, "wrong": wrong,
        "truth": ("Referable" if case.label[row] else "Not referable") + grade,
        "predicted": f"{'Wrongly predicted' if wrong else 'Predicted'} {predicted}, {chance}",
        "uncertainty": f"Uncertainty {_uncertainty(case, row)}{unit}, {_rank(case, row)}: {after}",
        "id": f"{case.image_id[row]}, {SET_LABELS[str(case.domain[row])].lower()}",
    }  # fmt: skip


def _trimmed(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    bright = image.reshape(*image.shape[:2], -1).max(axis=2) > DARK
    rows, columns = np.flatnonzero(bright.mean(axis=1) > 0.02), np.flatnonzero(bright.mean(axis=0) > 0.02)
    if not (rows.size and columns.size):
        return image
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _rank(case: SetPredictions, row: int) -> str:
    """Compare the uncertainty of an image with all others; whole percent, rounded down."""
    above = int(100 * np.mean(case.uncertainty < case.uncertainty[row]))
    below = int(100 * np.mean(case.uncertainty > case.uncertainty[row]))
    return f"lower than {below} % of all" if below > above else f"higher than {above} % of all"


def probability_text(p: float) -> str:
    """Write P(referable) without claiming certainty by rounding."""
    return "P > 0.999" if 0.9995 <= p < 1 else "P < 0.001" if 0 < p < 0.0005 else f"P = {plain(p, 3)}"


def _uncertainty(case: SetPredictions, row: int) -> str:
    value = float(case.uncertainty[row])
    if case.uncertainty_name == "own":
        return f"{value:.3g}"
    return "< 0.001" if 0 < value < 0.0005 else plain(value, 3)


def data_uri(image: NDArray[np.uint8], side: int = SIDE) -> tuple[str, int, int]:
    drawn = Image.fromarray(np.ascontiguousarray(_trimmed(image))).convert("RGB")
    if max(drawn.size) > side:
        drawn.thumbnail((side, side), Image.Resampling.LANCZOS)
    content = b""
    for quality in QUALITIES:
        with io.BytesIO() as out:
            drawn.save(out, "JPEG", quality=quality)
            content = out.getvalue()
        if len(content) <= MOST_BYTES:
            break
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}", drawn.width, drawn.height
