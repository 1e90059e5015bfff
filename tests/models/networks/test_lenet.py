import torch
from torch import nn

from retinabench.models.networks.lenet import lenet_smooth


def test_lenet_pools_as_lenet_at_28_px_and_fits_any_size():
    net = lenet_smooth(outputs=7)
    maps = torch.rand(2, 16, 10, 10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(net.pool2(maps), nn.functional.avg_pool2d(maps, 2), atol=1e-7)
    for size in (16, 28, 64):
        assert net(torch.zeros(2, 3, size, size)).shape == (2, 7)


def test_the_smooth_one_has_silu_for_relu():
    assert {type(m) for m in lenet_smooth().modules() if "act" in type(m).__module__} == {nn.SiLU}
