"""Every deviation of the corrected from the published rules, with the numbers that `docs/deviations.md` states."""

import json

import numpy as np
import pytest

from conftest import shared_path
from retinabench.metrics import classification, published
from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.calibration import bins_of
from retinabench.metrics.paired import aggregate
from retinabench.metrics.published import balanced_rows, rebalanced_rows
from retinabench.metrics.scoring import score
from retinabench.metrics.weighted_images import Cases
from retinabench.predictions.table import Predictions


def golden(name):
    return np.load(shared_path("golden", "retina", f"{name}.npz"))


def retention(name):
    z = golden(f"retention_{name}")
    return z["in_y_true"], z["in_y_pred"], z["in_uncertainty"]


def joint():
    z = golden("joint_severity_like")
    return (*(z[f"out_joint_{name}"] for name in ("y_true", "y_pred", "entropy", "is_ood")),)


def test_d01_ties():
    y, p, u = retention("n500_ties")
    assert len(np.unique(u)) == 23
    back = slice(None, None, -1)
    released = golden("retention_n500_ties")["out_uncertainty_argsort_default"]
    stable = [np.argsort(one, kind="stable") for one in (u, u[back])]
    areas = [published.referral_curve(y, p, u, "accuracy", order=order).area for order in (released, stable[0])]
    areas += [published.referral_curve(y[back], p[back], u[back], "accuracy", order=stable[1]).area]
    assert areas == pytest.approx([0.92852, 0.92968, 0.92758], abs=1e-5)
    ours = [referral_curve(*(x[rows] for x in (y, p, u)), "accuracy").area for rows in (slice(None), back)]
    assert ours[0] == ours[1] == pytest.approx(0.92849, abs=1e-5)


def test_d02_one_class():
    y, p, u = retention("n400_all_positive")
    theirs = published.referral_curve(y, p, u, "auroc")
    assert theirs.area == pytest.approx(0.18812, abs=1e-5)
    assert np.bincount(theirs.value.astype(int)).tolist() == [82, 19]
    assert published.referral_curve(y, p, u, "auprc").area == 1
    ours = referral_curve(y, p, u, "auroc")
    assert np.isnan(ours.value).all()
    assert np.isnan(ours.area)
    assert "400 positive and 0 negative" in ours.why


def test_d03_reach():
    y, p, u = retention("n300_tail_one_class_correct")
    theirs, ours = published.referral_curve(y, p, u, "auroc"), referral_curve(y, p, u, "auroc")
    assert theirs.area == pytest.approx(0.9924, abs=5e-5)
    assert (theirs.value == 1).sum() == 61
    assert ours.area == pytest.approx(ours.value[:151].mean(), abs=1e-12)
    assert ours.area == pytest.approx(0.9851, abs=5e-5)


def test_d04_every_count():
    y, p, u = retention("n50")
    theirs, ours = published.referral_curve(y, p, u, "auroc"), referral_curve(y, p, u, "auroc")
    assert len(theirs.value) == 101
    assert theirs.value[-2] == 0
    assert theirs.positives[-2] + theirs.negatives[-2] == 0
    assert len(ours.value) == 50


def test_d05_no_point_without_images():
    y, p, u = retention("n50")
    theirs, ours = published.referral_curve(y, p, u, "accuracy"), referral_curve(y, p, u, "accuracy")
    assert theirs.value[-1] == 1
    np.testing.assert_allclose(theirs.value[:-1], ours.value, atol=1e-12)
    assert theirs.area == pytest.approx(0.9142, abs=5e-5)
    assert ours.area == pytest.approx(0.9125, abs=5e-5)
    assert theirs.area - ours.area == pytest.approx((1 - ours.area) / 51, abs=1e-12)


def test_d06_average_precision():
    y, p, _ = retention("n200_imbal10")
    assert published.auprc(y, p) == pytest.approx(0.5987, abs=5e-5)
    assert classification.auprc_of(Cases(y, p).weighted()) == pytest.approx(0.6065, abs=5e-5)
    _, _, u, far = joint()
    assert published.auprc(far, u) == pytest.approx(0.0580, abs=5e-5)
    far_by_uncertainty = Cases(far, (u - u.min()) / np.ptp(u)).weighted()
    assert classification.auprc_of(far_by_uncertainty) == pytest.approx(0.0614, abs=5e-5)


