import numpy as np
import pytest
import torch
from torch import nn

from retinabench.models.build import initialise
from retinabench.models.networks.resnet import resnet18, resnet34, resnet50


def parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_published_sizes():
    assert parameters(resnet50(outputs=1)) == 23_510_081
    # The 1000-class networks as published with torchvision.
    assert parameters(resnet50(outputs=1000)) == 25_557_032
    assert parameters(resnet34(outputs=1000)) == 21_797_672
    assert parameters(resnet18(outputs=1000)) == 11_689_512


def test_parameter_names_are_those_of_the_common_libraries():
    names = set(resnet50().state_dict())
    assert len(names) == 320
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer1.0.downsample.0.weight",
            "layer1.0.downsample.1.bias", "layer4.2.bn3.num_batches_tracked", "fc.weight", "fc.bias"} <= names  # fmt: skip
    assert not any("act" in name or "dropout" in name for name in names)


def test_the_stride_sits_in_the_three_by_three_convolution():
    block = resnet50().layer2[0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)


def test_weights_depend_on_the_generator_alone():
    state = torch.random.get_rng_state()
    nets = []
    for seed in (7, 7, 8):
        net = resnet18(width=4)
        initialise(net, torch.Generator().manual_seed(seed))
        nets.append(net.state_dict())
        torch.manual_seed(int(np.random.default_rng().integers(1 << 30)))  # the global state must not matter
    assert all(torch.equal(nets[0][k], nets[1][k]) for k in nets[0])
    assert not torch.equal(nets[0]["conv1.weight"], nets[2]["conv1.weight"])
    torch.random.set_rng_state(state)


def test_he_normal_scale():
    net = resnet18()
    initialise(net, torch.Generator().manual_seed(0))
    weight = net.layer4[1].conv2.weight
    # fan-in 512 * 9; 2.4 million draws: relative standard error of the scale 0.05 %.
    assert float(weight.detach().std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.003)
    assert float(net.fc.weight.detach().std()) == pytest.approx(0.01, rel=0.15)


def test_an_unknown_layer_is_not_left_to_the_global_generator():
    with pytest.raises(TypeError, match="LayerNorm"):
        initialise(nn.Sequential(nn.LayerNorm(3)), torch.Generator())


def test_the_small_stem_keeps_resolution():
    net = resnet18(width=4, stem="small")
    seen = []
    net.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    net(torch.zeros(2, 3, 64, 64))
    assert seen[0][2:] == (32, 32)


def test_a_narrow_shortcut_is_the_convolution_with_stride_2_by_another_way():
    narrow = resnet18(width=4).double()
    for stage in (narrow.layer2, narrow.layer3):
        convolution, norm = stage[0].downsample
        x = torch.rand(3, convolution.in_channels, 7, 6, dtype=torch.float64)
        strided = torch.nn.functional.conv2d(x, convolution.weight, stride=2)
        assert torch.allclose(stage[0].downsample.eval()(x), norm(strided), rtol=1e-12)
    # No weight gradient of a 1x1 convolution with stride 2 and fewer than 8 inputs, which PyTorch 2.13 gets wrong with AVX2.
    strided = [m for m in narrow.modules() if isinstance(m, nn.Conv2d) and m.stride == (2, 2)]
    assert all(m.kernel_size != (1, 1) or m.in_channels >= 8 for m in strided)
    assert "layer2.0.downsample.0.weight" in narrow.state_dict()
