"""P-values of differences and Holm's correction."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retinabench as rb
from retinabench.metrics.comparison.compare import compare
from retinabench.metrics.inference.p_values import holm


def models(seed=0, patients=120, quality=(1.5, 1.0), domains=False):
    """Predictions of several models on the same two eyes per patient; `quality` is the signal of each."""
    rng = np.random.default_rng(seed)
    n = 2 * patients
    patient = np.repeat([f"p{k}" for k in range(patients)], 2)
    hard = np.repeat(rng.normal(size=patients), 2)
    y = (rng.random(n) < 1 / (1 + np.exp(-hard + 0.5))).astype(int)
    noise = rng.normal(size=n)
    found = []
    for signal in quality:
        z = signal * (2 * y - 1) + noise + rng.normal(size=n)
        found.append(
            rb.Predictions(
                [f"i{k}" for k in range(n)],
                y,
                1 / (1 + np.exp(-z)),
                patient_id=patient,
                domain=np.where(np.arange(n) < n // 2, "in_domain", "shifted") if domains else None,
            )
        )
    return found


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_adjusts_to_the_level_at_which_its_procedure_rejects(p):
    def rejected(alpha):
        out = np.zeros(len(p), bool)
        for step, k in enumerate(np.argsort(p, kind="stable")):
            if p[k] * (len(p) - step) > alpha:
                break
            out[k] = True
        return out

    for k, adjusted in enumerate(holm(p)):
        assert rejected(adjusted + 1e-12)[k] or adjusted == 1
        assert not rejected(adjusted - 1e-9)[k]


def test_holm_leaves_undefined_out():
    np.testing.assert_array_equal(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


def test_the_p_value_holds_its_level():
    """Two equally good models, 400 data sets: 5 % are rejected; SE of the share 1.1 %."""
    rejected = 0
    for seed in range(400):
        a, b = models(1000 + seed, patients=60, quality=(1.0, 1.0))
        entry = compare(a, b, bootstrap=99, scores=["accuracy"]).to_dict()["sets"]["in_domain"]["scores"][
            "accuracy"
        ]
        rejected += entry["p"] < 0.05
    assert rejected / 400 <= 0.05 + 3 * 0.011
