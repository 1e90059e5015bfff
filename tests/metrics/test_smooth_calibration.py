import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from retinabench.metrics.smooth_calibration import smooth_calibration
from retinabench.metrics.weighted_images import Cases


def drawn(rng, n, true=expit):
    """Two images of a patient, whose outcomes share most of their chance; `true` is P(y = 1) at x = logit(p)."""
    x = rng.normal(-1, 1.5, 2 * n)
    chance = np.where(rng.random(2 * n) < 0.6, np.repeat(rng.random(n), 2), rng.random(2 * n))
    return Cases(chance < true(x), expit(x), patient=np.repeat(np.arange(n), 2)).weighted(), x


def test_distances_of_a_known_curve():
    w, x = drawn(np.random.default_rng(1), 60_000, lambda x: expit(0.5 + 0.7 * x))
    found = smooth_calibration(w)
    gap = np.abs(expit(0.5 + 0.7 * x) - expit(x))
    assert [found.ici, found.e50, found.e90] == pytest.approx([gap.mean(), *np.quantile(gap, (0.5, 0.9))], abs=0.003)
    inside = (found.low <= expit(0.5 + 0.7 * logit(found.prob))) & (expit(0.5 + 0.7 * logit(found.prob)) <= found.high)
    assert inside.mean() > 0.8
    assert found.ici > 5 * found.calibrated_ici


def test_the_curve_is_the_logistic_fit_on_the_spline():
    w, x = drawn(np.random.default_rng(2), 300, lambda x: expit(x + 0.3 * x**2 - 0.6))  # `w` has its own order
    k = np.quantile(x, (0.05, 0.35, 0.65, 0.95))

    def spline(z):  # Harrell's formula, written out
        cube = lambda t: np.maximum(t, 0) ** 3  # noqa: E731
        terms = [
            (
                cube(z - k[j])
                - cube(z - k[2]) * (k[3] - k[j]) / (k[3] - k[2])
                + cube(z - k[3]) * (k[2] - k[j]) / (k[3] - k[2])
            )
            / (k[3] - k[0]) ** 2
            for j in (0, 1)
        ]
        return np.column_stack([z, *terms])

    oracle = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
    oracle = oracle.fit(spline(logit(w.cases.prob)), w.cases.label)
    found = smooth_calibration(w)
    assert found.observed == pytest.approx(oracle.predict_proba(spline(logit(found.prob)))[:, 1], abs=1e-6)


@pytest.mark.slow
def test_a_calibrated_model_stays_below_its_bound():
    """5 % nominal over 200 studies of 200 patients: at most 10 % with a chance of .999; the bound is far from any distance that matters."""
    rng = np.random.default_rng(3)
    found = [smooth_calibration(drawn(rng, 200)[0]) for _ in range(200)]
    assert np.mean([one.ici > one.calibrated_ici for one in found]) <= 0.1
    assert np.mean([one.calibrated_ici for one in found]) < 0.08


def test_too_few_wrong_patients_have_no_curve():
    x = np.concatenate([np.full(40, -3.0), np.full(40, 3.0)]) + np.linspace(0, 1, 80)
    assert smooth_calibration(Cases(x > 0, expit(x)).weighted()) is None
