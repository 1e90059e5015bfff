"""Ids that are missing, look the same, or have to be made."""

import numpy as np
import pytest

from retinabench.predictions import identities
from retinabench.predictions.identities import (
    all_differ,
    first_empty,
    first_row_with,
    indistinct,
    is_missing,
    named_by_row,
    numbered,
    own_patients,
    plain,
    plain_rows,
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


WORDS = np.array(["p10", "p2", "", "a b", "p2", "\u00e9", "a\nb", "~", "p10x", "\x7f"])


@pytest.fixture(params=[3, 1 << 16])
def rows_of_a_block(request, monkeypatch):
    monkeypatch.setattr(identities, "BLOCK", request.param)


@pytest.mark.usefixtures("rows_of_a_block")
def test_rows_are_found():
    assert first_row_with(WORDS, "\n\r") == 6
    assert first_row_with(WORDS, "!") is None
    assert first_empty(WORDS) == 2
    assert first_empty(WORDS[3:]) is None


@pytest.mark.usefixtures("rows_of_a_block")
def test_visible_ascii_of_some_length():
    assert np.flatnonzero(plain_rows(WORDS)).tolist() == [0, 1, 4, 7, 8]
    assert np.flatnonzero(plain_rows(WORDS, longer_than=2)).tolist() == [0, 8]
    assert not plain_rows(WORDS, longer_than=9).any()


@pytest.mark.usefixtures("rows_of_a_block")
def test_a_text_that_stands_twice(monkeypatch):
    assert not all_differ(WORDS)
    assert all_differ(np.unique(WORDS))
    assert all_differ(np.array([f"id {k}" for k in range(1000)]))
    # Texts of one hash are told apart by themselves.
    monkeypatch.setattr(identities, "_hashes", lambda text: np.zeros(len(text), np.uint64))
    assert all_differ(np.unique(WORDS))
    assert not all_differ(WORDS)


@pytest.mark.usefixtures("rows_of_a_block")
@pytest.mark.parametrize("width", [1, 7, 8, 9, 17, 40])
def test_texts_are_numbered_in_their_order(width):
    rng = np.random.default_rng(width)
    letters = np.array(list("ab Z0~\x01"))
    text = np.array(["".join(rng.choice(letters, rng.integers(1, width + 1))) for _ in range(200)])
    for found in (text, np.append(text, "\u00e9")):
        values, codes = np.unique(found, return_inverse=True)
        assert numbered(found)[1] == len(values)
        assert (numbered(found)[0] == codes).all()


@pytest.mark.usefixtures("rows_of_a_block")
def test_one_text_for_all_rows():
    same = np.broadcast_to(np.asarray("test"), 7)
    assert numbered(same)[0].tolist() == [0] * 7
    assert plain_rows(same).all()
    assert not all_differ(same)
