"""The submission of posterior samples: mean probabilities with some of the samples, or draws of y."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity.submissions.submission import About, Submission
from retinabench.fidelity.submissions.submission_checks import DRAWS
from retinabench.fidelity.targets.target import Target

KEPT_SAMPLES = 200  # in the submission of a classification


def submission_of(values: NDArray[np.float32], target: Target, about: About, seed: int) -> Submission:
    """Return the submission of the predictions of posterior samples.

    Args:
        values: Class probabilities, or means and stds, (S, N, O).
        target: The target.
        about: What it says of itself.
        seed: Of the draws of y.
    """
    if target.likelihood == "gaussian":
        draws = y_draws(values, numpy_generator(seed, "exam", target.name))
        return Submission(draws=draws.astype(np.float32), about=about)
    kept = np.linspace(0, len(values) - 1, min(len(values), KEPT_SAMPLES)).round().astype(int)
    return Submission(probs=values.mean(axis=0, dtype=np.float64), samples=values[kept], about=about)


def y_draws(predicted: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw y, noise included, from a mixture of Gaussians.

    Args:
        predicted: Means and stds, (S, N, 2). Every sample gives equally many draws, as far as their number allows.
        generator: Source of the noise.

    Returns:
        (N, `DRAWS`), in the unit of the standardised targets.
    """
    samples = np.arange(DRAWS) * len(predicted) // DRAWS
    mean, std = predicted[samples, :, 0].T, predicted[samples, :, 1].T
    return np.asarray(mean + std * generator.standard_normal(mean.shape), np.float64)
