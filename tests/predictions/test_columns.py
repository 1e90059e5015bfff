"""The columns that a file must have, its sizes and its metadata."""

import json
from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.predictions import columns as c


def test_names_of_columns():
    assert [c.sample_number(name) for name in ("prob_0", "prob_12", "prob", "prob_x")] == [0, 12, None, None]
    assert [c.is_known(name) for name in ("label", "prob_3", "camera")] == [True, True, False]
    assert [c.is_number(name) for name in ("label", "image_id", "camera")] == [True, False, False]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["image_id", "label", "prob", "prob"], "column 'prob': stands twice"),
        (["image_id", "label", "prob", "prob_0"], "holds more than one of"),
        (["image_id", "label", "prob_0", "prob_2"], "column 'prob_1': is missing among the samples"),
        (
            ["image_id", "label", "prob_1", "prob_2"],
            "column 'prob_0': is missing among the samples. Samples and",
        ),
        (["image_id", "label"], "column 'prob': is missing"),
        (["image_id", "label", "no", "yes"], "--softmax --column prob_0=NAME --column prob_1=NAME"),
        (["image_id", "prob", "lable"], "column 'label': is missing. Did you mean 'lable'?"),
        (["label"], "column 'image_id': is missing"),
    ],
)
def test_what_a_header_lacks(names, message):
    with pytest.raises(InputError) as caught:
        c.check_columns("t.csv", names, names)
    assert message in str(caught.value)


def test_a_header_may_lack_ids_and_have_a_grade_for_a_label():
    c.check_columns(None, ["grade", "prob"], [])
    c.check_columns(None, ["image_id", "label", "prob_1", "prob_0"], [])


def test_bounds_are_reached_but_not_passed():
    c.check_count(None, ["x"] * c.MAX_FILE_COLUMNS)
    c.check_size(None, c.MAX_ROWS, c.MAX_VALUES // c.MAX_ROWS)
    for check in (
        lambda: c.check_count("t.csv", ["x"] * (c.MAX_FILE_COLUMNS + 1)),
        lambda: c.check_size("t.csv", c.MAX_ROWS + 1, 1),
        lambda: c.check_size("t.csv", 2, c.MAX_VALUES // 2 + 1),
    ):
        with pytest.raises(InputError, match="more than"):
            check()


def test_text_is_as_wide_as_its_longest_cell_in_every_row():
    c.check_width(2**20, 2**10, "image_id", "t.csv")
    with pytest.raises(InputError, match=r"t.csv, column 'image_id': .*Shorten it to 1024 characters"):
        c.check_width(2**20, 2**10 + 1, "image_id", "t.csv")


def test_metadata_make_the_round_trip_and_others_are_refused():
    text = c.metadata_json({"seed": np.int64(3), "folder": Path("a")}, samples=4)
    found = c.read_metadata(Path("p"), text.encode())
    assert found == {"seed": 3, "folder": "a", "samples": 4, "schema": c.SCHEMA}
    for content, message in (
        (b"[1]", "unreadable metadata"),
        (b"{", "unreadable metadata"),
        (b'{"a": "\\ud800"}', "unreadable metadata"),
        (
            json.dumps({"schema": "retinabench.predictions/9"}).encode(),
            "has schema 'retinabench.predictions/9'",
        ),
    ):
        with pytest.raises(InputError, match=message):
            c.read_metadata(Path("p"), content)
