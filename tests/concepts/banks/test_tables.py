"""Truth and answers from CSV and Parquet; every wrong file is told by file, row, column and hint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import read_bank
from retinabench.concepts.examinees.answers import read_answers
from retinabench.core.errors import InputError

TRUTH = "image_id,haemorrhage,hard exudate\na,0,1\nb,1,\nc,0,0\n"
ANSWERS = "image_id,hard exudate,camera,haemorrhage\nc,0.1,X,0.2\nextra,0.9,X,0.9\na,0.3,Y,0.4\nb,,Y,0.5\n"


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_files_are_joined_by_image(tmp_path):
    bank = read_bank(write(tmp_path / "truth.csv", TRUTH))
    assert bank.concepts == ("haemorrhage", "hard exudate")
    assert bank.truth.tolist() == [[0, 1], [1, -1], [0, 0]]
    answers = read_answers(write(tmp_path / "answers.csv", ANSWERS), bank)
    assert [answers(k, "haemorrhage") for k in range(3)] == [0.4, 0.5, 0.2]
    assert [answers(k, "hard exudate") for k in (0, 2)] == [0.3, 0.1]


def test_parquet_and_other_dialects_read_the_same(tmp_path):
    plain = read_bank(write(tmp_path / "truth.csv", TRUTH))
    table = {"image_id": ["a", "b", "c"], "haemorrhage": [0, 1, 0], "hard exudate": [1, None, 0]}
    pa.parquet.write_table(pa.table(table), tmp_path / "truth.parquet")
    assert read_bank(tmp_path / "truth.parquet").hash == plain.hash
    for number, text in enumerate((TRUTH.replace(",", ";"), TRUTH.replace(",", "\t"), "\ufeff" + TRUTH)):
        assert read_bank(write(tmp_path / f"{number}.csv", text)).hash == plain.hash
    german = ANSWERS.replace(",", ";").replace("0.", "0,")
    answers = read_answers(write(tmp_path / "german.csv", german), plain)
    assert answers.hash == read_answers(write(tmp_path / "answers.csv", ANSWERS), plain).hash


def test_names_of_concepts_may_hold_separators(tmp_path):
    path = write(tmp_path / "truth.csv", 'image_id,"exudate, hard"\nx,1\ny,0\n')
    assert read_bank(path).concepts == ("exudate, hard",)


def test_columns_can_be_chosen(tmp_path):
    path = write(tmp_path / "truth.csv", "image_id,area,MA,camera\nx,0.3,1,A\ny,0.1,0,B\n")
    assert read_bank(path, ["MA"]).concepts == ("MA",)
    with pytest.raises(InputError, match=r"row 1, column 'area': is 0.3, not 0, 1 or empty\. .*--concepts"):
        read_bank(path, ["area"])
    with pytest.raises(InputError, match="has no column 'HE'"):
        read_bank(path, ["MA", "HE"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image_id,a\nx,2\n", "row 1, column 'a': is 2, not 0, 1 or empty"),
        ("image_id,a\nx,1\ny,yes\n", "row 2, column 'a': is 'yes', not a number"),
        ("image_id,a\nx,1\nx,0\n", "row 2, column 'image_id': repeats 'x' of row 1"),
        ("image_id,a\nx,1\nx ,0\n", "row 2, column 'image_id': is 'x ', which looks like 'x' of row 1"),
        ("image_id,a,a\nx,1,0\n", "stands twice in the header"),
        ("image,a\nx,1\n", r"has no column 'image_id'\. Rename or add it; the file has: image, a"),
        ("image_id\nx\n", "has no column beside image_id"),
        ("image_id,a\n", "has no rows"),
        ("image_id,a\nx,\n", "no truth is known"),
        ("image_id,a\nx,1,0\n", "row 1: has 3 columns where the header has 2"),
        ("image_id,a\n,1\n", "row 1, column 'image_id': is empty"),
        ("image_id,a\nx,inf\n", "row 1, column 'a'"),
        ("", "empty"),
    ],
)
def test_wrong_truth(tmp_path, text, says):
    path = write(tmp_path / "truth.csv", text)
    with pytest.raises(InputError, match=says) as caught:
        read_bank(path)
    assert "truth.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image_id,haemorrhage\na,0.1\nb,0.2\nc,0.3\n", "has no column 'hard exudate'"),
        ("image_id,haemorrhage,hard exudate\na,0.1,0.2\n", r"has no row for 'b', 'c'\. Answer every image"),
        (ANSWERS.replace("0.3", "3.5"), "row 3, column 'hard exudate': is 3.5, outside"),
        (ANSWERS.replace("0.2", "-2"), "row 1, column 'haemorrhage': is -2, outside .* logits"),
        (ANSWERS.replace("a,0.3", "a,"), "row 3, column 'hard exudate': has no answer for image 'a'"),
        (ANSWERS.replace("extra", "a"), "repeats 'a'"),
        (ANSWERS.replace("0.4", "maybe"), "row 3, column 'haemorrhage': is 'maybe', not a number"),
    ],
)
def test_wrong_answers(tmp_path, text, says):
    bank = read_bank(write(tmp_path / "truth.csv", TRUTH))
    path = write(tmp_path / "answers.csv", text)
    with pytest.raises(InputError, match=says) as caught:
        read_answers(path, bank)
    assert "answers.csv" in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_bank(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_bank(tmp_path)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"broken\.parquet: cannot be read"):
        read_bank(broken)
    with pytest.raises(InputError, match="UTF-8"):
        read_bank(write(tmp_path / "latin.csv", "image_id,a\nä,1\n", encoding="latin-1"))


def test_a_thousand_missing_images_are_counted(tmp_path):
    rows = "".join(f"image{k},{k % 2}\n" for k in range(1000))
    bank = read_bank(write(tmp_path / "truth.csv", "image_id,a\n" + rows))
    path = write(tmp_path / "answers.csv", "image_id,a\nimage0,0.5\n")
    with pytest.raises(InputError, match="'image1', 'image2', 'image3' and 996 more"):
        read_answers(path, bank)


def test_answers_keep_every_bit(tmp_path):
    probs = np.random.default_rng(0).random(50)
    rows = "".join(f"i{k},{k % 2}\n" for k in range(50))
    bank = read_bank(write(tmp_path / "truth.csv", "image_id,a\n" + rows))
    text = "image_id,a\n" + "".join(f"i{k},{p!r}\n" for k, p in enumerate(probs.tolist()))
    answers = read_answers(write(tmp_path / "answers.csv", text), bank)
    assert [answers(k, "a") for k in range(50)] == probs.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_patients_stand_in_a_column_of_their_own(tmp_path, ending):
    path = tmp_path / f"truth.{ending}"
    table = pa.table({"image_id": ["a", "b", "c"], "patient_id": [7, 3, 7], "x": [1, 0, None]})
    (pa.csv.write_csv if ending == "csv" else pa.parquet.write_table)(table, path)
    bank = read_bank(path)
    assert bank.concepts == ("x",)
    assert bank.patient.tolist() == [1, 0, 1]
    assert bank.hash != Bank(bank.ids, bank.concepts, bank.truth).hash
    alone = table.set_column(1, "patient_id", pa.array([1, 2, 3]))
    (pa.csv.write_csv if ending == "csv" else pa.parquet.write_table)(alone, path)
    assert read_bank(path).patient is None  # each sample is a patient of its own
    empty = table.set_column(1, "patient_id", pa.array(["p", None, "p"]))
    (pa.csv.write_csv if ending == "csv" else pa.parquet.write_table)(empty, path)
    with pytest.raises(InputError, match="row 2, column 'patient_id': is empty"):
        read_bank(path)


@pytest.mark.parametrize("ids", [["a", "bb", "c c"], ["ä", "出血", "x"], ["a", "b" * 300, ""]])
def test_ids_of_any_script_are_read_as_they_are(tmp_path, ids):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"image_id": ids, "x": pa.array([1, 0, 1], pa.int8())}), path)
    if "" in ids:
        with pytest.raises(InputError, match="row 3, column 'image_id': is empty"):
            read_bank(path)
        return
    bank = read_bank(path)
    assert bank.ids.tolist() == ids
    assert bank.truth.ravel().tolist() == [1, 0, 1]
