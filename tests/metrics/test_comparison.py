import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison import compare, rank
from retinabench.metrics.intervals import auroc_difference
from retinabench.metrics.paired import Side, mean_difference, ranks, seed_effects
from support.paired_models import models

FAST = ("accuracy", "auroc", "nll", "referral_accuracy_area")


def differences(*sides, **options):
    return compare(*sides, **options).to_dict()["sets"]["in_domain"]["scores"]


def seeds(signal, count, spread=0.3, first=0, images=240):
    """Seeds of a method on the same images: `spread` is the noise of a seed."""
    common = np.random.default_rng(7)
    label = (np.arange(images) % 3 == 0).astype(int)
    noise = common.normal(size=images)
    found = []
    for seed in range(first, first + count):
        z = signal * (2 * label - 1) + noise + spread * np.random.default_rng([99, seed]).normal(size=images)
        patient = np.repeat([f"p{k}" for k in range(images // 2)], 2)
        found.append(
            rb.Predictions(
                [f"i{k}" for k in range(images)], label, 1 / (1 + np.exp(-z)), patient_id=patient,
                metadata={"seed": seed},
            )
        )  # fmt: skip
    return found


def side(values, draws=0.02, labels=None, seed=0):
    """A side with these values over seeds and replicates of its mean."""
    values = np.asarray(values)
    labels = labels or [((id(values), k),) for k in range(len(values))]
    spread = np.random.default_rng(seed).normal(size=4000) * draws
    return Side(values, values.mean() + spread, seed_effects(values, labels))


def test_the_interval_agrees_with_the_closed_form():
    """2,000 draws: an end of the interval has a Monte Carlo SE of about 6 % of the standard error."""
    a, b = models(1, patients=400, quality=(1.2, 1.0))
    entry = differences(a, b, bootstrap=2000, scores=["auroc"])["auroc"]
    closed = auroc_difference(a.label, a.prob, b.prob, a.patient_id)
    low, high = closed.interval()
    assert entry["low"] == pytest.approx(low, abs=0.25 * closed.standard_error)
    assert entry["high"] == pytest.approx(high, abs=0.25 * closed.standard_error)


def test_exchanging_the_models_changes_the_sign():
    a, b = models(3)
    one, two = differences(a, b, bootstrap=200, scores=FAST), differences(b, a, bootstrap=200, scores=FAST)
    for name in FAST:
        assert one[name]["difference"] == pytest.approx(-two[name]["difference"], abs=1e-15)
        assert one[name]["low"] == pytest.approx(-two[name]["high"], abs=1e-12)
        assert one[name]["p"] == two[name]["p"]
    assert (one["auroc"]["better"], two["auroc"]["better"]) == ("a", "b")
    assert one["nll"]["difference"] < 0  # lower is better: a still wins
    assert one["nll"]["better"] == "a"


def test_a_model_equals_itself():
    (a,) = models(4, quality=(1.0,))
    for entry in differences(a, a, bootstrap=50, scores=FAST).values():
        assert (entry["difference"], entry["p"], entry["better"]) == (0, 1, None)
        assert entry["low"] is entry["high"] is None or entry["low"] < 0 < entry["high"]


def test_all_scores_on_all_sets():
    a, b = models(5, domains=True)
    found = compare(a, b, bootstrap=30)
    assert set(found.sets) == {"in_domain", "shifted", "joint", "balanced"}
    assert {"ood_auroc", "ood_auprc"} < set(found.to_dict()["sets"]["joint"]["scores"])
    values = rb.score(a, bootstrap=0)
    for name, one in found.to_dict()["sets"].items():
        assert one["patients"] == len(np.unique(a.patient_id)) // (1 if name in ("joint", "balanced") else 2)
        for score, entry in one["scores"].items():
            assert entry["a"] == pytest.approx(values.value(score, name), abs=1e-12)
            assert entry["low"] <= entry["difference"] + 0.05
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["schema"] == "retinabench.comparison/1"
    only = compare(a, b, bootstrap=0, sets=["shifted"], scores=["auroc"])
    assert list(only.sets) == ["shifted"]
    assert only.to_dict()["sets"]["shifted"]["scores"]["auroc"]["low"] is None


def test_published_rules_have_values_only():
    a, b = models(6, domains=True)
    found = compare(a, b, rules="published")
    entry = found.to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry["difference"] == pytest.approx(entry["a"] - entry["b"])
    assert "no intervals" in found.notes[-1]
    assert entry.keys() == differences(a, b, bootstrap=0)["accuracy"].keys()
    one_class = rb.Predictions(["x", "y"], [0, 0], [0.1, 0.2])
    entry = differences(one_class, one_class, rules="published")["auroc"]
    assert (entry["difference"], entry["why"]) == (None, "one class only")


def test_published_rules_order_the_referral_as_the_released_code_does():
    """p and 1 - p differ in the last bit there: rounding them to ties, as the corrected rules do, is another order."""
    rng = np.random.default_rng(0)
    p = np.repeat(rng.random(100), 2)
    p[1::2] = 1 - p[1::2]
    a = rb.Predictions([f"i{k}" for k in range(200)], rng.random(200) < p, p)
    score = rb.score(a, rules="published")
    for name, entry in differences(a, a, rules="published").items():
        assert entry["a"] == entry["b"] == score.value(name)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rules": "published", "scores": ["aurok"]}, "Did you mean 'auroc'"),
        ({"bootstrap": 0, "level": 95}, "the level is 95"),
        ({"bootstrap": -1}, "-1 bootstrap replicates"),
    ],
)
def test_wrong_options_are_named(options, problem):
    with pytest.raises(InputError, match=problem):
        compare(*models(6), **options)


def test_one_class_is_undefined_with_a_reason():
    a = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.2, 0.9])
    b = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.6, 0.9])
    scores = differences(a, b, bootstrap=100)
    assert scores["auroc"]["difference"] is None
    assert "a: needs both classes" in scores["auroc"]["why"]
    assert scores["accuracy"]["difference"] == pytest.approx(1 / 3)
    assert "every image is its own cluster" in compare(a, b, bootstrap=0).notes[0]
    one = rb.Predictions(["x"], [1], [0.3])
    alone = differences(one, one, bootstrap=5)["accuracy"]
    assert (alone["difference"], alone["low"], alone["p"]) == (0, None, None)
    assert alone["why"] == "no interval: there is a single patient"


