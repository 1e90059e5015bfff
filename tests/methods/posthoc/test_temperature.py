"""Temperature scaling: T against a known one, the guarantee on the validation split, and how it nests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.methods.posthoc import temperature
from retinabench.metrics.classification import nll
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from support.helpers import TINY, make_prepared


def test_it_finds_the_temperature_that_made_the_labels():
    """Labels drawn at T = 1 from logits that are then multiplied by 2.5: with 20,000 labels T is known to 2 %.

    The Fisher information of log T is Σ p (1 - p) z², here about 0.2 · 20,000: a standard error of 0.016.
    """
    random = np.random.default_rng(0)
    z = random.normal(0, 1.5, 20_000)
    label = (random.random(20_000) < expit(z)).astype(np.int8)
    information = (expit(z) * expit(-z) * z**2).sum()
    found = temperature.best_temperature(label, expit(2.5 * z)[:, None])
    assert np.log(found / 2.5) == pytest.approx(0, abs=4 / information**0.5)


@pytest.mark.parametrize("samples", [1, 5])
def test_no_other_temperature_has_a_lower_loss(samples):
    random = np.random.default_rng(1)
    label = (random.random(300) < 0.4).astype(np.int8)
    probs = expit(3 * random.normal(label[:, None] - 0.5, 1, (300, samples)))
    found = temperature.best_temperature(label, probs)
    losses = [nll(label, temperature.scaled(probs, t).mean(axis=1)) for t in np.geomspace(0.05, 20, 2000)]
    assert nll(label, temperature.scaled(probs, found).mean(axis=1)) <= min(losses) + 1e-9


def test_certain_predictions_stay_in_order_and_in_range():
    probs = np.array([0.0, 1e-300, 1e-9, 0.5, 1 - 1e-9, 1.0])
    for t in (0.1, 1.0, 7.0):
        scaled = temperature.scaled(probs, t)
        assert (np.diff(scaled) >= 0).all()
        assert ((scaled >= 0) & (scaled <= 1)).all()
        assert scaled[3] == 0.5
    inner = probs[2:5]
    assert np.allclose(logit(temperature.scaled(inner, 2.0)), logit(inner) / 2)


def test_without_validation_images_of_both_classes_it_refuses():
    label = np.zeros(4, np.int8)
    given = Predictions([f"i{k}" for k in range(4)], label, np.full(4, 0.3), split=["validation"] * 4)
    with pytest.raises(InputError, match="both classes"):
        temperature.combine([given])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Predictions by description of the method: T over MAP, over the ensemble, and the ensemble over T."""
    root = tmp_path_factory.mktemp("temperature")
    prepared = str(make_prepared(root / "data"))

    def predict(*words):
        run = load_run(None, [*TINY, *words], data=prepared)
        return read_predictions(execute(run, root / "runs", Resources("cpu")) / "predictions.parquet")

    inner = 'method.member={name = "ensemble", members = 2}'
    return {
        "map": predict("method=map"),
        "of map": predict("method=temperature"),
        "of dropout": predict("method.name=temperature", "method.member.name=dropout"),
        "dropout": predict("method=dropout"),
        "of ensemble": predict("method.name=temperature", inner),
        "ensemble": predict("method.name=ensemble", "method.members=2"),
        "ensemble of": predict("method.name=ensemble", "method.members=2", "method.member.name=temperature"),
    }


@pytest.mark.parametrize(
    ("scaled", "plain"), [("of map", "map"), ("of dropout", "dropout"), ("of ensemble", "ensemble")]
)
def test_every_sample_s_logit_is_divided_by_one_number(made, scaled, plain):
    a, b = made[scaled], made[plain]
    assert (a.image_id == b.image_id).all()
    assert a.probs.shape == b.probs.shape
    assert a.metadata["members"] == b.metadata["members"]
    ratio = logit(b.probs) / logit(a.probs)
    assert np.allclose(ratio, np.median(ratio), rtol=1e-6)
    held = [p.select(domain="in_domain", split="validation") for p in (a, b)]
    assert nll(held[0].label, held[0].prob) <= nll(held[1].label, held[1].prob)


def test_an_ensemble_of_temperatures_has_one_for_each_member(made):
    ratio = logit(made["ensemble"].probs) / logit(made["ensemble of"].probs)
    assert np.allclose(ratio, np.median(ratio, axis=0), rtol=1e-6)
    assert not np.isclose(*np.median(ratio, axis=0), rtol=1e-3)
    assert made["ensemble of"].metadata["members"] == 2
    assert made["ensemble of"].metadata["title"] == "ensemble of 2 tempered MAP"
    assert made["of ensemble"].metadata["title"] == "tempered ensemble of 2 MAP"


def test_two_temperatures_are_refused():
    run = load_run(None, ["method.name=temperature", "method.member.name=temperature"], data="d")
    with pytest.raises(InputError, match="one temperature"):
        temperature.member_runs(run)
