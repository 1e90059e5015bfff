"""The short form of the campaign of laws: some laws, by one command each, on one table of 2,000 rows."""

import pytest

from torture.campaigns import laws

SHORT = {
    "uncertainty x 1e-13": "monitor", "codes with other separators": "clinic", "long codes": "clinic",
    "cells of a group emptied": "clinic", "dates moved by 52 weeks": "monitor", "ids between blanks": "monitor", "one patient known": "transfer",
    "split over three files": "monitor", "rows permuted": "score", "rows doubled": "score", "columns permuted": "compare",
    "a column of noise": "score", "patients renamed": "compare", "decimal commas": "score", "blanks behind commas": "compare",
    "cube of the uncertainty": "apply", "semicolons": "examine", "Parquet": "score", "NPZ": "compare", "a data frame": "score", "arrays": "transfer",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


@pytest.mark.parametrize(("name", "command"), SHORT.items())
def test_a_law_is_kept(name, command, folder):
    assert laws.broken(name, command, 0, folder) == ""


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ({"x": [1.0, {"threshold": 1e-13}]}, ".x[1].threshold is 1e-13"),
        ({"x": [1.0 + 1e-8, {"threshold": 2e-13}]}, ".x[0] is 1.00000001"), ({"x": [1.0]}, ".x is [1.0]"),
        ({}, ".x is missing"), ({"x": [1.0, {"threshold": 2e-13}], "b c": 0}, ".b c is new"),
    ],
)  # fmt: skip
def test_a_difference_is_found(found, place):
    assert laws.difference(found, {"x": [1.0, {"threshold": 2e-13}]}).startswith(place)
