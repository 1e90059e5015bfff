"""Drawn patients of an in-field trauma triage: a table whose true risk is known.

30 features of 52,888 patients, of whom 4 % have the outcome, as many as in the registry of Brown, Talbert and Talbert, whose data
are not public; the columns and their effects are made up. The risk holds interactions, a U shape and an age effect, so that no
linear model has it, and cells are missing at random as well as more often in severe cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from retinabench.core.errors import InputError
from retinabench.core.seeds import numpy_generator

Floats = NDArray[np.float64]
PREVALENCE = 0.04
# Column -> mean, std, and its correlation with how severe the injury is.
VITALS = {
    "age": (45, 21, 0.0), "systolic": (132, 22, -0.45), "diastolic": (80, 13, -0.35), "heart_rate": (90, 18, 0.35),
    "respiratory_rate": (18, 4, 0.3), "oxygen_saturation": (97, 2.5, -0.4), "temperature": (36.7, 0.6, -0.15),
    "gcs": (14.2, 1.6, -0.5), "glucose": (135, 35, 0.15), "lactate": (2.2, 1.1, 0.5), "haemoglobin": (13.3, 1.8, -0.3),
    "pain": (5, 2.5, 0.1), "minutes_to_scene": (11, 5, 0.0), "minutes_to_hospital": (22, 9, 0.05),
    "height_of_fall": (1.4, 1.8, 0.2), "speed": (31, 19, 0.2), "weight": (79, 17, 0.0), "capillary_refill": (1.9, 0.6, 0.4),
}  # fmt: skip
# Column -> its words, from the most frequent on.
CATEGORIES = {
    "sex": ("male", "female"), "mechanism": ("fall", "car", "motorcycle", "pedestrian", "stab", "gunshot"),
    "transport": ("ground", "air"), "region": ("head", "leg", "chest", "arm", "abdomen", "spine"),
    "airway": ("own", "assisted", "tube"), "pupils": ("equal", "unequal", "fixed"), "bleeding": ("none", "minor", "major"),
    "seatbelt": ("yes", "no", "unknown"), "shift": ("day", "evening", "night"), "season": ("summer", "autumn", "spring", "winter"),
    "anticoagulant": ("no", "yes"), "alcohol": ("no", "yes"),
}  # fmt: skip
MISSING = {
    "lactate": 0.3,
    "glucose": 0.15,
    "temperature": 0.12,
    "haemoglobin": 0.1,
    "speed": 0.1,
    "pupils": 0.06,
    "seatbelt": 0.1,
}


def draw_patients(rows: int, seed: int) -> tuple[dict[str, NDArray[np.float64] | NDArray[np.str_]], Floats]:
    """Return the columns of a drawn table, with `id` and `outcome`, and the true risk (N,) of every patient."""
    from scipy.optimize import brentq  # which training does without

    if not 100 <= rows <= 1_000_000:
        raise InputError(f"{rows:,} patients", hint="Draw 100 to 1,000,000 (--images).")
    random = numpy_generator(seed, "patients")
    severity = random.standard_normal(rows)
    scores = {}
    columns: dict[str, NDArray[np.float64] | NDArray[np.str_]] = {"id": np.array([f"p{k:06d}" for k in range(rows)])}
    for name, (mean, std, correlation) in VITALS.items():
        own = random.standard_normal(rows)
        scores[name] = correlation * severity + np.sqrt(1 - correlation**2) * own
        columns[name] = np.round(mean + std * scores[name], 1)
    for name, words in CATEGORIES.items():
        share = 0.5 ** np.arange(len(words))
        columns[name] = random.choice(words, rows, p=share / share.sum())
    is_word = {
        word: (columns[name] == word).astype(float)
        for name in ("mechanism", "region", "bleeding", "pupils")
        for word in CATEGORIES[name]
    }
    logit = 1.6 * (
        1.1 * severity + 0.5 * scores["lactate"] - 0.4 * scores["gcs"] + 0.25 * scores["age"] ** 2
        + 0.5 * scores["heart_rate"] * -scores["systolic"] + 0.5 * scores["age"] * is_word["fall"]
        + 1.2 * is_word["gunshot"] * is_word["chest"] + 1.0 * is_word["head"] * (scores["gcs"] < -0.5)
        + 0.9 * is_word["major"] + 0.7 * is_word["fixed"]
    )  # fmt: skip
    risk = expit(logit + brentq(lambda shift: expit(logit + shift).mean() - PREVALENCE, -30.0, 10.0))
    columns["outcome"] = (random.random(rows) < risk).astype(np.float64)
    for name, rate in MISSING.items():
        gone = random.random(rows) < rate * np.exp(0.4 * severity - 0.08)
        columns[name] = np.where(gone, "" if name in CATEGORIES else np.nan, columns[name])
    return columns, np.asarray(risk)
