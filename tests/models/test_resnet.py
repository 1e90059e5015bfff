import numpy as np
import pytest
import torch
from torch import nn

from retinabench.models.build import initialise
from retinabench.models.resnet import resnet18, resnet34, resnet50
from retinabench.models.stochastic import dropout
from retinabench.models.stochastic.drawing import use_generator
from retinabench.models.stochastic.dropout import Dropout, add_dropout, dropout_sites


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


@pytest.mark.parametrize(("build", "places"), [(resnet50, 37), (resnet18, 12), (resnet34, 20)])
def test_dropout_goes_behind_every_inner_activation_and_each_projection(build, places):
    # ResNet-50: 1 stem + 2 in each of 16 blocks + 4 projections. ResNet-18/34: 1 + one per block + 3 projections.
    model = build(width=4)
    before = set(model.state_dict())
    add_dropout(model, 0.1)
    assert sum(isinstance(m, Dropout) for m in model.modules()) == places
    assert set(model.state_dict()) == before


def test_dropout_finds_the_activations_of_a_network_that_names_no_sites():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    assert dropout_sites(net) == ("1", "3")


def test_dropout_keeps_the_mean_and_the_stated_share():
    layer = Dropout(0.25)
    use_generator(layer, torch.Generator().manual_seed(0))
    out = layer(torch.ones(200_000))
    # Standard error of the share: sqrt(.25 * .75 / 2e5) = 0.00097; four of them.
    assert abs((out == 0).float().mean() - 0.25) < 0.004
    assert torch.allclose(out[out > 0], torch.tensor(1 / 0.75))
    assert abs(out.mean() - 1) < 0.006


def test_dropout_is_on_in_evaluation_and_reproducible():
    model = add_dropout(resnet18(width=4, stem="small"), 0.5).eval()
    initialise(model, torch.Generator().manual_seed(3))
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    outs = []
    for seed in (0, 1, 0):
        use_generator(model, torch.Generator().manual_seed(seed))
        outs.append(model(x).detach())
    assert not torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


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


def test_dropout_rounds_its_rate_and_never_drops_everything():
    assert Dropout(0.1).rate == pytest.approx(0.1, abs=2**-17)
    nearly_all = Dropout(1 - 1e-9)
    use_generator(nearly_all, torch.Generator().manual_seed(0))
    out = nearly_all(torch.ones(7, 5, 3, 3))
    assert nearly_all.rate < 1
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_s_mask_is_the_same_in_training_and_however_it_is_cut(dtype, monkeypatch):
    x = torch.ones(3, 5, 7, 9, dtype=dtype)
    outs = []
    for piece, gradient in ((2**17, False), (2**17, True), (8, False)):
        monkeypatch.setattr(dropout, "PIECE", piece)
        layer = Dropout(0.3)
        use_generator(layer, torch.Generator().manual_seed(0))
        with torch.set_grad_enabled(gradient):
            outs.append(layer(x))
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    assert torch.equal(x, torch.ones_like(x))
