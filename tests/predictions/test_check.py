import numpy as np
import pytest

import retinabench as rb
from retinabench.predictions import check
from retinabench.predictions.check import alike, all_differ, first_empty, first_row_with, indistinct, numbered, plain


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
        found, notes = check.tidied({"patient_id": np.array(text)}, ids=True)
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


GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}


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
