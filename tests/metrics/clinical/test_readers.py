import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.readers import beside_readers, compare_with_readers, over_readers
from retinabench.metrics.intervals import auroc_error


def study(rng, readers=4, patients=150, spread=0.0, columns=None):
    """Patients with two referable images each; a reader's skill and a patient's difficulty add up on one scale."""
    difficulty = np.repeat(rng.normal(0, 0.7, patients), 2)
    skill = 1.0 + spread * rng.normal(size=readers)
    noise = rng.normal(size=(readers, 2 * patients))
    calls = {f"reader_{j}": (skill[j] + difficulty + noise[j] > 0).astype(float) for j in range(readers)}
    prob = np.where(1.0 + difficulty + rng.normal(size=2 * patients) > 0, 0.9, 0.1)
    patient = np.repeat(np.arange(patients), 2)
    ids = [f"i{k}" for k in range(2 * patients)]
    label, groups = np.ones(2 * patients, int), calls | (columns or {})
    part = rb.Predictions(ids, label, prob, patient_id=patient.astype(str), subgroups=groups)
    return part, beside_readers(part, prob > 0.5, patient)


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_interval_holds_for_other_readers_and_patients(spread):
    """The model is a reader of mean skill: the true difference from the mean reader is that of the probit means; 300 studies."""
    rng = np.random.default_rng(11)
    skill = rng.normal(1.0, spread, 200_000)
    many = (skill + rng.normal(0, 0.7, 200_000) + rng.normal(size=200_000) > 0).mean()
    one = (1.0 + rng.normal(0, 0.7, 200_000) + rng.normal(size=200_000) > 0).mean()
    found = [study(rng, spread=spread)[1]["sensitivity"].model_minus_mean for _ in range(300)]
    held = np.mean([each.low <= one - many <= each.high for each in found])
    assert 0.92 <= held <= 0.99


def test_with_equal_readers_the_variance_is_that_of_the_patients():
    calls = {"reader_a": [1.0, 0, 1, 1, 0, 1], "reader_b": [1.0, 0, 1, 1, 0, 1]}
    prob, patient = np.full(6, 0.9), np.arange(6)
    part = rb.Predictions(list("abcdef"), [1] * 6, prob, subgroups=calls)
    found = beside_readers(part, prob > 0.5, patient)["sensitivity"]
    right = np.array(calls["reader_a"])
    assert found.mean_reader.value == pytest.approx(right.mean())
    error = (found.model_minus_mean.high - found.model_minus_mean.value) / 1.959964
    assert error == pytest.approx(np.sqrt(right.var(ddof=1) / 6), rel=1e-4)


def test_images_that_a_reader_left_out_count_for_nobody_and_a_call_is_0_or_1():
    rng = np.random.default_rng(3)
    part, _ = study(rng, columns={"reader_z": np.where(np.arange(300) < 40, np.nan, 1.0)})
    found = beside_readers(part, part.prob > 0.5, np.arange(300))["sensitivity"]
    assert (found.images, found.readers["z"].value) == (260, 1.0)
    part = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.9], subgroups={"reader_a": [0.0, 1.0], "reader_b": [0.0, 3.0]})
    with pytest.raises(InputError, match=r"'3\.0' of image 'b' is not a call of a reader"):
        beside_readers(part, part.prob > 0.5, np.arange(2))


# Van Dyke et al., Radiology 189(P):223 (1993): ratings of 114 patients, the last 45 of whom have an aortic dissection, by 5 readers on cine MRI (first five rows)
# and on spin-echo MRI.
RATINGS = """
122151111111411111111131311214111113121211233131133111111221111332111555545554555434245555555154454553555115554451
232222222322522232222222422223222222222222222222222222222432232222222535555542555442225555555243354552425225555352
222235112242422232221232411322112224121412112222223211211221151421212545555555555542355555555252255552555225555552
111111311111111111112111211112111111111111111111331111111111111311111555555555555555155555555554544553555125555555
351211112221211122113221111211211231221113332111211111111341231212113525255551545452235555554144322151515115553552
333222223213122222211111421312214323123122233111333113412421241442111535555554555544335555555355355554455535555551
322222223222222122221222322222212212222231223222222222322322222222122535555552555344245455545252355532425525555552
242222322211132222121121411512112122212221132111233113221232341242121525555555555354145555555253355543555534555551
221111312111122111211111321212111122112111112121212211111212111323211545555554555455555555555455445555555535555555
223122221222111222122212322321212222112121132122332122221222231233111525455555455343335555555251332532545533555553
"""
RATED = np.array([list(map(int, row)) for row in RATINGS.split()])
DISEASED = np.arange(114) >= 69
RIGHT = (RATED[:, DISEASED] >= 3).astype(float)


def aurocs(rows):
    return np.array([auroc_error(DISEASED[rows], row[rows]).auroc for row in RATED])


def jackknifed_aurocs():
    left_out = np.stack([aurocs(np.arange(114) != k) for k in range(114)], axis=1)
    return aurocs(np.ones(114, bool)), np.cov(left_out, ddof=0) * 113


# Mean reader on each modality, and the difference, each with its interval; p of the difference. AUROCs are published in the book of RJafroc (Chakraborty),
# sensitivities of ratings from 3 on in the user guide of MRMCaov (Smith, Hillis and Pesce), both by Obuchowski-Rockette with Hillis' degrees of freedom and
# covariances by the jackknife. An end at 1 is cut off there.
SENSITIVITIES = (0.8222222, 0.6961876, 0.9482568), (0.92, 0.8328691, 1.0), (-0.09777778, -0.1780371, -0.0175185)
AUROCS = (
    (0.89703704, 0.82522360, 0.96885048), (0.94083736, 0.89413783, 0.98753689), (-0.043800322, -0.087959499, 0.00035885444),
)  # fmt: skip


@pytest.mark.parametrize(
    ("readers", "rows", "p"),
    [(jackknifed_aurocs(), AUROCS, 0.051665686), ((RIGHT.mean(axis=1), np.cov(RIGHT) / 45), SENSITIVITIES, 0.02008822)],
    ids=["AUROC", "sensitivity"],
)
def test_the_mean_reader_is_that_of_published_studies(readers, rows, p):
    theta, covariance = readers
    cine, echo = np.split(np.eye(10), 2)
    for of, published in zip((cine, echo, cine - echo), rows, strict=True):
        found, p_value = over_readers(of @ theta, of @ covariance @ of.T)
        assert [found.value, found.low, min(found.high, 1.0)] == pytest.approx(published, abs=6e-8)
    assert p_value == pytest.approx(p, abs=6e-9)


@pytest.mark.parametrize("modality", [0, 1])
def test_rates_of_readers_have_the_published_intervals(modality):
    right = np.split(RIGHT, 2)[modality]
    found = compare_with_readers(list("abcde"), right, np.ones(45), np.ones_like(right), np.arange(45))
    assert [*vars(found.mean_reader).values()] == pytest.approx(SENSITIVITIES[modality], abs=6e-8)
    assert found.model_minus_mean.value == pytest.approx(1 - SENSITIVITIES[modality][0], abs=6e-8)
    assert (found.p_value < 0.05) == (found.model_minus_mean.low > 0)
