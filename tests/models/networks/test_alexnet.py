"""The competition's AlexNet-like network."""

import torch

from retinabench.models.networks.alexnet import alexnet_swish


def test_it_has_the_published_number_of_weights():
    assert sum(p.numel() for p in alexnet_swish().parameters()) == 1_488_202


def test_the_last_layer_is_fed_by_its_features_and_images_are_32_pixels_wide():
    net, x = alexnet_swish(width=2, outputs=3), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert net.features(x).shape == (2, 8)
        torch.testing.assert_close(net.fc(net.features(x)), net(x))
    assert alexnet_swish.inputs == "images of 32 x 32 pixels"