def test_d07_balanced_ranking():
    y, p, u, far = joint()
    weight = classification.balanced_weight(far)
    for metric, theirs, ours in (("auroc", 0.9693, 0.9658), ("auprc", 0.9346, 0.9798)):
        assert published.referral_curve(y, p, u, metric).area == pytest.approx(theirs, abs=5e-5)
        assert referral_curve(y, p, u, metric, weight=weight).area == pytest.approx(ours, abs=5e-5)


def test_d08_balanced_weights():
    y, p, u, far = joint()

    def drawn(seed):
        rows = balanced_rows(far, seed)
        return published.referral_curve(y[rows], p[rows], u[rows], "accuracy").area

    assert drawn(1234) == pytest.approx(0.95795, abs=5e-6)
    areas = [drawn(seed) for seed in range(200)]
    assert (min(areas), max(areas)) == pytest.approx((0.95715, 0.95915), abs=1e-5)
    ours = referral_curve(y, p, u, "accuracy", weight=classification.balanced_weight(far)).area
    assert ours == pytest.approx(0.95811, abs=5e-6)


def test_d09_grade_weights():
    z = golden("aptos_rebalanced")
    right = (z["in_y_pred"] > 0.5) == z["in_y_true"]
    drawn = [right[rebalanced_rows(z["in_diagnosis"], s, 1000)].mean() for s in (99, *range(300))]
    assert drawn[0] == pytest.approx(0.513, abs=5e-4)
    assert np.std(drawn[1:]) == pytest.approx(0.016, abs=1e-3)
    ours = np.average(right, weights=classification.grade_weight(z["in_diagnosis"]))
    assert ours == pytest.approx(0.5154, abs=5e-5)


def test_d10_ece():
    z = golden("ece")
    for case, theirs, ours in (("a", 0.1054455, 0.1054455), ("b", 0.02275, 0.02395)):
        y, p = z[f"in_{case}_y_true"], z[f"in_{case}_y_pred"]
        assert published.ece(y, p) == pytest.approx(theirs, abs=5e-6)
        assert bins_of(Cases(y, p).weighted(), "top_label").expected_error() == pytest.approx(ours, abs=5e-6)


def test_d11_nll():
    assert published.nll([1], np.array([0.0])) == pytest.approx(36.04, abs=5e-3)
    assert published.losses([1], np.array([0.0])) == pytest.approx([34.54], abs=5e-3)
    assert classification.nll([1], [0.0]) == pytest.approx(34.54, abs=5e-3)


def test_d12_seeds():
    inputs = json.loads(shared_path("golden", "retina", "seed_aggregation.json").read_text())["inputs"]
    values = [row["d/auroc"] for row in inputs]
    assert published.aggregate(values)[2] == pytest.approx(0.1067, abs=5e-5)
    assert aggregate(values).error == pytest.approx(0.1169, abs=5e-5)
    assert np.isnan(aggregate([*values, None]).mean)


def test_d13_roc():
    roc = classification.Roc(np.array([0, 0.1, 1]), np.array([0.0, 0.6, 1]), np.array([np.inf, 0.7, 0.1]))
    # 0.38 is nearer to 0.1 than to 1
    assert published.sensitivity_at_nearest(roc, [0.38]) == pytest.approx(0.60)
    assert classification.sensitivity_on_chords(roc, [0.38])[0] == pytest.approx(0.72, abs=5e-3)


def test_d14_drawn_lines():
    """And d15: the released plot's own lines."""
    z = golden("referral_plot_lines")
    twice, once = (z[f"out_plain_noOracleFlag{flag}_retention_accuracy_arr_y"] for flag in (True, False))
    assert (once[-1], twice[-1]) == pytest.approx((0.848, 0.773), abs=5e-4)
    assert z["out_plain_noOracleFlagTrue_retention_accuracy_arr_x"][-1] == pytest.approx(0.33, abs=5e-3)


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_d16_every_row(rules):
    p = Predictions([f"i{k}" for k in range(65)], np.arange(65) % 2, np.linspace(0.1, 0.9, 65))
    found = score(p, rules, bootstrap=0).to_dict()["sets"]["in_domain"]
    assert found["images"] == 65
    assert found["scores"]["accuracy"]["value"] == pytest.approx(np.mean((p.prob > 0.5) == p.label))
