"""From the name of a bank to its images: what belongs to which layout."""

from __future__ import annotations

import pytest

from retinabench.concepts.banks.definition import BankDefinition, find_definition
from retinabench.concepts.banks.open_bank import read_images
from retinabench.core.errors import InputError


def test_drawn_retinas_are_as_many_as_asked_for():
    drawn = find_definition("synthetic")
    assert len(read_images(drawn, None, images=12)) == 12
    few = BankDefinition.model_validate({"title": "few", "synthetic": {"images": 11, "population": "shifted"}})
    images = read_images(few, None, seed=3)
    assert len(images) == 11
    assert images.sample_id[0].startswith("shifted")


@pytest.mark.parametrize(
    ("bank", "options", "message"),
    [
        ("synthetic", {"source": "."}, "rendered, not read"),
        ("folder", {"source": ".", "images": 20}, "--images is for synthetic data only"),
        ("folder", {"source": None}, "Name it with --source DIR"),
        ("synthetic", {"source": None, "images": 9}, "too few"),
    ],
)
def test_options_of_another_layout_are_refused(bank, options, message, tmp_path):
    source = tmp_path if options.pop("source") else None
    with pytest.raises(InputError) as error:
        read_images(find_definition(bank), source, **options)
    assert message in str(error.value)
