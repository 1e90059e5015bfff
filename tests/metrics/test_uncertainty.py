"""The split of uncertainty against the released code and in its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics.decisions import UNCERTAINTIES, binary_entropy, decompose, margin, referral_uncertainty
from retinabench.predictions.table import Predictions

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
