"""Resemblance of uncertainty: the share of false alarms and the power, by simulation, and the statistic by SciPy."""

import numpy as np
import pytest
from scipy import stats

from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.threshold import resemblance
from support.two_eyes import eyes


def test_a_shift_is_flagged_and_its_absence_is_not():
    """400 pairs of 200 and 200 patients, level 5 %: SE of the share 1.1 %. The shifted camera washes the images out."""
    alarms = {"same": 0, "camera": 0}
    for study in range(400):
        rng = np.random.default_rng([2, study])
        _, _, u, patient = eyes(rng, 200)
        for name, camera in (("same", (1.0, 0.0)), ("camera", (0.6, 0.3))):
            _, _, other, their = eyes(rng, 200, camera)
            alarms[name] += resemblance(u, patient, other, their, permutations=59, seed=study).alarm
    print(f"alarms of 400: {alarms}")
    assert alarms["same"] / 400 <= 0.05 + 3 * 0.011
    assert alarms["camera"] / 400 >= 0.95


def test_the_guarantee_fails_under_the_shift_that_is_flagged():
    """What the alarm is for: on the shifted camera the certified threshold breaks its promise."""
    data = eyes(np.random.default_rng(5), 2000)
    certificate = certify(ReferralCases(*data, np.ones(len(data[0]))), [Goal("selective_risk", 0.05)], 0.1)
    y, said, u, patient = eyes(np.random.default_rng(6), 20_000, (0.6, 1.5))
    kept = u <= certificate.threshold
    assert np.mean((y != said)[kept]) > 0.06
    assert resemblance(data[2], data[3], u[:4000], patient[:4000]).alarm


def test_images_of_one_patient_would_break_the_level():
    """Permuting images instead of patients calls equal populations shifted too often; that is why patients move."""
    wrong = right = 0
    for study in range(300):
        rng = np.random.default_rng([3, study])
        u = [np.repeat(rng.normal(size=40), 6) + rng.normal(0, 0.1, 240) for _ in range(2)]
        patient = np.repeat(np.arange(40), 6)
        wrong += resemblance(u[0], None, u[1], None, permutations=39, seed=study).alarm
        right += resemblance(u[0], patient, u[1], patient, permutations=39, seed=study).alarm
    assert right / 300 <= 0.05 + 3 * 0.0126
    assert wrong / 300 > 0.15


def test_the_distance_is_that_of_kolmogorov_and_smirnov():
    rng = np.random.default_rng(4)
    a, b = rng.random(80).round(1), (rng.random(60) ** 1.3).round(1)
    assert resemblance(a, None, b, None, permutations=1).distance == pytest.approx(stats.ks_2samp(a, b).statistic)


def test_several_values_are_tested_at_one_level_and_a_change_of_any_is_seen():
    """400 pairs of 60 and 60 patients, seed 6: the standard error of a share of 5 % is 1.1 points. The prevalence changes, the
    uncertainty |p - 1/2| does not: the probability shows it."""
    false = alone = jointly = 0
    for study in range(400):
        rng = np.random.default_rng([6, study])
        p = rng.beta(0.5, 0.5, 120)
        values = np.column_stack([np.abs(p - 0.5), p])
        false += resemblance(values[:60], None, values[60:], None, permutations=39, seed=study).alarm
        if study < 40:
            more = np.where(rng.random(60) < 0.6, np.maximum(p[60:], 1 - p[60:]), p[60:])
            other = np.column_stack([np.abs(more - 0.5), more])
            alone += resemblance(values[:60, 0], None, other[:, 0], None, permutations=39, seed=study).alarm
            jointly += resemblance(values[:60], None, other, None, permutations=39, seed=study).alarm
    assert false / 400 <= 0.05 + 3 * 0.011
    assert alone < 8
    assert jointly > 20
