import pytest

from retinabench.data.ingest.eye_names import eye_of, eyes_of


@pytest.mark.parametrize(
    ("eye", "cells"),
    [
        (
            "left",
            [
                "left",
                "L",
                "OS",
                "o.s.",
                "OI",
                "izquierdo",
                "Ojo izquierdo",
                "IZQ",
                "gauche",
                "G",
                "œil gauche",
                "OG",
            ],
        ),
        ("right", ["Right", "R", "OD", "Derecho", "D", "droit", "Œil droit", "destra", "rechts"]),
        ("", ["", "  ", "n/a", "?"]),
        (None, ["1", "2", "both", "OU", "ojo"]),
    ],
)
def test_eyes_are_read_in_several_languages(eye, cells):
    assert {eye_of(cell) for cell in cells} == {eye}


def test_cells_that_name_no_eye_are_unknown_and_told_once():
    assert eyes_of(["1", "OD", "2", "1"]) == (["", "right", "", ""], ["1", "2"])
