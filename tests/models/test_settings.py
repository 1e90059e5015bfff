import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.models.settings import ModelConfig


def test_width_and_stem_belong_to_the_network():
    widths = {name: ModelConfig(name=name).width for name in ("resnet50", "vgg", "lenet", "mlp", "timm:x")}
    assert widths == {"resnet50": 64, "vgg": 32, "lenet": 6, "mlp": 50, "timm:x": 64}
    for words, says in [
        (["model.name=vgg", "model.stem=small"], "has one stem"),
        (["model.name=timm:x", "model.width=8"], "has one width"),
        (["model.name=timmx"], "Did you mean 'timm:NAME'"),
        (["model.name=cnn-lstm"], "takes tokens, not images"),
        (["model.name=mlp-8-50-2"], "takes tables of 8 numbers, not images"),
    ]:
        with pytest.raises(InputError, match=says):
            load_run(None, words, data="d")


@pytest.mark.parametrize(
    "name", ["timm:hf-hub:a/b", "timm:local-dir:/x", "timm:../../x", "timm:a/b", "timm:"]
)
def test_a_name_of_timm_is_no_address_and_no_path(name):
    with pytest.raises(ValueError, match="unknown model"):
        ModelConfig(name=name)


def test_weights_of_the_hub_need_their_hash():
    with pytest.raises(ValueError, match="fetched without a check"):
        ModelConfig(name="resnet18", weights="hf-hub:a/b")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["model.trained=0"],
            "model.trained: should be 'all', 'head' or a number of stages from 1 .given: 0",
        ),
        (["model.trained=heads"], "should be 'all', 'head' or a number of stages from 1"),
        (["model.trained=2"], "cannot stay as it is. Set model.weights"),
        (
            ["model.layer_decay=0.5"],
            "model.layer_decay is of a pretrained trunk. Set model.weights, or leave",
        ),
        (["model.trunk_lr=0.5"], "model.trunk_lr is of a pretrained trunk"),
    ],
)
def test_what_is_trained_is_said_in_full(words, says):
    with pytest.raises(InputError, match=says):
        load_run(None, words, data="d")
