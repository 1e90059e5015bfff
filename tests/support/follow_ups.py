"""Follow-ups of patients with two eyes who arrive over time; the model is calibrated until a day of change."""

import numpy as np
from scipy.special import expit

from retinabench.metrics.follow_up import Watched
from retinabench.predictions.table import Predictions

FIRST = np.datetime64("2026-01-01", "D")


def follow_up(
    rng, patients, days=365, *, sure_errors=0.0, washed_out=1.0, change=10**6, unlabelled_from=10**6, name="f"
):
    """Images in the order of time; see `Watched`. sure_errors: share of wrong labels among confident images from the day `change`
    on. washed_out: factor of the logit then. unlabelled_from: the day from which labels are missing."""
    day = np.repeat(np.sort(rng.integers(0, days, patients)), 2)
    n = 2 * patients
    x = np.repeat(rng.normal(-1.5, 1.8, patients), 2) + rng.normal(0, 0.6, n)
    label = rng.random(n) < expit(1.5 * x)
    p = expit(1.5 * np.where(day >= change, washed_out * x, x))
    label ^= (day >= change) & (rng.random(n) < sure_errors) & (np.abs(p - 0.5) > 0.4)
    labelled = day < unlabelled_from
    return Watched(
        np.array([f"{name}{k:06d}" for k in range(n)]), np.repeat([f"{name}p{k:06d}" for k in range(patients)], 2),
        label & labelled, labelled, p, 0.5 - np.abs(p - 0.5), np.full(n, -1, np.int8), FIRST + day, np.full(n, ""),
    )  # fmt: skip


def certificate(threshold=0.2, goals=(("selective_risk", 0.08), ("sensitivity", 0.8)), **changed):
    """The JSON of `transfer`, as far as `monitor` reads it."""
    content = {
        "schema": "retinabench.transfer/2",
        "uncertainty": "max_probability",
        "threshold": threshold,
        "per": "image",
        "decision_threshold": {"value": 0.5},
        "certificate": {
            "threshold": threshold,
            "most_images": 2,
            "goals": [{"goal": {"target": name, "goal": value}} for name, value in goals],
        },
    }
    return content | changed


def predictions_of(images, split="test"):
    """The images as `rb.Predictions` with a column `date`."""
    return Predictions(
        images.image_id, images.label.astype(int), images.prob, patient_id=images.patient,
        split=np.full(len(images), split), subgroups={"date": images.day.astype(str)},
    )  # fmt: skip
