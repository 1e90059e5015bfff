"""Columns of Arrow tables of every type, as arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from retinabench.core.errors import InputError
from retinabench.predictions.arrow_columns import arguments_of_arrow, combined, not_a_number, unfolded
from retinabench.predictions.columns import Layout
from retinabench.predictions.values import Reading

GOOD = {"image_id": ["a", "b"], "label": [0, 1], "prob": [0.25, 0.5]}


def arguments(**columns):
    table = pa.table({**GOOD, **columns})
    layout = Layout(tuple(table.column_names))
    return arguments_of_arrow("t.parquet", table, layout, Reading(), {})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ({"label": ["True", "FALSE"]}, [1, 0]),
        ({"label": [True, False]}, [1, 0]),
        ({"grade": ["2", "n/a"], "label": [1, 0]}, [2, np.nan]),
        ({"patient_id": [7.0, 8.0]}, [7.0, 8.0]),
        ({"prob": ["0.5", "1e-3"]}, [0.5, 0.001]),
    ],
)
def test_values_of_known_columns(column, values):
    name = next(iter(column))
    found = arguments(**column)
    np.testing.assert_array_equal(
        np.asarray(found["probs" if name == "prob" else name], float), np.array(values, float)
    )


TYPES = (pa.string(), pa.large_string(), pa.string_view())


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "cells", "values"),
    [
        ("label", ["True", "false"], [1, 0]),
        ("label", ["1", "0"], [1, 0]),
        ("grade", ["NA", "0"], [np.nan, 0]),
        ("uncertainty", ["0.5", "1e-3"], [0.5, 0.001]),
    ],
)
def test_every_form_of_text_stands_for_numbers_alike(kind, name, cells, values):
    np.testing.assert_array_equal(arguments(**{name: pa.array(cells, kind)})[name], values)


@pytest.mark.parametrize(
    ("name", "cells", "values"),
    [
        ("label", [1, 0], [1, 0]),
        ("label", [True, False], [1, 0]),
        ("label", pa.array(["True", "False"], pa.large_string()), [1, 0]),
        ("grade", [2, 0], [2, 0]),
        ("prob", [0.25, 0.5], [0.25, 0.5]),
        ("uncertainty", [0.25, 0.5], [0.25, 0.5]),
        ("patient_id", [7, 8], ["7", "8"]),
    ],
)
def test_a_categorical_column_is_read_as_the_values_that_it_stands_for(name, cells, values):
    found = arguments(**{name: pa.array(cells).dictionary_encode()})
    np.testing.assert_array_equal(found["probs" if name == "prob" else name], values)


def test_a_type_that_arrow_cannot_convert_is_refused_in_one_line_or_left_out():
    views = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["p", "q"], pa.string_view()))
    with pytest.raises(InputError, match=r"column 'patient_id': has type dictionary.*Store it as plain text"):
        arguments(patient_id=views)
    found = arguments(method=pa.array([b"x", b"x"]))
    assert "the column 'method' is left out: has type binary" in found["notes"]


@pytest.mark.parametrize("cells", [["True", None], [True, None]])
def test_words_beside_empty_labels_are_read_where_these_are_allowed(cells):
    table = pa.table({**GOOD, "label": cells})
    found = arguments_of_arrow(None, table, Layout(tuple(table.column_names)), Reading(unlabelled=True), {})
    assert found["label"].tolist() == [1, 0]
    assert found["subgroups"]["labelled"].tolist() == ["yes", "no"]
    with pytest.raises(InputError, match="row 2, column 'label': is empty"):
        arguments(label=cells)


def test_samples_are_stacked_in_the_order_of_their_numbers():
    found = arguments_of_arrow(
        None,
        pa.table({"image_id": ["a"], "label": [1], "prob_1": [0.75], "prob_0": [0.5]}),
        Layout(("image_id", "label", "prob_1", "prob_0")),
        Reading(),
        {},
    )
    np.testing.assert_array_equal(found["probs"], [[0.5, 0.75]])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"label": [0, None]}, "row 2, column 'label': is empty"),
        ({"image_id": pa.nulls(2)}, "column 'image_id': is empty in every row"),
        (
            {"prob": ["0.5", "0,5"]},
            "row 2, column 'prob': is '0,5', not a number. Write decimals with a point",
        ),
        ({"image_id": ["a", "b\0"]}, "row 2, column 'image_id': holds a zero byte"),
        ({"image_id": ["a", "x" * 1001]}, "row 2, column 'image_id': has 1,001 characters"),
        ({"patient_id": [[1], [2]]}, "column 'patient_id': has type list"),
    ],
)
def test_wrong_cells_are_named(column, message):
    with pytest.raises(InputError) as caught:
        arguments(**column)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0.1], [0.2, 0.3]], "row 2, column 'probs': holds 2 samples where row 1 holds 1"),
        ([[0.1, 0.2], [0.2, None]], "row 2, column 'probs': holds an empty sample"),
        ([0.1, 0.2], "does not hold lists of numbers"),
        ([["a"], ["b"]], "needed are lists of numbers"),
    ],
)
def test_wrong_lists_are_named(lists, message):
    with pytest.raises(InputError) as caught:
        arguments(prob=pa.nulls(2), probs=lists)
    assert message in str(caught.value)


def test_dictionaries_of_several_pieces_become_one_column():
    pieces = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["b", "c"])]
    column = pa.chunked_array(pieces)
    assert combined(unfolded(column, "image_id", None)).to_pylist() == ["a", "b", "b", "c"]
    assert combined(column).to_pylist() == ["a", "b", "b", "c"]


def test_the_first_value_that_is_not_a_number_is_named():
    error = not_a_number("t.csv", "prob", pa.array(["1", "x", "y"]))
    assert str(error).startswith(
        "t.csv, row 2, column 'prob': is 'x', not a number. Write a number from 0 to 1"
    )


@pytest.mark.parametrize(
    ("name", "cell", "hint"),
    [
        ("prob", "6.9%", "Write 0.069 for it."),
        ("prob_3", " 6,9 %", "Write 0.069 for it."),
        ("prob", "NA", "Write the number, drop the row, or leave the cell empty and write 0 in the column 'gradable'"),
        ("uncertainty", "n/a", "Write the number, drop the row"),
        ("uncertainty", "high", "Write a number with a decimal point, such as 0.25."),
        ("prob_0", "high", "Write a number from 0 to 1 with a decimal point, such as 0.25."),
        ("prob", "0,5", "Write decimals with a point, or separate the columns by semicolons."),
        ("label", "yes", "Labels are 0 (not referable) or 1 (referable)."),
        ("grade", "mild", "Grades are 0 (none), 1 (mild)"),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_a_text(name, cell, hint):
    error = not_a_number(None, name, pa.array(["0.5", cell]))
    assert f"row 2, column '{name}': is '{cell}', not a number. {hint}" in str(error)


def test_a_column_of_another_table_has_no_hint():
    assert not_a_number(None, "drusen", pa.array(["x"])).hint is None
