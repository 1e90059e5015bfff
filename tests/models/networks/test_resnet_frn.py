import torch

from retinabench.models.networks.resnet_frn import FilterResponseNorm, Layer


def test_filter_response_norm_is_its_formula():
    norm = FilterResponseNorm(2)
    with torch.no_grad():
        norm.gamma.copy_(torch.tensor([2.0, 1.0]).view(2, 1, 1))
        norm.tau.copy_(torch.tensor([-0.5, 0.0]).view(2, 1, 1))
    x = torch.tensor([[[[3.0, -4.0]], [[1.0, -1.0]]]])
    root = (12.5 + 1e-6) ** 0.5
    expected = torch.tensor([[[[6 / root, -0.5]], [[1.0, 0.0]]]])
    torch.testing.assert_close(norm(x), expected)
    # SAME with stride 2: an image of one bright pixel at the lower right corner is seen by the last window only.
    layer = Layer(1, 1, 3, 2)
    corner = torch.zeros(1, 1, 4, 4)
    corner[..., 3, 3] = 1
    with torch.no_grad():
        layer.conv.weight.fill_(1)
        layer.conv.bias.fill_(0)
        seen = layer.conv(torch.nn.functional.pad(corner, layer.padding))
    assert seen.flatten().tolist() == [0, 0, 0, 1]
