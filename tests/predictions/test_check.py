"""Ids that are missing, look the same, or have to be made."""

from __future__ import annotations

import re

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions import check
from retinabench.predictions.check import (
    alike,
    all_differ,
    first_empty,
    first_row_with,
    indistinct,
    is_missing,
    numbered,
    own_patients,
    plain,
    tidied,
)


def test_cells_without_a_value():
    assert all(map(is_missing, (None, float("nan"), np.datetime64("NaT"))))
    assert not any(map(is_missing, ("", 0, "nan")))


@pytest.mark.parametrize(
    ("text", "form"), [("p1 ", "p1"), ("a  b", "a b"), ("b\u200b", "b"), ("Ma\u0308x", "M\xe4x"), ("a\tb", "a b")]
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
    ("ids", "forms"),
    [
        (["p1", "~!", "p 1", "1.5", "a.0", "", "/1"], None),
        ([" p1", "p\u200b2", "e\u0301", "a\tb"], ["p1", "p2", "\u00e9", "a b"]),
        (["1.0", "2", "007.00", "3.50"], ["1", "2", "007", "3.50"]),
    ],
)
def test_ids_have_one_form(ids, forms):
    for text in (ids, ["ok"] * 70_000 + ids):
        found, notes = tidied({"patient_id": np.array(text)}, ids=True)
        assert found["patient_id"].tolist() == text[: -len(ids)] + (forms or ids)
        assert bool(notes) is bool(forms)


@pytest.mark.parametrize(
    ("groups", "pair"),
    [
        ((["V1", "V2"], ["v1"]), ("V1", "v1")),
        ((["7"], ["8"], ["007"]), ("7", "007")),
        ((["\uff211"], ["a1", "b"]), ("\uff211", "a1")),
        ((["V1", "v1"], ["V2", "v1"], ["v2"]), None),  # this file tells them apart by case
        ((["01", "1"], ["1"]), None),
        ((["a.1"], ["a1"]), None),
    ],
)
def test_ids_that_look_alike_in_two_files(groups, pair):
    assert alike(groups) == pair


WORDS = np.array(["p10", "p2", "", "a b", "p2", "\u00e9", "a\nb", "~", "p10x", "\x7f"])


@pytest.fixture(params=[3, 1 << 16])
def rows_of_a_block(request, monkeypatch):
    monkeypatch.setattr(check, "BLOCK", request.param)


@pytest.mark.usefixtures("rows_of_a_block")
def test_rows_are_found():
    assert first_row_with(WORDS, "\n\r") == 6
    assert first_row_with(WORDS, "!") is None
    assert first_empty(WORDS) == 2
    assert first_empty(WORDS[3:]) is None


@pytest.mark.usefixtures("rows_of_a_block")
def test_a_text_that_stands_twice(monkeypatch):
    assert not all_differ(WORDS)
    assert all_differ(np.unique(WORDS))
    assert all_differ(np.array([f"id {k}" for k in range(1000)]))
    # Texts of one hash are told apart by themselves.
    monkeypatch.setattr(check, "_hashes", lambda text: np.zeros(len(text), np.uint64))
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
    assert not all_differ(same)


GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}