def test_prr_is_a_failure_auroc_on_twice_the_scale():
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(60), 2)
    label = rng.random(120) < 0.4
    prob = np.clip(0.25 + 0.5 * label + rng.normal(0, 0.3, 120), 0, 1)
    pair = [
        rb.Predictions(
            np.arange(120), label, prob, patient_id=patient,
            uncertainty=-np.abs(prob - 0.5) + noise * rng.normal(size=120),
        )
        for noise in (0.05, 0.3)
    ]  # fmt: skip
    found = compare(*pair, bootstrap=50, scores=["prr", "failure_auroc"])["in_domain"]
    prr, auroc = found["prr"], found["failure_auroc"]
    assert prr.difference == pytest.approx(2 * auroc.difference)
    assert (prr.low, prr.high) == pytest.approx((2 * auroc.low, 2 * auroc.high))
    assert prr.p == pytest.approx(auroc.p)


def test_better_needs_the_corrected_p_value():
    ids, label = np.arange(60), np.arange(60) % 2
    wrong = ids < 6
    worse = rb.Predictions(ids, label, np.where(wrong, 1 - label, label) * 0.8 + 0.1)
    right = rb.Predictions(ids, label, label * 0.8 + 0.1)
    alone = compare(right, worse, bootstrap=20, scores=["accuracy"])["in_domain"]["accuracy"]
    assert alone.p == alone.p_holm == pytest.approx(2 * 0.5**6)
    assert alone.better == "a"
    strict = compare(right, worse, bootstrap=20, scores=["accuracy"], level=0.99)
    assert strict["in_domain"]["accuracy"].better is None
    several = compare(right, worse, bootstrap=20, scores=["accuracy", "sensitivity", "specificity"])["in_domain"]
    parts = [several["sensitivity"], several["specificity"]]
    assert several["accuracy"].p_holm == pytest.approx(3 * alone.p)
    assert several["accuracy"].better is None
    assert [(one.p, one.better) for one in parts] == [(pytest.approx(2 * 0.5**3), None)] * 2


