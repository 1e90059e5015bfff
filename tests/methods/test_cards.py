"""The card of a method is the docstring of its module; all cards have one shape."""

import inspect
import re

import pytest

import entries
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig

PARTS = ["Idea", "Settings", "Cost", "When it fails", "Source"]


@pytest.mark.parametrize("name", METHODS)
def test_a_card_has_its_parts_in_order(name):
    found = re.findall(r"^\*\*([^.*]+)\.?\*\*", METHODS[name].__doc__, flags=re.MULTILINE)
    assert [part for part in found if part in PARTS] == PARTS


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_is_described(name):
    """In the card, or in the docstring of the class that defines it."""
    config = METHODS[name].Config
    described = METHODS[name].__doc__ + "".join(inspect.getdoc(kind) or "" for kind in config.__mro__)
    own = set(config.model_fields) - set(MethodConfig.model_fields)
    assert not {setting for setting in own if not re.search(rf"\b{setting}\b", described)}


def test_the_page_of_methods_shows_every_card():
    shown = re.findall(r"^::: (\S+)", entries.methods(), flags=re.MULTILINE)
    # Other tests of the same process may have added methods of their own.
    modules = {METHODS[name].__name__ for name in METHODS}
    assert set(shown) == {module for module in modules if module.startswith("retinabench.")}
