"""Submissions to two targets, their evaluators, and the boards of all of them, which are made once."""

import shutil
from functools import cache

import numpy as np
import pytest

from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.evaluators import ENERGY, FUNDUS, N, evaluator_of, submission_meta
from support.fake_reference import classified, regressed, softmax


@cache
def two_evaluators():
    return {"fundus": evaluator_of(FUNDUS, classified(N, 5)), "energy-gap": evaluator_of(ENERGY, regressed(N))}


@pytest.fixture
def evaluators():
    return dict(two_evaluators())


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Near, middling and far submissions for both tasks; the near one with three seeds."""
    out, evaluators = tmp_path_factory.mktemp("submissions"), two_evaluators()
    near, reference = evaluators["fundus"].reference, evaluators["energy-gap"].reference.draws
    for title, noise, seeds in (("Near", 0.2, 3), ("Middling", 0.8, 1), ("Far", 3.0, 1)):
        for seed in range(seeds):
            random = np.random.default_rng(100 + seed)
            probs = softmax(np.log(near.probs) + noise * random.normal(size=near.probs.shape))
            shifted = reference[:, :1000] + noise * random.normal(size=(N, 1))
            for chosen, values in ((FUNDUS, {"probs": probs, "samples": probs[None]}), (ENERGY, {"draws": shifted})):
                one = Submission(**values, about=About(**submission_meta(chosen, title, seed)))
                write_submission(out / f"{title}-{chosen.name}-{seed}" / "submission.npz", one)
    return out


@pytest.fixture
def folder(written, tmp_path):
    """A copy of the submissions, to which a test adds others."""
    return shutil.copytree(written, tmp_path / "runs")


@pytest.fixture(scope="session")
def boards(written):
    """The boards of both tasks."""
    return score_tasks(find_submissions([written]), two_evaluators())[0]


@pytest.fixture
def scored(tmp_path, evaluators):
    """Score submissions of class probabilities, (values, metadata) each: boards, and what was refused."""

    def boards_of(*submissions):
        for k, (values, about) in enumerate(submissions):
            write_submission(tmp_path / str(k) / "submission.npz", Submission(*values, about=About(**about)))
        return score_tasks(find_submissions([tmp_path]), evaluators)

    return boards_of
