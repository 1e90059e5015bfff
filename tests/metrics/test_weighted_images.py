"""Images sorted once, blocks of ties, what is retained of fractional weights by hand; and every score over many weightings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics import classification
from retinabench.metrics.image_sets import UNCERTAINTIES, binary_entropy, decompose, margin, referral_uncertainty
from retinabench.metrics.referral_curves import METRICS, area_of, coarse_auprc_area
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, RankedImages, Weighted, is_positive
from retinabench.predictions.table import Predictions
from support.shared_inputs import big, images


def test_half_is_not_positive_but_any_other_threshold_is_reached():
    assert is_positive(np.array([0.4, 0.5, 0.6])).tolist() == [False, False, True]
    assert is_positive(np.array([0.2, 0.3, 0.4]), 0.3).tolist() == [False, True, True]


def test_equal_values_of_a_ranking_are_one_step():
    ranking = RankedImages(np.array([0.2, 0.9, 0.2, 0.5]))
    assert ranking.values.tolist() == [0.9, 0.5, 0.2]
    assert ranking.cumulate(np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [0, 10, 1010, 1111]


def test_images_lie_by_uncertainty_then_probability_then_label():
    cases = Cases([1, 0, 1, 0], [0.7, 0.7, 0.1, 0.5], [2.0, 2.0, 2.0, 1.0], patient=[4, 5, 6, 7])
    assert cases.order.tolist() == [3, 2, 1, 0]
    assert cases.patient.tolist() == [7, 6, 5, 4]
    assert cases.ends.tolist() == [0, 3]
    assert cases.error.tolist() == [False, True, True, False]
    np.testing.assert_allclose(cases.log_loss, -np.log([0.5, 0.1, 0.3, 0.7]))


def test_a_block_is_retained_in_equal_parts():
    """Three of four images of one block: a quarter of the weight of each is referred."""
    w = Cases([0, 1, 1, 0], [0.5] * 4, [0.0] * 4).weighted()
    np.testing.assert_allclose(w.points, [1, 2, 3, 4])
    np.testing.assert_allclose(w.retained(3), [0.75] * 4)
    np.testing.assert_allclose(w.retained_positives, [0.5, 1, 1.5, 2])
    assert w.retained(0).sum() == 0


def test_fractional_weights_have_round_w_points_of_equal_mass():
    w = Cases([0, 1, 1], [0.2, 0.6, 0.9], [0.1, 0.2, 0.3]).weighted([0.5, 1.5, 1.2])
    assert w.total == pytest.approx(3.2)
    np.testing.assert_allclose(w.points, 3.2 / 3 * np.arange(1, 4))
    # The second point, 2.133, holds the first two images (2.0) and 0.133 / 1.2 of the third.
    np.testing.assert_allclose(w.retained(2), [0.5, 1.5, 3.2 * 2 / 3 - 2])
    at = w.locate(np.array([0.5, 2.0, 3.2]))
    assert at.block.tolist() == [0, 1, 2]
    np.testing.assert_allclose(at.fraction, 1)


@pytest.mark.parametrize("weight", [[1.0], [1, -1, 1], [0, 0, 0], [1, np.nan, 1], [[1, 1, 1], [0, 0, 0]]])
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(InputError, match="weights must be 3 finite numbers"):
        Cases([1, 0, 1], [0.9, 0.2, 0.4]).weighted(weight)


def weightings(rng, n, rows=2):
    """(rows, n) of every kind: as in a bootstrap, fractional as in the balanced set, and with images left out."""
    drawn = rng.multinomial(n, np.full(n, 1 / n), rows).astype(float)
    kinds = drawn, drawn * rng.choice([1.0, 12.1], n), rng.random((rows, n)) * 3 * (rng.random(n) < 0.9)
    return np.concatenate([weight[weight.any(axis=1)] for weight in kinds])


def functions():
    """All functions of many weightings: scores, areas of curves, the coarse area, and all values of two referred shares."""
    found = {name: spec for name, spec in SCORES.items() if not spec.by_rows and name != "referral_auprc_area"}
    found |= {f"area of {metric}": lambda w, m=metric: area_of(w, m) for metric in METRICS if metric != "auprc"}
    found |= {f"at {r}": lambda w, r=r: classification.referred_values(w, r) for r in (0.1, 0.95)}
    return found | {"coarse": coarse_auprc_area}


def check_rows(cases, weight):
    """Row r depends on row r alone, to the last bit; one weighting gives the same to rounding."""
    ordered = weight[:, cases.order]
    together = Weighted(cases, ordered)
    for name, function in functions().items():
        values = function(together)
        alone = np.concatenate([function(Weighted(cases, row[None])) for row in ordered])
        np.testing.assert_array_equal(values, alone, err_msg=name)
        single = [function(Weighted(cases, row)) for row in ordered]
        # Shares of a class among the retained are quotients of sums of which a millionth may be left by fractional weights.
        np.testing.assert_allclose(values, single, rtol=1e-9, atol=1e-9, err_msg=name)


@settings(deadline=None, max_examples=6)
@given(images(most=60), st.integers(0, 2**32), st.sampled_from([0.5, 0.25]))
def test_many_weightings_at_once_are_one_after_the_other(case, seed, threshold):
    y, p, u, _ = case
    rng = np.random.default_rng(seed)
    check_rows(Cases(y, p, u, rng.random(len(y)) < 0.3, threshold), weightings(rng, len(y)))


@pytest.mark.parametrize("kind", ["free", "entropy", "ties"])
def test_also_of_many_images(kind):
    y, p, rng = big(900)
    u = {"free": rng.random(900), "entropy": p * (1 - p), "ties": rng.integers(0, 30, 900) / 30}[kind]
    check_rows(Cases(y, p, u, rng.random(900) < 0.2), weightings(rng, 900))


def test_whole_numbers_are_summed_as_integers_to_the_same_bits():
    rng = np.random.default_rng(8)
    cases = Cases(rng.integers(0, 2, 500), rng.random(500), rng.random(500).round(2))
    whole = cases.weighted(rng.integers(0, 4, (3, 500)))
    parts = Weighted(cases, whole.weight * 0.5)
    assert whole.whole
    assert not parts.whole
    for name in ("mass", "wrong_mass", "positive_mass"):
        assert (getattr(whole, name) == 2 * getattr(parts, name)).all()
        assert (getattr(whole, name)[..., -1] == getattr(whole, name).max(axis=-1)).all()
    assert not Weighted(cases, np.full(500, 2.0**30)).whole  # too many for 32 bits


FIELDS = {
    "prediction": "mean", "predictive_entropy": "total", "predictive_variance": "variance",
    "epistemic_uncertainty": "epistemic", "aleatoric_uncertainty": "aleatoric",
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        ("T5_n64_f64", 1e-12),
        ("T1_n50_f64", 1e-12),
        ("edge_T5_n8_f64", 1e-12),
        ("T5_n64_f32", 3e-7),  # the released code worked in single precision here
    ],
)
@pytest.mark.parametrize("of", ["np", "tf"])
def test_golden(case, tolerance, of):
    z = np.load(shared_path("golden", "retina", f"decomp_{case}.npz"))
    found = decompose(z["in_mc_samples"].T)
    for theirs, ours in FIELDS.items():
        np.testing.assert_allclose(getattr(found, ours), z[f"out_{of}_{theirs}"], rtol=0, atol=tolerance)


def test_binary_entropy_golden():
    z = np.load(shared_path("golden", "retina", "binary_entropy.npz"))
    found = binary_entropy(z["in_p"])
    np.testing.assert_allclose(found, z["out_np"], rtol=0, atol=1e-15)
    np.testing.assert_allclose(found, z["out_tf"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found, z["out_jax32"], rtol=0, atol=1e-6)


def test_decomposition_by_its_formulas():
    samples = np.array([[0.2, 0.5], [0.6, 0.5]])  # S, N
    parts = decompose(samples.T)
    mean = samples.mean(axis=0)
    entropy = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    each = -(samples * np.log(samples) + (1 - samples) * np.log(1 - samples))
    np.testing.assert_allclose(parts.total, entropy)
    np.testing.assert_allclose(parts.aleatoric, each.mean(axis=0))
    np.testing.assert_allclose(parts.epistemic, entropy - each.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(parts.variance, [0.04, 0], atol=1e-15)


def test_samples_all_zero_or_one_are_all_epistemic():
    found = decompose([[0.0, 1.0, 1.0, 0.0]])
    assert found.aleatoric[0] == 0
    assert found.epistemic[0] == pytest.approx(np.log(2))


@given(arrays(np.float64, (5, 7), elements=st.floats(0, 1)))
def test_parts_add_up_and_are_bounded(probs):
    found = decompose(probs)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, atol=1e-15)
    assert (found.epistemic > -1e-12).all()  # Jensen
    assert (found.total <= np.log(2) + 1e-12).all()
    assert (found.max_probability <= 0.5).all()


def test_which_uncertainty():
    base = {"image_id": ["a", "b"], "label": [0, 1], "probs": [[0.1, 0.3], [0.6, 0.8]]}
    plain, own = Predictions(**base), Predictions(**base, uncertainty=[5.0, 4.0])
    assert referral_uncertainty(plain)[1] == "total"
    values, name = referral_uncertainty(own)
    assert name == "own"
    assert values.tolist() == [5, 4]
    for name in UNCERTAINTIES:
        truth = margin([0.2, 0.7], 0.5) if name == "margin" else getattr(decompose(base["probs"]), name)
        np.testing.assert_array_equal(referral_uncertainty(own, name, exact=True)[0], truth)
        np.testing.assert_allclose(referral_uncertainty(own, name)[0], truth, rtol=1e-10)
    with pytest.raises(InputError, match="'uncertainty'"):
        referral_uncertainty(plain, "own")
    with pytest.raises(InputError, match="epistemic"):
        referral_uncertainty(plain, "epistemc")


def test_rounding_errors_are_ties():
    hundredths = np.arange(1, 100) / 100
    p = Predictions([f"i{k}" for k in range(99)], np.zeros(99), hundredths)
    for name in ("total", "aleatoric", "max_probability"):
        values, _ = referral_uncertainty(p, name)
        np.testing.assert_array_equal(values, values[::-1])
        assert len(np.unique(values)) == 50
    same = Predictions([f"i{k}" for k in range(99)], np.zeros(99), np.repeat(hundredths[:, None], 7, axis=1))
    for name in ("epistemic", "variance"):
        assert (np.abs(referral_uncertainty(same, name)[0]) < 1e-25).all()


def test_tiny_uncertainties_stay_apart():
    probs = 10.0 ** -np.arange(1, 60)
    p = Predictions([f"i{k}" for k in range(59)], np.zeros(59), np.stack([probs, 2 * probs], axis=1))
    for name in UNCERTAINTIES:
        if name != "max_probability":  # 1 - max(p, 1 - p) itself ends at 1e-16
            assert (np.diff(referral_uncertainty(p, name)[0]) < 0).all(), name
