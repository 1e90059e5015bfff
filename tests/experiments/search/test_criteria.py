"""The criteria against scikit-learn, brute force and the released code's own numbers; only validation rows count."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from retinabench.experiments.search import criteria
from retinabench.experiments.search.criteria import measure
from retinabench.metrics.scoring import score
from retinabench.predictions.table import Predictions

BALANCED = "balanced_joint_accuracy_area"


def draw(seed=0, near=90, far=30, samples=3):
    """Predictions of `near` in-domain and `far` shifted validation images, and as many test images of noise."""
    random = np.random.default_rng(seed)
    n = near + far
    label = random.integers(0, 2, 2 * n)
    logit = 1.5 * (2 * label - 1) + random.normal(0, 1.5, 2 * n)
    logit[n:] = random.normal(0, 3, n)
    probs = 1 / (1 + np.exp(-logit[:, None] - random.normal(0, 0.5, (2 * n, samples))))
    return Predictions(
        image_id=np.arange(2 * n).astype(str),
        label=label,
        probs=np.round(probs, 2),  # ties
        domain=np.tile(np.repeat(["in_domain", "shifted"], [near, far]), 2),
        split=np.repeat(["validation", "test"], n),
    )


@pytest.mark.parametrize("rules", ["corrected", "published"])
@pytest.mark.parametrize("seed", range(3))
def test_in_domain_auroc_is_scikit_learns_on_in_domain_validation_rows(rules, seed):
    p = draw(seed)
    rows = (p.split == "validation") & (p.domain == "in_domain")
    truth = roc_auc_score(p.label[rows], p.prob[rows])
    assert measure("in_domain_auroc", p, rules)[0] == pytest.approx(truth, abs=1e-12)
    everything = roc_auc_score(p.label, p.prob)
    assert abs(truth - everything) > 0.01  # the rows matter


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_the_balanced_area_is_what_score_says_of_the_same_rows_as_a_test_set(rules):
    p = draw(2)
    rows = np.flatnonzero(p.split == "validation")
    part = p.take(rows)
    as_test = Predictions(part.image_id, part.label, part.probs, domain=part.domain)
    expected = score(as_test, rules=rules, bootstrap=0).value("referral_accuracy_area", "balanced")
    assert measure(BALANCED, p, rules)[0] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("case", ["joint_equal", "joint_severity_like"])
def test_the_published_balanced_area_is_the_released_codes(shared, monkeypatch, case):
    """Its random duplication was drawn after `np.random.seed(1234)`; the mean of its curve was the criterion."""
    z = np.load(shared("golden", "retina", f"{case}.npz"))
    monkeypatch.setattr(criteria, "DRAW", 1234)
    far = z["out_joint_is_ood"]
    p = Predictions(
        np.arange(len(far)).astype(str), z["out_joint_y_true"], z["out_joint_y_pred"],
        domain=np.where(far, "shifted", "in_domain"), split=np.full(len(far), "validation"),
        uncertainty=z["out_joint_entropy"],
    )  # fmt: skip
    truth = float(np.mean(z["out_balanced_accuracy"]))
    assert measure(BALANCED, p, "published")[0] == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("rules", ["corrected", "published"])
@pytest.mark.parametrize(
    ("name", "domains", "labels", "split", "why"),
    [
        ("in_domain_auroc", ["in_domain"] * 4, [1, 1, 1, 1], "validation", "one class only: 4 of 4"),
        ("in_domain_auroc", ["in_domain"] * 4, [0, 0, 0, 0], "validation", "one class only: 0 of 4"),
        ("in_domain_auroc", ["shifted"] * 4, [0, 1, 0, 1], "validation", "no in-domain validation images"),
        ("in_domain_auroc", ["in_domain"] * 4, [0, 1, 0, 1], "test", "no validation images"),
        (BALANCED, ["in_domain"] * 4, [0, 1, 0, 1], "validation", "no shifted validation images"),
        (BALANCED, ["shifted"] * 4, [0, 1, 0, 1], "validation", "no in-domain validation images"),
    ],
)
def test_what_is_undefined_says_why(rules, name, domains, labels, split, why):
    p = Predictions(
        np.array(list("abcd")), np.array(labels), np.array([0.1, 0.8, 0.3, 0.7]), domain=np.array(domains),
        split=np.array([split] * 4),
    )  # fmt: skip
    value, found = measure(name, p, rules)
    assert np.isnan(value)
    assert why in found
