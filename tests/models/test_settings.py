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
