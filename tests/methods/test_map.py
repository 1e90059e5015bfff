"""The posterior with all mass on one network."""

import pytest
import torch

from retinabench.methods.map import PointPosterior
from retinabench.methods.training.likelihood import Bernoulli
from support.linear_gaussian import fitted, make_run, truth


def test_every_sample_is_the_network_and_so_there_is_one():
    model = torch.nn.Linear(3, 1)
    posterior, inputs = PointPosterior(model, Bernoulli()), torch.randn(4, 3)
    found = posterior.predict(inputs, 7, torch.Generator())
    assert found.shape == (1, 4, 2)
    torch.testing.assert_close(found[0, :, 1], model(inputs).sigmoid()[:, 0].detach())
    assert not found.requires_grad


def test_its_state_is_the_networks_tensors():
    one, two = (PointPosterior(torch.nn.Linear(3, 1), Bernoulli()) for _ in range(2))
    two.restore(one.state())
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))
    assert one.state()["weight"].data_ptr() != one.model.weight.data_ptr()  # a copy


def test_the_mode_of_a_linear_gaussian_is_its_mean():
    posterior, batches = fitted(make_run("map", "optimizer.lr=0.8", epochs=2))
    mean, _ = truth(batches)
    assert posterior.model.fc.weight.detach().numpy()[0] == pytest.approx(mean, abs=1e-5)
