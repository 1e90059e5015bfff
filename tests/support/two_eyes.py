"""Studies of patients with two correlated eyes, seen by a camera that the model knows or by another one."""

import numpy as np


def eyes(rng, patients, camera=(1.0, 0.0)):
    """(label, call, uncertainty, patient): correlated eyes; a camera scales and shifts the model's logit."""
    severity = np.repeat(rng.normal(-0.8, 1.2, patients), 2) + rng.normal(0, 0.6, 2 * patients)
    y = rng.random(2 * patients) < 1 / (1 + np.exp(-2 * severity))
    z = camera[0] * (1.5 * severity + rng.normal(0, 0.6, 2 * patients)) + camera[1]
    p = 1 / (1 + np.exp(-z))
    return y, p > 0.5, np.round(0.5 - np.abs(p - 0.5), 3), np.repeat(np.arange(patients), 2)
