"""Random and oracle referral frame the model."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.metrics.score import score
from retinabench.metrics.selective.controls import oracle_referral, random_referral
from retinabench.predictions.table import Predictions


def predictions(n=300, seed=0, **more):
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, n, p=[0.5, 0.2, 0.2, 0.06, 0.04])
    p = np.clip((grade / 4 + rng.normal(0, 0.3, n)), 0.001, 0.999)
    columns = {
        "image_id": [f"i{k:04d}" for k in range(n)],
        "label": grade >= 2,
        "probs": p,
        "grade": grade,
        "patient_id": [f"p{k // 2}" for k in range(n)],
        "domain": np.where(np.arange(n) < n * 0.8, "in_domain", "shifted"),
    }
    return Predictions(**(columns | more))


def test_controls_frame_the_model():
    p = predictions()
    sets = {
        name: score(q, bootstrap=0).to_dict()["sets"]["in_domain"]
        for name, q in (("model", p), ("random", random_referral(p)), ("oracle", oracle_referral(p)))
    }
    areas = {name: s["scores"]["referral_accuracy_area"]["value"] for name, s in sets.items()}
    assert areas["random"] == pytest.approx(sets["model"]["scores"]["accuracy"]["value"], abs=1e-12)
    assert areas["random"] < areas["model"] < areas["oracle"]
    assert sets["oracle"]["scores"]["failure_auroc"]["value"] == 1
    assert sets["random"]["scores"]["prr"]["value"] == pytest.approx(0, abs=1e-12)
    assert random_referral(p).metadata["method"].endswith("random referral")
