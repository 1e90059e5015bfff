"""One training of the UCI comparison: it learns, sees no test row, and repeats bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from retinabench.data.datasets.uci import Regression, draw_splits
from retinabench.experiments.uci import training
from retinabench.experiments.uci.report import PUBLISHED
from retinabench.experiments.uci.training import SETTINGS, TITLES, SplitTraining, run_of, train_and_score
from retinabench.methods.settings import TrainingRun

NOISE = 0.5


@pytest.fixture
def data():
    """y = 3 + 4 sin(x0) + 2 x1 + noise of standard deviation 0.5, under the name of a real set."""
    random = np.random.default_rng(0)
    inputs = random.uniform(-2, 2, (400, 2))
    target = 3 + 4 * np.sin(inputs[:, 0]) + 2 * inputs[:, 1] + random.normal(0, NOISE, 400)
    return Regression("yacht", inputs, target, *draw_splits(400, 3), "")


@pytest.mark.parametrize("method", SETTINGS)
def test_it_comes_near_to_the_truth(data, method):
    found = train_and_score(SplitTraining(data, method, 0, 40, 0))
    best = -stats.norm(0, NOISE).entropy()  # the expected log-likelihood of the true distribution
    constant = stats.norm(0, data.targets.std()).logpdf(data.targets - data.targets.mean()).mean()
    assert found.log_likelihood > (best + constant) / 2
    assert found.rmse < 1.5 * data.targets.std() / 2


@pytest.mark.parametrize("method", SETTINGS)
def test_splits_differ_and_the_same_split_repeats_bit_for_bit(data, method):
    first, again, other = (train_and_score(SplitTraining(data, method, k, 2, 0)) for k in (0, 0, 1))
    assert first == again
    assert first != other


def test_no_test_row_is_seen_before_it_is_scored(data, monkeypatch):
    seen = []
    monkeypatch.setattr(training, "split_scores", lambda target, *given: seen.append(given))
    inputs, targets = data.inputs.copy(), data.targets.copy()
    blind = data.test[0][1:]
    targets[data.test[0]] = np.nan
    inputs[blind] = 1e3
    for one in (data, replace(data, inputs=inputs, targets=targets)):
        train_and_score(SplitTraining(one, "variational", 0, 2, 0))
    (means, variances), (other_means, other_variances) = seen
    np.testing.assert_allclose(means[:, 0], other_means[:, 0], rtol=1e-5)
    np.testing.assert_allclose(variances[:, 0], other_variances[:, 0], rtol=1e-5)


def test_a_constant_column_is_only_centered(data):
    constant = replace(data, inputs=np.column_stack([data.inputs, np.full(400, 0.1)]))
    assert np.isfinite(train_and_score(SplitTraining(constant, "ensemble", 0, 1, 0)).log_likelihood)


def test_every_printed_method_has_settings_that_the_method_accepts(data):
    assert list(SETTINGS) == list(TITLES) == list(PUBLISHED["yacht"])
    for method in SETTINGS:
        assert isinstance(run_of(SplitTraining(data, method, 0, 40, 0)), TrainingRun)


def test_large_sets_train_in_larger_batches(data):
    large = replace(data, train=np.tile(data.train, 10))
    sizes = [run_of(SplitTraining(d, "dropout", 0, 1, 0)).optimizer.batch_size for d in (data, large)]
    assert sizes == [32, 128]
