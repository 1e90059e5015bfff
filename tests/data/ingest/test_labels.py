"""Label files in every dialect, and every mistake in them named by file, row and column."""

import pytest

from retinabench.core.errors import InputError
from retinabench.data.ingest.archives import open_files
from retinabench.data.ingest.labels import check_distinct, grade_of, ids_of, read_table, refuse_typos

GOOD = "image,level\n1_left,0\n1_right,3\n"
ROWS = [(1, {"image": "1_left", "level": "0"}), (2, {"image": "1_right", "level": "3"})]


def table(tmp_path, content, columns=("image", "level")):
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(open_files(tmp_path), "t.csv", columns)


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", ";"),
        GOOD.replace(",", "\t"),
        GOOD.rstrip("\n"),
        GOOD + ",\n\n",
        " image , level \n1_left, 0\n 1_right ,3 \n",
        '"image","level"\n"1_left","0"\n"1_right","3"\n',
    ],
)
def test_dialects_of_csv_read_alike(tmp_path, content):
    assert table(tmp_path, content) == ROWS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "t.csv: is empty"),
        ("image,level\n", "holds no rows"),
        ("image,levle\n1_left,0\n", "column 'level': is missing. Did you mean 'levle'"),
        ("image,level,level\n1_left,0,1\n", "column 'level': appears twice"),
        ("image,level\n1_left,0,what,3\n", "row 1: has 4 cells under 2 columns"),
        ("image,level,eye\n1_left,0\n", "row 1: has 2 cells under 3 columns. Is the file cut short"),
        ("image,le\0el,level\n1_left,0,0\n", "control character in its header"),
        ('#level","image"\n0,1_left\n', "half a pair of quotation marks in its header"),
        (b"image,level\n1_\xff,0\n", "not UTF-8"),
        ('image,level\n"1_left,0\n', "no sound CSV"),
        ("image,level,eye\n1_left,0,left\0\0,\n", "row 1, column 'eye': holds a zero byte"),
    ],
)
def test_bad_tables_are_named(tmp_path, content, says):
    with pytest.raises(InputError, match=says):
        table(tmp_path, content)


def test_grades_and_ids(tmp_path):
    rows = table(tmp_path, "image,level\na,2.0\nb,7\na,-1\n,0\n")
    assert grade_of(rows[0], "level", "t.csv") == 2
    with pytest.raises(InputError, match=r"t.csv, row 2, column 'level': is '7', not one of 0, 1, 2, 3, 4"):
        grade_of(rows[1], "level", "t.csv")
    with pytest.raises(InputError, match=r"row 3, column 'image': 'a' is in row 1 already"):
        ids_of(rows, "image", "t.csv")
    with pytest.raises(InputError, match=r"row 4, column 'image': is empty"):
        ids_of(rows[3:], "image", "t.csv")


@pytest.mark.parametrize("second", ["p1\u200b", "p\u00ad1", "\u2060p1"])
def test_names_that_only_look_different_are_refused(second):
    with pytest.raises(InputError, match=r"row 2, column 'patient': is .*which looks like 'p1'"):
        check_distinct([(1, {"patient": "p1"}), (2, {"patient": second})], "patient", "t.csv")


def test_misspelt_optional_columns_are_refused():
    for name in ("patiend", "Patient", "pat\0ent"):
        with pytest.raises(InputError, match="almost like 'patient'"):
            refuse_typos(["image", "grade", name], ["patient"], "t.csv")
    refuse_typos(["image", "grade", "patient", "patients"], ["patient"], "t.csv")
