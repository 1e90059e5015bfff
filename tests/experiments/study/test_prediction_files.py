"""Which seeds form an ensemble, and how their predictions are pooled."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from retinabench.experiments.study.prediction_files import pool, subsets
from retinabench.predictions.table import Predictions


def test_ensembles_are_all_subsets_or_the_six_released_draws():
    seeds = (42, 43, 44, 45, 46, 47)
    assert subsets(seeds, 3, "corrected") == list(combinations(seeds, 3))
    assert len(subsets(seeds, 3, "corrected")) == 20
    drawn = subsets(seeds, 3, "published")
    draw = np.random.RandomState(0)
    assert drawn == [tuple(sorted(draw.choice(seeds, 3, replace=False))) for _ in range(6)]
    assert subsets((0, 1, 2), 3, "published") == subsets((0, 1, 2), 3, "corrected") == [(0, 1, 2)]
    assert subsets(seeds, 0, "corrected") == []
    # 84 of three out of nine would be 9 GB for MC dropout: they are cut into three that share no seed.
    assert subsets(tuple(range(9)), 3, "corrected") == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


def test_a_pool_is_the_mean_of_its_members():
    random = np.random.default_rng(0)
    about = {
        "method": "dropout",
        "title": "MC dropout",
        "seed": 0,
        "members": 1,
        "config_hash": "a",
        "setting": "s",
    }
    members = [
        Predictions(
            np.array(["a", "b"]), np.array([0, 1]), random.random((2, 4)), metadata={**about, "seed": k}
        )
        for k in range(3)
    ]
    pooled = pool(members, (0, 1, 2), 7)
    np.testing.assert_allclose(pooled.prob, np.mean([m.prob for m in members], axis=0), rtol=1e-12)
    assert pooled.samples == 12
    assert pooled.metadata["members"] == 3
    assert pooled.metadata["title"] == "ensemble of 3 MC dropout"
    assert pooled.metadata["seed"] == 7
    assert pooled.metadata["setting"] == "s"
