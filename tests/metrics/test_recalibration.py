import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import retinabench as rb
from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.metrics.recalibration import fitted


def drawn(n=1500, seed=0):
    """Labels, and probabilities whose true map is s(0.5 z - 0.7)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2.5, n)
    return rng.random(n) < expit(0.5 * z - 0.7), expit(z)


LABEL, PROB = drawn()
NEW = np.linspace(0.01, 0.99, 23)


def test_logistic_maps_are_those_of_scikit_learn():
    def oracle(columns, of=NEW, intercept=True):
        model = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000, fit_intercept=intercept).fit(columns(PROB), LABEL)
        return model.predict_proba(columns(of))[:, 1]

    platt = oracle(lambda p: logit(p)[:, None])
    np.testing.assert_allclose(fitted("platt", LABEL, PROB)(NEW), platt, atol=2e-6)
    temperature = oracle(lambda p: logit(p)[:, None], intercept=False)
    np.testing.assert_allclose(fitted("temperature", LABEL, PROB)(NEW), temperature, atol=2e-6)
    beta = oracle(lambda p: np.column_stack([np.log(p), -np.log1p(-p)]))
    np.testing.assert_allclose(fitted("beta", LABEL, PROB)(NEW), beta, atol=2e-6)


def test_the_isotonic_map_is_that_of_scikit_learn():
    oracle = IsotonicRegression(out_of_bounds="clip").fit(PROB, LABEL.astype(float))
    np.testing.assert_allclose(fitted("isotonic", LABEL, PROB)(NEW), oracle.predict(NEW), atol=1e-12)


def test_venn_abers_is_isotonic_regression_with_the_image_added_either_way():
    label, prob = LABEL[:200], np.round(PROB[:200], 2)  # ties
    rounded = expit(np.round(logit(NEW), 4))
    expected = []
    for p in rounded:
        fits = [IsotonicRegression().fit(np.append(prob, p), np.append(label, k).astype(float)) for k in (0, 1)]
        ends = [fit.predict([p])[0] for fit in fits]
        expected.append(ends[1] / (1 - ends[0] + ends[1]))
    np.testing.assert_allclose(fitted("venn-abers", label, prob)(NEW), expected, atol=1e-12)


@pytest.mark.parametrize("method", ["platt", "beta", "isotonic", "venn-abers"])
def test_a_known_distortion_is_undone(method):
    """6,000 images: the mean absolute error of the map lies below 2.5 points (it is 12 points before)."""
    label, prob = drawn(6000, 3)
    truth = expit(0.5 * logit(PROB) - 0.7)
    assert np.abs(fitted(method, label, prob)(PROB) - truth).mean() < 0.025
    assert np.abs(PROB - truth).mean() > 0.1


def predictions(sites=("A",)):
    rng = np.random.default_rng(1)
    label, prob = drawn(2400, 5)
    site = rng.choice(sites, 2400)
    prob = np.where(site == "B", prob**3, prob)
    split = np.where(np.arange(2400) % 2 == 0, "validation", "test")
    return rb.Predictions(np.arange(2400).astype(str), label, prob, split=split, subgroups={"site": site})


def test_a_map_for_every_group_is_that_of_its_images():
    both = predictions(("A", "B"))
    before, after = both.select(split="test"), rb.recalibrate(both, "platt", "site")
    assert set(after.split) == {"test"}
    rows = (both.split == "validation") & (both.subgroups["site"] == "B")
    own = fitted("platt", both.label[rows] == 1, both.prob[rows])
    new = before.subgroups["site"] == "B"
    np.testing.assert_allclose(after.prob[new], own(before.prob[new]), atol=1e-12)
    files = {"before": before, "after": after}
    score = {name: rb.score(one, bootstrap=0)["in_domain"].nll.value for name, one in files.items()}
    assert score["after"] < score["before"]


def test_the_command_says_what_the_test_images_gain_and_leaves_the_validation_images_out(tmp_path, capsys):
    rb.write_predictions(predictions(), tmp_path / "p.csv")
    out = tmp_path / "new.csv"
    assert run(["recalibrate", str(tmp_path / "p.csv"), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Better. In-domain: platt changes the NLL from ")
    assert "can certify nothing with it" in " ".join(shown.err.split())
    assert run(["recalibrate", str(tmp_path / "p.csv"), "--method", "isotonic", "--out", str(out)]) == 0
    assert ": isotonic changes the NLL from " in capsys.readouterr().out
    written = rb.read_predictions(out)
    assert (len(written), set(written.split)) == (1200, {"test"})
    assert run(["recalibrate", str(out), "--out", str(tmp_path / "again.csv")]) == 2
    assert "needs images of the validation and of the test split" in capsys.readouterr().err
    assert run(["recalibrate", str(tmp_path / "p.csv"), "--map", "plat", "--out", str(out)]) == 2
    assert "unknown method 'plat'" in capsys.readouterr().err


def test_few_images_of_a_class_fit_no_map():
    whole = predictions()
    few = whole.take(np.flatnonzero((whole.split == "test") | (whole.label == 0)))
    with pytest.raises(InputError, match="has 0 referable and"):
        rb.recalibrate(few)