def test_the_interval_of_a_proportion_adds_two_patients():
    """5 patients of one image, right by the first model alone in one: Bonett and Price's interval with Student's t."""
    label = np.array([0, 1, 0, 1, 0])
    a = rb.Predictions(np.arange(5), label, label * 0.8 + 0.1)
    b = rb.Predictions(np.arange(5), label, np.where(np.arange(5) == 2, 0.9, label * 0.8 + 0.1))
    found = compare(a, b, bootstrap=20, scores=["accuracy"])["in_domain"]["accuracy"]
    gained = np.array([0, 0, 1, 0, 0, 1, -1]) - 1 / 7
    half = stats.t.ppf(0.975, 6) * np.sqrt(7 / 6 * gained @ gained) / 7
    assert (found.low, found.high) == pytest.approx((1 / 7 - half, 1 / 7 + half))
    assert found.p == 1.0


def test_variances_of_patients_and_seeds_add_with_the_degrees_of_freedom_of_welch():
    a, b = np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.45])
    one, two = side(a), side(b, seed=1)
    test = mean_difference(one, two, 50.0)
    patients = np.var(one.draws - two.draws, ddof=1)
    parts = [patients, a.var(ddof=1) / 3, b.var(ddof=1) / 2]
    assert test.error == pytest.approx(np.sqrt(sum(parts)))
    assert test.degrees == pytest.approx(sum(parts) ** 2 / (patients**2 / 50 + parts[1] ** 2 / 2 + parts[2] ** 2))
    # Almost without an error over patients it is Welch's test of the seeds.
    oracle = stats.ttest_ind(a, b, equal_var=False)
    assert mean_difference(side(a, 1e-9), side(b, 1e-9, seed=1), 50.0).p == pytest.approx(oracle.pvalue, rel=1e-6)


def test_methods_with_the_same_seeds_are_paired_by_seed():
    a, b = np.array([0.5, 0.7, 0.9]), np.array([0.49, 0.69, 0.88])
    first, last = [(0,), (1,), (2,)], [(2,), (1,), (0,)]
    paired = mean_difference(side(a, 1e-9, first), side(b[::-1], 1e-9, last, seed=1), 50.0)
    assert paired.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-6)
    assert mean_difference(side(a), side(b, seed=1), 50.0).error > 0.1


def test_ensembles_that_share_members_have_the_error_of_their_members():
    """All pairs of four members: the mean over pairs is that of the members."""
    members = np.array([0.1, 0.4, 0.2, 0.7])
    subsets = [(i, j) for i in range(4) for j in range(i)]
    pairs = [members[list(subset)].mean() for subset in subsets]
    variance = sum(e**2 for e in seed_effects(pairs, subsets).values())
    assert variance == pytest.approx(members.var(ddof=1) / 4)
    assert seed_effects([0.3], [(0, 1)]) == {}


def test_seeds_of_two_models_are_compared_by_their_means():
    a, b = seeds(1.6, 3), seeds(1.0, 3)
    found = compare(a, b, bootstrap=100, scores=FAST)
    assert "seeds are paired" in found.notes[-1]
    ranking = rank({"a": a, "b": b}, 100, scores=FAST)["in_domain"]
    for name in FAST:
        pair, one = ranking[name].pair("a", "b"), found["in_domain"][name]
        assert (pair.difference, pair.low, pair.high, pair.p) == (one.difference, one.low, one.high, one.p)
    apart = compare(a, [replace(one, metadata={}) for one in b], bootstrap=100, scores=FAST)
    assert "seeds are independent" in apart.notes[-1]
    assert apart["in_domain"]["auroc"].p > found["in_domain"]["auroc"].p


@pytest.mark.parametrize("runs", [1, 2])
def test_equal_methods_differ_in_one_of_twenty_studies(runs):
    """120 pairs of equal methods whose runs differ in skill, 5 %: a standard error of 2 %."""
    rng = np.random.default_rng(runs)
    patients, rejected = 200, 0
    for _ in range(120):
        hardness = rng.normal(size=patients)
        sides = []
        for _ in "ab":
            shift = (runs > 1) * 0.05 * rng.normal(size=(runs, 1))
            hits = rng.normal(size=(runs, patients)) + hardness < 1.2 + shift
            probs = [np.where(hit == (hardness < 0), 0.9, 0.1) for hit in hits]
            sides.append([rb.Predictions(np.arange(patients), hardness < 0, prob) for prob in probs])
        rejected += compare(*sides, bootstrap=100, scores=["accuracy"])["in_domain"]["accuracy"].p < 0.05
    assert 0.005 <= rejected / 120 <= 0.05 + 3 * 0.02


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(0, 4)))
def test_ranks_are_those_of_scipy(draws):
    np.testing.assert_allclose(ranks(draws, True), stats.rankdata(-draws, axis=1))
    np.testing.assert_allclose(ranks(draws, False), stats.rankdata(draws, axis=1))


