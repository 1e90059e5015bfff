"""One decision for each patient: the uncertainty of a patient, and a file of patients made of one of images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.image_sets import DEFAULT, DecisionThreshold, referral_uncertainty
from retinabench.metrics.weighted_images import Bools, Floats, cluster_codes, is_positive
from retinabench.predictions.table import Predictions


def worst_images(codes: NDArray[np.intp], prob: Floats) -> NDArray[np.intp]:
    """Return the image with the largest probability of each patient, the first of equals; `codes`, `prob` (N,) -> (P,)."""
    order = np.lexsort((-prob, codes))
    return np.asarray(order[np.append(True, np.diff(codes[order]) > 0)])


def patient_uncertainty(codes: NDArray[np.intp], called: Bools, uncertainty: Floats) -> Floats:
    """Return the uncertainty of each patient; `codes`, `called`, `uncertainty` (N,) -> (P,).

    A patient is diseased if one image is, and called referable if one image is. With the uncertainty u of the images, the model
    decides for the patient alone, at a threshold t, where it calls an image with u <= t referable, or where u <= t for all images.
    Both say u_patient <= t for

        u_patient = the least u of the images called referable; where there is none, the largest u of all images,

    so that every score, curve and certificate of images is also one of patients, with this uncertainty. The probability is that of
    the image with the largest one: the pivotal trial of IDx-DR judged participants by "at least one eye".

    References:
        Abramoff et al., Pivotal trial of an autonomous AI-based diagnostic system, npj Digit. Med. 1:39 (2018).
    """
    largest, least = np.full(codes.max() + 1, -np.inf), np.full(codes.max() + 1, np.inf)
    np.maximum.at(largest, codes, uncertainty)
    np.minimum.at(least, codes[called], uncertainty[called])
    return np.where(np.bincount(codes, called) > 0, least, largest)


def by_patient(
    predictions: Predictions, uncertainty: str = "auto", threshold: DecisionThreshold | float | str = DEFAULT
) -> Predictions:
    """Return one row per patient, domain and split, with `uncertainty` as its own; a threshold that is to be chosen, is chosen for patients.

    Args:
        predictions: Predictions with the patient of every image.
        uncertainty: What orders the referral of images, as in `score`.
        threshold: From which probability on the model calls an image referable; see `DecisionThreshold`.

    Returns:
        The patients: label and grade are the worst, the other columns those of the image with the largest probability.

    Raises:
        InputError: The predictions lack patients, or the uncertainty that is asked for.

    Examples:
        >>> import retinabench as rb
        >>> images = rb.Predictions(["a", "b", "c"], [0, 1, 0], [0.4, 0.9, 0.2], patient_id=["p", "p", "q"])
        >>> patients = rb.by_patient(images, "margin")
        >>> patients.image_id.tolist(), patients.label.tolist(), patients.uncertainty.round(3).tolist()
        (['p', 'q'], [1, 0], [0.111, 0.25])
    """
    if predictions.patient_id is None:
        hint = "Add the patient of every image."
        raise InputError("is missing", file=predictions.source, column="patient_id", hint=hint)
    parts = np.stack([predictions.domain == "shifted", predictions.split == "validation"])
    codes, _ = cluster_codes(cluster_codes(predictions.patient_id)[0] * 4 + parts[0] * 2 + parts[1])
    rows = worst_images(codes, predictions.prob)
    label, grade = np.zeros(len(rows), np.int8), None
    np.maximum.at(label, codes, predictions.label)
    if predictions.grade is not None:
        grade = np.full(len(rows), -1, np.int8)
        np.maximum.at(grade, codes, predictions.grade)
        grade[np.bincount(codes, predictions.grade < 0) > 0] = -1
    worst = predictions.take(rows)
    name = worst.patient_id
    assert name is not None
    twice = np.bincount(cluster_codes(name)[0])[cluster_codes(name)[0]] > 1  # in several domains or splits
    part = np.char.add(np.char.add(worst.domain, " "), worst.split)
    patients = replace(
        worst, image_id=np.where(twice, np.char.add(np.char.add(name, ", "), part), name), label=label, grade=grade,
        metadata={**worst.metadata, "rows": "patients"},
        notes=(*predictions.notes, "one row per patient (any eye)"),
    )  # fmt: skip
    cut = DecisionThreshold.parse(threshold).freeze(patients).value
    values, _ = referral_uncertainty(predictions, uncertainty, threshold=cut)
    return replace(patients, uncertainty=patient_uncertainty(codes, is_positive(predictions.prob, cut), values))
