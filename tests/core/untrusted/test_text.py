import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinabench.core.untrusted.text import csv_text, json_object, plain_cell, unquoted, visible

TEXT = st.text(st.sampled_from("'=+-@\t\r10.e a＝,\"\n"), max_size=6)


def test_what_a_terminal_would_execute_is_spelled_out():
    assert visible("\x1b[2J\x07a\u202eb\x9b") == "\\x1b[2J\\x07a\\u202eb\\x9b"
    assert visible("é\N{NO-BREAK SPACE}日\n\t👁") == "é\N{NO-BREAK SPACE}日\n\t👁"


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "＝1", "'=1"])
def test_no_cell_begins_a_formula(text):
    assert plain_cell(text) == f"'{text}"


def test_numbers_and_plain_text_stay():
    assert [plain_cell(text) for text in ("-0.5", "+1e-3", "-", "a=b", "'tis", "")] == [
        "-0.5",
        "+1e-3",
        "'-",
        "a=b",
        "'tis",
        "",
    ]


@given(TEXT)
def test_unquoted_is_the_inverse(text):
    assert unquoted(plain_cell(text)) == text


def test_csv_quotes_text_and_leaves_numbers():
    rows = list(csv.reader(io.StringIO(csv_text([["=a", 'b"c\x1b'], [-0.5, "x,=y"]]), newline="")))
    assert rows == [["'=a", 'b"c\\x1b'], ["-0.5", "x,=y"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{",
        '{"a": "\\ud800"}',
        '{"a": ' * 5000,
        '{"a": 1' + "0" * 5000 + "}",
        '{"a": 1' + "0" * 400 + "}",
    ],
)
def test_what_is_no_json_object_that_can_be_written_again_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - half a dozen messages of the standard library
        json_object(text)
