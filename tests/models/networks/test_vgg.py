"""The network of the 2019 benchmark."""

import pytest
import torch
from torch import nn

from retinabench.models.build import build_model
from retinabench.models.networks.vgg import vgg
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.dropout import dropout_sites


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_sizes_at_the_widths_of_the_2019_benchmark():
    assert parameters(vgg()) == 2_657_345
    # The other widths of the 2019 benchmark: flag and configuration files.
    assert parameters(vgg(width=31)) == 2_493_951
    assert parameters(vgg(width=64)) == 10_623_105


@pytest.mark.parametrize(("width", "count"), [(22, 2_512_159), (42, 9_150_499)])
def test_a_mean_field_posterior_of_the_2019_network_has_a_mean_and_a_scale_per_kernel_weight(width, count):
    """Biases have a mean alone: 2 x kernels + biases."""
    tensors = list(vgg(width=width).parameters())
    kernels = sum(p.numel() for p in tensors if p.ndim > 1)
    assert 2 * kernels + sum(p.numel() for p in tensors if p.ndim == 1) == count


def test_the_2019_network_at_512_px():
    net = vgg(width=2)
    shapes = []
    net.group5.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    assert net(torch.zeros(1, 3, 512, 512)).shape == (1, 1)
    assert shapes == [(1, 16, 16, 16)]
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == 13
    assert len(dropout_sites(net)) == 12
    assert "group5.7" not in dropout_sites(net)


def test_leaky_relu_of_the_2019_paper_is_a_choice_that_changes_no_weight_and_no_hash_of_others():
    config = ModelConfig(name="vgg", width=2, activation="leaky_relu")
    leaky, plain = build_model(config, 0), build_model(ModelConfig(name="vgg", width=2), 0)
    slopes = [module.negative_slope for module in leaky.modules() if isinstance(module, nn.LeakyReLU)]
    assert slopes == [0.2] * 13
    assert dropout_sites(leaky) == dropout_sites(plain)
    for one, other in zip(leaky.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    assert "activation" not in ModelConfig(name="vgg").model_dump()
    with pytest.raises(ValueError, match="'resnet18' has one activation"):
        ModelConfig(name="resnet18", activation="leaky_relu")
