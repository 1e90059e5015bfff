"""Patients whose grades and grade probabilities come from a known model."""

import numpy as np
from scipy.special import ndtr, ndtri

import retinabench as rb

FREQUENCY = np.array([0.735, 0.07, 0.147, 0.024, 0.024])  # of the grades, as among EyePACS's test images
CUTS = np.concatenate([[-np.inf], ndtri(np.cumsum(FREQUENCY)[:4]), [np.inf]])


def graded_patients(patients, seed, noise=0.5, images=None, validation=0):
    """Predictions of patients with two images each, or as many as `images` makes of their severity; the first ones are of the
    validation split. Severity z is normal, of an image with correlation .8 between those of a patient; the grade is where it lies
    between `CUTS`. The model sees z + noise, and gives the grades their true probabilities: it is calibrated."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(size=patients)
    count = np.full(patients, 2) if images is None else images(severity)
    patient = np.repeat(np.arange(patients), count)
    z = np.sqrt(0.8) * severity[patient] + np.sqrt(0.2) * rng.normal(size=len(patient))
    seen = z + noise * rng.normal(size=len(z))
    share = 1 / (1 + noise**2)
    cumulative = ndtr((CUTS - share * seen[:, None]) / np.sqrt(share * noise**2))
    prob = np.diff(cumulative, axis=1)
    grade = np.searchsorted(CUTS[1:5], z)
    return rb.Predictions.from_softmax(
        prob, [f"i{k}" for k in range(len(z))], grades=grade, patient_id=[f"p{k}" for k in patient],
        split=np.where(patient < validation, "validation", "test"),
        subgroups={"camera": np.where(patient % 3 == 0, "B", "A")},
    )  # fmt: skip
