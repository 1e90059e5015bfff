"""What the registry tells of a network without building it."""

import pytest

from retinabench.core.errors import InputError
from retinabench.models.registry import MODELS, has_choice, published_width, special_inputs, takes


def test_widths_inputs_and_choices_are_read_off_the_builder():
    assert published_width("resnet50") == 64
    assert published_width("mlp-8-50-2") == 50
    assert special_inputs("alexnet-swish") == "images of 32 x 32 pixels"
    assert special_inputs("resnet18") == ""
    assert has_choice("resnet18", "stem")
    assert not has_choice("lenet", "stem")


def test_a_builder_is_marked_by_what_it_takes():
    @takes("tokens")
    def build(*, outputs=1):
        return outputs

    assert build.inputs == "tokens"
    assert build(outputs=2) == 2


def test_an_unknown_network_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown model 'resnet19'.*'resnet18'"):
        MODELS.find("resnet19")
