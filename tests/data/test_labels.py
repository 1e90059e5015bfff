import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.archives import open_files
from retinabench.data.datasets import folder
from retinabench.data.labels import Survey, check_distinct, grade_of, ids_of, read_table, refuse_typos
from retinabench.data.registry import DATASETS
from support.kaggle_layout import drawn, write_eyepacs
from support.own_images import prepare_own, write_own

SHARE = 0.001  # of EyePACS's patients: 18 + 5 + 21


def test_a_label_without_its_file_stops_the_preparation_and_is_listed(tmp_path, capsys):
    source = write_eyepacs(tmp_path / "source", "folder", share=SHARE)
    gone = sorted((source / "train").iterdir())[:7]
    for path in gone:
        path.unlink()
    (source / "train" / "stranger.jpeg").write_bytes(drawn("x.jpeg", 0))
    names = ", ".join(path.stem for path in gone)
    with pytest.raises(InputError, match=r"7 labelled images have no file: .*, …"):
        DATASETS["eyepacs"].records(source)
    arguments = ["prepare", "eyepacs", "--source", str(source), "--out", str(tmp_path / "out"), "--size", "16", "-q"]
    assert run(arguments) == 2
    assert f"All are listed in {tmp_path / 'out.left_out.csv'}" in capsys.readouterr().err
    rows = (tmp_path / "out.left_out.csv").read_text().splitlines()
    assert rows[0] == "name,reason"
    assert {row.split(",")[0] for row in rows[1:]} == {*names.split(", "), "train/stranger.jpeg"}
    assert not (tmp_path / "out").exists()
    survey = Survey()
    assert len(DATASETS["eyepacs"].records(source, survey=survey)) == 88 - 7
    survey.check(tmp_path / "out", "skip")
    assert survey.lines()[0].startswith("7 labels without a file, left out (")
    assert survey.lines()[1] == "1 file without a label, left out (train/stranger.jpeg)"
    for path in gone:
        path.write_bytes(drawn("x.jpeg", 0))
    assert run([*arguments, "--workers", "1"]) == 0
    assert not (tmp_path / "out.left_out.csv").exists()
    assert (tmp_path / "out" / "left_out.csv").read_text() == "name,reason\ntrain/stranger.jpeg,file without a label\n"


def test_labelled_files_of_another_kind_are_counted(tmp_path):
    source = write_own(tmp_path / "in", ["image,grade", "a/1.jpg,0", "x.dcm,1", "y,2"])
    for name in ("x.dcm", "y.heic"):
        (source / name).write_bytes(b"?")
    assert run(prepare_own(source, tmp_path / "out")) == 2
    survey = Survey(skips=True)
    assert len(folder.records(source, survey=survey)) == 1
    assert survey.lines()[-1] == "2 of them may be .dcm, .heic files, which are not read: convert them to PNG."


GOOD = "image,level\n1_left,0\n1_right,3\n"
ROWS = [(1, {"image": "1_left", "level": "0"}), (2, {"image": "1_right", "level": "3"})]


def table(tmp_path, content, columns=("image", "level")):
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(open_files(tmp_path), "t.csv", columns)


@pytest.mark.parametrize(
    "content",
    [
        GOOD, "\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.replace(",", ";"), GOOD.replace(",", "\t"),
        GOOD.rstrip("\n"), GOOD + ",\n\n", " image , level \n1_left, 0\n 1_right ,3 \n",
        '"image","level"\n"1_left","0"\n"1_right","3"\n',
    ],
)  # fmt: skip
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
        ('image,level\n"1_left,0\n', "not valid CSV"),
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
