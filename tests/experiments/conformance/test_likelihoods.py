"""The points that the check of likelihoods trains on, and its measure of error."""

import pytest
import torch

from retinabench.experiments.conformance.likelihoods import easy_points, errors_of


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "gaussian", "multilabel"])
def test_the_truth_has_no_error_and_a_constant_that_of_the_best_constant(name):
    inputs, targets = easy_points(name)
    assert inputs.shape == (120, 3)
    one_hot = torch.nn.functional.one_hot(targets, 3).float() if name == "categorical" else targets
    columns = {
        "bernoulli": torch.stack([1 - one_hot, one_hot], dim=1) if name == "bernoulli" else None,
        "gaussian": torch.stack([one_hot, torch.full((120,), 9.0)], dim=1) if name == "gaussian" else None,
    }.get(name, one_hot)
    error, constant = errors_of(name, columns, targets)
    assert error == 0
    mean = columns.mean(dim=0).expand_as(columns)
    assert errors_of(name, mean, targets)[0] == pytest.approx(constant, rel=1e-5)
    assert constant == pytest.approx(float(one_hot.var(dim=0, unbiased=False).mean()), rel=1e-4)