def test_rank_says_how_often_each_is_first():
    trio = dict(zip(("good", "copy", "poor"), models(7, quality=(1.5, 1.5, 0.6)), strict=True))
    trio["copy"] = trio["good"]
    found = rank(trio, bootstrap=300, scores=["auroc", "nll"])
    for name in ("auroc", "nll"):
        entry = found.to_dict()["sets"]["in_domain"]["scores"][name]
        table = entry["models"]
        assert sum(one["first"] for one in table.values()) == pytest.approx(1)
        assert table["good"]["first"] == table["copy"]["first"] == pytest.approx(0.5, abs=0.01)
        assert table["good"]["rank"] == pytest.approx(1.5, abs=0.02)
        assert (table["poor"]["rank_low"], table["poor"]["rank_high"]) == (3, 3)
        pairs = {(pair["a"], pair["b"]): pair for pair in entry["pairs"]}
        assert pairs["good", "copy"]["p_holm"] == 1
        assert 0 < pairs["good", "poor"]["p"] < 1e-4  # below 2 / (R + 1)
        assert pairs["good", "poor"]["p_holm"] == pytest.approx(3 * pairs["good", "poor"]["p"])
    json.dumps(found.to_dict(), allow_nan=False)
    none = rank(trio, bootstrap=0, scores=["auroc"]).to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    assert none["models"]["good"]["first"] is None
    with pytest.raises(InputError, match="two or more"):
        rank({"a": trio["good"]})
    with pytest.raises(InputError, match="the level is 95"):
        rank(trio, bootstrap=0, level=95)


def test_a_resolved_difference_ranks_and_an_unresolved_one_ties():
    methods = {"worst": seeds(0.2, 3), "good": seeds(1.6, 3, first=3), "too": seeds(1.6, 3, first=6)}
    found = rank(methods, 200, scores=["auroc"])["in_domain"]["auroc"]
    assert {name: (one.best, one.worst) for name, one in found.models.items()} == {
        "good": (1, 2), "too": (1, 2), "worst": (3, 3),
    }  # fmt: skip
    assert found.order()[-1] == "worst"
    assert found.better() == {("good", "worst"), ("too", "worst")}
    pair, turned = found.pair("good", "worst"), found.pair("worst", "good")
    assert (turned.difference, turned.low, turned.high) == (-pair.difference, -pair.high, -pair.low)


def test_the_value_is_the_mean_over_seeds_and_one_seed_is_its_own_score():
    files = seeds(1.0, 3)
    found = rank({"three": files, "one": files[0]}, 100, scores=["auroc", "nll"])["in_domain"]["auroc"].models
    values = [rb.score(one, bootstrap=0)["in_domain"].auroc.value for one in files]
    assert found["three"].value == pytest.approx(np.mean(values), abs=1e-12)
    assert found["three"].error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    alone = rb.score(files[0], bootstrap=100)["in_domain"].auroc
    assert (found["one"].low, found["one"].high) == (alone.low, alone.high)
    assert np.isnan(found["one"].error)


def test_nothing_is_resolved_without_replicates_or_against_itself():
    files = seeds(1.0, 2)
    renamed = [replace(one, metadata={"seed": k + 5}) for k, one in enumerate(files)]
    for bootstrap in (0, 50):
        found = rank({"a": files, "b": renamed}, bootstrap, scores=["accuracy"])["in_domain"]["accuracy"]
        assert not found.better()
        assert {(one.best, one.worst) for one in found.models.values()} == {(1, 2)}


def test_a_copy_of_a_model_is_named_and_the_same_order_is_no_difference():
    model = seeds(1.0, 1)[0]
    cubed = replace(model, probs=model.probs**3)
    copied = "a and b hold the same probabilities: do they come from one model?"
    assert copied in compare(model, replace(model), bootstrap=20).notes
    reordered = replace(model, uncertainty=model.probs[:, 0])
    assert not {copied} & {*compare(model, cubed, bootstrap=20).notes, *compare(model, reordered, bootstrap=20).notes}
    by_score = differences(model, cubed, bootstrap=20)
    assert by_score["auroc"]["p"] == by_score["auprc"]["p"] == 1
    assert abs(by_score["auprc"]["difference"]) < 1e-12
