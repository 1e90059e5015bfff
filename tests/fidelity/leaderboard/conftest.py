"""A folder of submissions to two targets, and their evaluators."""

import numpy as np
import pytest

from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.evaluators import ENERGY, FUNDUS, N, evaluator_of
from support.fake_reference import classified, regressed, softmax
from support.submissions import submission_meta


@pytest.fixture
def evaluators():
    return {"fundus": evaluator_of(FUNDUS, classified(N, 5)), "energy-gap": evaluator_of(ENERGY, regressed(N))}


@pytest.fixture
def folder(tmp_path, evaluators):
    """Near, middling and far submissions for both tasks; the near one with three seeds."""
    near, reference = evaluators["fundus"].reference, evaluators["energy-gap"].reference.draws
    for title, noise, seeds in (("Near", 0.2, 3), ("Middling", 0.8, 1), ("Far", 3.0, 1)):
        for seed in range(seeds):
            random = np.random.default_rng(100 + seed)
            probs = softmax(np.log(near.probs) + noise * random.normal(size=near.probs.shape))
            shifted = reference[:, :1000] + noise * random.normal(size=(N, 1))
            for chosen, submission in (
                (FUNDUS, Submission(probs, probs[None], about=About(**submission_meta(FUNDUS, title, seed)))),
                (ENERGY, Submission(draws=shifted, about=About(**submission_meta(ENERGY, title, seed)))),
            ):
                write_submission(tmp_path / "runs" / f"{title}-{chosen.name}-{seed}" / "submission.npz", submission)
    return tmp_path / "runs"