BAD = {
    "nan": ({"probs": [0.1, np.nan, 0.4]}, "row 2, column 'prob': is nan"),
    "infinity": ({"probs": [np.inf, 0.2, np.inf]}, "row 1, column 'prob': is inf (the first of 2 such rows)"),
    "too many axes": ({"probs": np.zeros((3, 1, 1))}, "column 'probs': has shape (3, 1, 1)"),
    "mixed sample counts": ({"probs": [[0.1], [0.2, 0.3], [0.4]]}, "row 2, column 'probs': holds 2 values where row 1 holds 1"),
    "complex": ({"probs": np.array([0.1j, 0, 0])}, "has type complex128, needed are numbers"),
    "dates": ({"probs": np.zeros(3, "datetime64[s]")}, "needed are numbers"),
    "words": ({"probs": ["a", "b", "c"]}, "holds values that are not numbers"),
    "none": ({"probs": [0.1, None, 0.4]}, "row 2, column 'prob': is nan"),
    "masked": ({"probs": np.ma.array([0.1, 0.2, 0.3], mask=[0, 0, 1])}, "row 3, column 'probs': is masked"),
    "label matrix": ({"label": [[0], [1], [1]]}, "column 'label': has shape (3, 1)"),
    "short labels": ({"label": [0, 1]}, "column 'label': has 2 rows where image_id has 3"),
    "one label for all": ({"label": 1}, "has a single value"),
    "duplicate": ({"image_id": ["a", "b", "a"]}, "row 3, column 'image_id': repeats 'a' of row 1"),
    "empty id": ({"image_id": ["a", "", "c"]}, "row 2, column 'image_id': is empty"),
    "id with a line break": ({"image_id": ["a", "b\nc", "c"]}, "row 2, column 'image_id': holds a line break"),
    "no rows": ({"image_id": [], "label": [], "probs": []}, "holds no rows"),
    "missing id": ({"image_id": np.array(["a", None, "c"], object)}, "row 2, column 'image_id': is empty"),
    "NaN id": ({"image_id": [1.0, 2.0, np.nan]}, "row 3, column 'image_id': is empty"),
    "long ids as floats": ({"patient_id": [1.0, np.nan, 10.0**17]}, "row 3, column 'patient_id': is the floating-point number 1e+17, which is not an exact id. Read the column as text"),
    "long ids among objects": ({"patient_id": np.array(["p", 2.0**53, None], object)}, "row 2, column 'patient_id': is the floating-point number 9007199254740992"),
    "ids in single precision": ({"image_id": np.array([1, 2, 2**24], np.float32)}, "row 3, column 'image_id': is the floating-point number 16777216"),
    "a fraction as id": ({"image_id": [1.0, 2.5, 3.0]}, "row 2, column 'image_id': is the floating-point number 2.5"),
    "an infinite id": ({"patient_id": [1.0, 2.0, np.inf]}, "row 3, column 'patient_id': is the floating-point number inf"),
    "a blank apart": ({"patient_id": ["p1", "p2", "p1 "]}, "row 3, column 'patient_id': is 'p1 ', which looks like 'p1' of row 1"),
    "an invisible character": ({"image_id": ["a", "b\u200b", "b"]}, "row 3, column 'image_id': is 'b', which looks like 'b\\u200b' of row 2"),
    "two forms of a letter": ({"patient_id": ["Ma\u0308x", "q", "M\xe4x"]}, "row 3, column 'patient_id': is 'M\\xe4x', which looks like 'Ma\\u0308x' of row 1"),
    "a zero byte": ({"patient_id": ["p", "q", "p\0"]}, "row 3, column 'patient_id': holds a zero byte"),
    "a zero byte in an object": ({"patient_id": np.array(["p", "q", "p\0"], object)}, "row 3, column 'patient_id': holds a zero byte"),
    "bytes": ({"patient_id": np.array([b"p", b"\xff", b"q"])}, "column 'patient_id': holds bytes that are not UTF-8"),
    "domain": ({"domain": ["in_domain", "ood", "shifted"]}, "row 2, column 'domain': is 'ood'. Valid: in_domain, shifted"),
    "split": ({"split": ["test", "test", "train"]}, "row 3, column 'split': is 'train'. Valid: validation, test"),
    "own score": ({"uncertainty": [0, np.inf, 1]}, "row 2, column 'uncertainty': is inf"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_row_column_and_hint(name):
    changed, message = BAD[name]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.Predictions(**{**GOOD, **changed})
    assert "\n" not in str(caught.value)


def test_an_image_without_a_patient_is_its_own():
    for missing in (None, np.nan, "", " ", "NaN", "<NA>"):
        found = rb.Predictions(**GOOD, patient_id=np.array(["p", missing, "p"], object))
        assert found.patient_id.tolist() == ["p", "image b", "p"]
        assert found.notes == ("1 of 3 images have no patient_id: each is its own patient",)
    taken = rb.Predictions(**GOOD, patient_id=["image b", "", "q"])
    assert taken.patient_id.tolist() == ["image b", "image _b", "q"]
    assert rb.Predictions(**GOOD, patient_id=[1.0, 2.0, np.nan]).patient_id.tolist() == ["1", "2", "image c"]


def test_whole_numbers_that_became_floats_are_ids_as_long_as_they_are_exact():
    for kind, most in ((np.float64, 2**53 - 1), (np.float32, 2**24 - 1)):
        found = rb.Predictions(**GOOD, patient_id=np.array([most, np.nan, 7], kind))
        assert found.patient_id.tolist() == [str(most), "image b", "7"]
