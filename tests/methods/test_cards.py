"""Every method has a card, and all cards have one shape."""

import re
from pathlib import Path

import pytest

from retinabench.experiments import config
from retinabench.methods.registry import METHODS

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["Idea", "Knobs", "Cost", "When it fails", "Source"]


@pytest.mark.parametrize("name", METHODS)
def test_a_card_has_its_parts_in_order_and_names_its_file(name):
    card = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    found = [part for part in re.findall(r"^\*\*([^.*]+)\.?\*\*", card, flags=re.MULTILINE) if part in PARTS]
    assert found == PARTS
    file = Path(METHODS[name].__file__).name
    assert f"`src/retinabench/methods/{file}`" in card


@pytest.mark.parametrize("name", METHODS)
def test_a_card_tells_every_knob(name):
    card = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    shared = (ROOT / "docs" / "methods" / "mfvi.md").read_text() if "mfvi.md" in card else ""
    own = set(METHODS[name].Config.model_fields) - set(config.Method.model_fields)
    assert not {knob for knob in own if f"`{knob}" not in card + shared}


def test_there_is_no_card_without_a_method():
    assert {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")} == set(METHODS)
