import torch

from retinabench.models.networks.mlp import mlp


def test_an_mlp_sees_block_means():
    net = mlp()
    assert net.fc1.in_features == 192
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    blocks = x.reshape(2, 3, 8, 8, 8, 8).mean(dim=(3, 5))
    assert torch.allclose(net.pool(x), blocks, atol=1e-6)
    assert net(x).shape == (2, 1)
