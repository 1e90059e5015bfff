"""The samples of mirrored images."""

from __future__ import annotations

import torch
from torch import nn

from retinabench.methods.mirrored import MirroredPosterior
from retinabench.methods.training.likelihood import Bernoulli


def test_every_sample_is_the_prediction_of_one_of_four_mirror_images():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    images = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    posterior = MirroredPosterior(network, Bernoulli())
    found = posterior.predict(images, 30, torch.Generator().manual_seed(0))[..., 1]
    views = [network(images.flip(axes)).sigmoid()[:, 0] for axes in ([], [2], [3], [2, 3])]
    seen = {k for k, view in enumerate(views) if any(torch.allclose(sample, view) for sample in found)}
    assert seen == {0, 1, 2, 3}
    assert all(any(torch.allclose(sample, view) for view in views) for sample in found)
