"""Ids that are missing, look the same, or have to be made."""

import numpy as np
import pytest

from retinabench.predictions.identities import (
    indistinct,
    is_missing,
    named_by_row,
    own_patients,
    plain,
    unmistakable,
)


def test_cells_without_a_value():
    assert all(map(is_missing, (None, float("nan"), np.datetime64("NaT"))))
    assert not any(map(is_missing, ("", 0, "nan")))


def test_rows_are_numbered_from_1():
    ids, note = named_by_row(3)
    assert ids.tolist() == ["1", "2", "3"]
    assert "named by their row" in note


@pytest.mark.parametrize(
    ("text", "form"),
    [("p1 ", "p1"), ("a  b", "a b"), ("b\u200b", "b"), ("Ma\u0308x", "M\xe4x"), ("a\tb", "a b")],
)
def test_invisible_differences_are_removed(text, form):
    assert plain(text) == form
    assert set(indistinct([form, text])) == {form, text}
    assert indistinct([text, text]) is None


def test_two_odd_forms_of_an_absent_plain_one_are_a_pair():
    assert set(indistinct(["p ", " p", "q"])) == {"p ", " p"}
    assert indistinct(["p", "q", "P"]) is None


def test_images_without_a_patient_become_their_own():
    patient = np.array(["p", "", "NaN", "p"])
    found, made = own_patients(patient, np.array(["a", "b", "c", "d"]))
    assert (found.tolist(), made) == (["p", "image b", "image c", "p"], 2)
    # A patient who has the name already keeps it.
    found, _ = own_patients(np.array(["image b", ""]), np.array(["a", "b"]))
    assert found.tolist() == ["image b", "image _b"]
    assert own_patients(np.array(["p", "q"]), np.array(["a", "b"]))[1] == 0


@pytest.mark.parametrize(
    ("ids", "plainly"),
    [(["p1", "~!"], True), (["p1", "p 1"], False), (["p", "é"], False), (["p", "a\n"], False), (["a\0b", "c"], False), (["", "x"], True)],
)  # fmt: skip
def test_visible_ascii_needs_no_closer_look(ids, plainly):
    assert unmistakable(np.array(ids)) is plainly
    assert unmistakable(np.array(["ok"] * 70_000 + ids)) is plainly
