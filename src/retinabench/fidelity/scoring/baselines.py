"""Trivial submissions, made from nothing or from the reference, to compare any score with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity.submissions.submission import About, Submission
from retinabench.fidelity.submissions.submission_checks import DRAWS
from retinabench.fidelity.targets.target import Target


def baselines(target: Target, reference: NDArray[np.floating]) -> list[Submission]:
    """Return the trivial submissions.

    Classification: the most frequent class of the reference for every point; uniform probabilities; the reference's own
    class with certainty. Regression: the distribution of y over the training points, a standard Gaussian, for every
    point; the reference's mean with certainty.

    Args:
        target: The target.
        reference: Probabilities (N, C) or draws (N, M) of its reference.
    """
    if target.likelihood == "gaussian":
        generator = numpy_generator(0, "fidelity baseline", target.name)
        marginal = generator.standard_normal((len(reference), DRAWS))
        point = np.repeat(reference.mean(axis=1, dtype=np.float64)[:, None], DRAWS, axis=1)
        return [_named("marginal of y", draws=marginal), _named("mean of the reference", draws=point)]
    points, classes = reference.shape
    named = reference.argmax(axis=1)
    constant = np.tile(np.eye(classes)[np.bincount(named).argmax()], (points, 1))
    return [
        _named("constant class", probs=constant),
        _named("uniform", probs=np.full((points, classes), 1 / classes)),
        _named("one-hot of the reference", probs=np.eye(classes)[named]),
    ]


def _named(title: str, **values: NDArray[np.float64]) -> Submission:
    return Submission(values.get("probs"), None, values.get("draws"), About(title=title, baseline=True))
