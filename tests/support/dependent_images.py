"""Images that depend on each other: four of a diseased patient, one of a healthy one."""

import numpy as np

from retinabench.metrics.guarantees.goals import ReferralCases, weights


def drawn(rng, patients):
    """(label, prob, patient, severe) of the images: (N,) each; a patient's images share the disease."""
    disease = rng.normal(-0.8, 1.2, patients)
    patient = np.repeat(np.arange(patients), np.where(disease > 0, 4, 1))
    severity = disease[patient] + rng.normal(0, 0.6, len(patient))
    label = rng.random(len(patient)) < 1 / (1 + np.exp(-2 * severity))
    prob = 1 / (1 + np.exp(-1.5 * severity - rng.normal(0, 0.6, len(patient))))
    return label, prob, patient, label & (severity > 0.5)


def drawn_with_ties(rng, patients, per="image"):
    """Cases ordered by their probabilities, and these probabilities, with ties."""
    label, prob, patient, severe = drawn(rng, patients)
    prob = np.round(prob, 2)
    return ReferralCases(label, prob > 0.5, prob, patient, weights(patient, per), severe), prob
