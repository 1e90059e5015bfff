"""Evaluators of drawn test points, for tests that take no sampler, and what submissions to them state."""

import numpy as np

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import TARGETS

FUNDUS, ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]
GROUP = np.array(["in_domain"] * 60 + ["shifted"] * 40 + [f"corrupted-noise-{1 + k % 5}" for k in range(50)])
N = len(GROUP)


def data_of(chosen, seed=0):
    random = np.random.default_rng(seed)
    if chosen.likelihood == "gaussian":
        train = ArrayDataset(np.zeros((9, 2)), random.normal(size=9), np.full(9, "train"))
        return TargetData(train, ArrayDataset(np.zeros((N, 2)), random.normal(size=N), np.full(N, "gap")))
    train = ArrayDataset(np.zeros((9, 2)), np.arange(9) % 5, np.full(9, "train"))
    return TargetData(train, ArrayDataset(np.zeros((N, 2)), random.integers(0, 5, N), GROUP))


def evaluator_of(chosen, reference, replicates=200, seed=0):
    return Evaluator(chosen, data_of(chosen), reference, replicates, seed)


DATA = {chosen.name: data_of(chosen).sha256 for chosen in (FUNDUS, ENERGY)}


def submission_meta(chosen, title, seed=0, **more):
    """Return the metadata of a submission of one method and seed; `more` are settings of its run."""
    run = {"seed": seed, "method": title, **more}
    sha = DATA[chosen.name]
    return {
        "task": chosen.name, "target": chosen.fingerprint(sha), "data": sha, "method": title.lower(), "title": title,
        "seed": seed, "run": run, "budget": {"limit": 10, "used": 8.0, "over": False}, "seconds": 1.0,
        "implied": {"temperature": 1.0, "prior_variance": chosen.prior_variance, "how": "its mode"},
    }  # fmt: skip
