import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.tables import ReaderPanel, majority, random_reader, read_bank, read_reference
from retinabench.concepts.examinees import read_answers
from retinabench.core.errors import InputError
from support.bank_files import opened, picture, refused, table

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
        ("image_id,a,a\nx,1,0\n", "appears twice in the header"),
        ("image,a\nx,1\n", r"has no column 'image_id'\. Rename or add it; the file has: image, a"),
        ("image_id\nx\n", "has no column but image_id"), ("image_id,a\n", "has no rows"),
        ("image_id,a\nx,\n", "no truth is known"),
        ("image_id,a\nx,1,0\n", "row 1: has 3 columns where the header has 2"),
        ("image_id,a\n,1\n", "row 1, column 'image_id': is empty"), ("image_id,a\nx,inf\n", "row 1, column 'a'"),
        ("", "empty"),
    ],
)  # fmt: skip
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
        (ANSWERS.replace("0.3", "1.5"), "row 3, column 'hard exudate': is 1.5, outside .* A probability lies"),
        (ANSWERS.replace("0.3", "90"), "is 90, outside .* These look like percentages"),
        (ANSWERS.replace("0.3", "inf"), "row 3, column 'hard exudate': is infinite"),
        (ANSWERS.replace("0.2", "-2"), "row 1, column 'haemorrhage': is -2, outside .* logits"),
        (ANSWERS.replace("a,0.3", "a,"), "row 3, column 'hard exudate': has no answer for image 'a'"),
        (ANSWERS.replace("extra", "a"), "row 3, column 'image_id': repeats 'a' of row 2"),
        (ANSWERS.replace("0.4", "maybe"), "row 3, column 'haemorrhage': is 'maybe', not a number"),
    ],
)
def test_wrong_answers(tmp_path, text, says):
    bank = read_bank(write(tmp_path / "truth.csv", TRUTH))
    path = write(tmp_path / "answers.csv", text)
    with pytest.raises(InputError, match=says) as caught:
        read_answers(path, bank)
    assert "answers.csv" in str(caught.value)


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


@pytest.fixture
def chexpert(tmp_path):
    observations = list(find_definition("chexpert").concepts)
    header = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *observations]
    cells = ["1.0", "0.0", "-1.0", "", *["0.0"] * 10]
    rows = []
    for k, view in enumerate(("Frontal", "Lateral", "Frontal")):
        path = f"CheXpert-v1.0-small/train/patient0000{k // 2}/study1/view{k}_{view.lower()}.jpg"
        picture(tmp_path / path)
        rows.append([path, "Female", "61", view, "AP", *cells])
    table(tmp_path / "CheXpert-v1.0-small/train.csv", header, rows)
    return tmp_path


def test_chexpert_cells_are_present_absent_or_unknown(chexpert):
    images = opened("chexpert", chexpert)
    assert len(images) == 2  # frontal views
    assert len(images.concepts) == 14
    assert images.truth[0].tolist() == [1, 0, -1, -1, *[0] * 10]
    assert images.patient_id.tolist() == ["patient00000", "patient00001"]
    assert images.masks is None


def test_other_cells_and_missing_images_name_their_row(chexpert):
    file = chexpert / "CheXpert-v1.0-small/train.csv"
    text = file.read_text()
    file.write_text(text.replace("1.0,0.0,-1.0", "1.0,0.0,2", 1))
    said = refused("chexpert", chexpert)
    assert "train.csv, row 1, column 'Cardiomegaly': is '2', which has no meaning" in said
    file.write_text(text.replace("view2", "view9"))
    assert "row 3, column 'Path': its image 'CheXpert-v1.0-small/train/patient00001" in refused("chexpert", chexpert)
    file.write_text(text.replace("Edema", "Oedema"))
    assert "column 'Edema': is missing. Did you mean 'Oedema'" in refused("chexpert", chexpert)
    file.unlink()
    assert "holds no file 'CheXpert-v1.0*/train.csv'" in refused("chexpert", chexpert)


def test_rfmid_has_a_concept_for_each_disease_and_may_stay_packed(tmp_path):
    diseases = [f"D{k}" for k in range(45)]
    for k in (1, 2):
        picture(tmp_path / f"Training_Set/Training/{k}.png", (40, 30))
    rows = [[k, 1, *[int(j == k) for j in range(45)]] for k in (1, 2)]
    table(tmp_path / "Training_Set/RFMiD_Training_Labels.csv", ["ID", "Disease_Risk", *diseases], rows)
    images = opened("rfmid", tmp_path)
    assert images.concepts == tuple(diseases)
    assert images.truth.sum() == 2
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for file in sorted((tmp_path / "Training_Set").rglob("*.*")):
            archive.write(file, file.relative_to(tmp_path))
    packed = opened("rfmid", tmp_path / "set.zip")
    assert np.array_equal(packed.truth, images.truth)
    assert np.array_equal(packed.image(1, 20), images.image(1, 20))


def test_odir_takes_the_keywords_of_each_eye(tmp_path):
    header = ["ID", "Patient Age", "Patient Sex", "Left-Fundus", "Right-Fundus", "Left-Diagnostic Keywords",
              "Right-Diagnostic Keywords", *"NDGCAHMO"]  # fmt: skip
    rows = [
        [1, 60, "Male", "1_left.jpg", "1_right.jpg", "cataract，moderate non proliferative retinopathy", "normal fundus",
         0, 1, 0, 1, 0, 0, 0, 0],
        [2, 50, "Female", "2_left.jpg", "2_right.jpg", "low image quality", "Glaucoma", 0, 0, 1, 0, 0, 0, 0, 0],
    ]  # fmt: skip
    table(tmp_path / "ODIR-5K_Training_Annotations.csv", header, rows)
    for name in ("1_left", "1_right", "2_right"):
        picture(tmp_path / f"ODIR-5K_Training_Images/{name}.jpg", (40, 30))
    images = opened("odir", tmp_path)
    assert images.sample_id.tolist() == ["1_left", "1_right", "2_right"]
    assert images.patient_id.tolist() == ["1", "1", "2"]
    present = [[images.concepts[c] for c in np.flatnonzero(row)] for row in images.truth]
    assert present == [["diabetic_retinopathy", "cataract"], ["normal"], ["glaucoma"]]


def test_a_bank_of_ones_own_is_one_file(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'title = "mine"\nsize = 32\n[concepts]\nbleeding = ["blot", "flame"]\n'
        '[table]\nfile = "t.csv"\nimage = "name"\npath = "pix/{image}.png"\npresent = ["yes"]\nabsent = ["no"]\n'
        'unknown = ["?", ""]\n'
    )
    for name in "abc":
        picture(tmp_path / f"pix/{name}.png")
    table(tmp_path / "t.csv", ["name", "blot", "flame"], [["a", "no", "yes"], ["b", "no", "?"], ["c", "no", "no"]])
    assert opened(tmp_path / "mine.toml", tmp_path).truth.ravel().tolist() == [1, -1, 0]


TABLE = """image_id,edema@a,edema@b,edema@c,mass@a,mass@b,mass@c
x,1,1,0,0,0,0
y,1,0,,1,1,1
z,,,,1,,0
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "truth.csv").write_text(TABLE)
    return tmp_path / "truth.csv"


def test_the_majority_is_that_of_the_readers_of_an_image(path):
    bank, panel = read_reference(path)
    assert bank.concepts == ("edema", "mass")
    assert panel.readers == ("a", "b", "c")
    assert bank.truth[0].tolist() == [1, 0]
    assert bank.truth[1, 1] == 1
    shares = panel.shares(0, np.array([[1, 0, 1], [0, 0, 2]]))[:, :2]
    np.testing.assert_array_equal(shares, [[0.5, 1], [0, np.nan]])


def test_the_patients_of_the_table_stay(path):
    header, *rows = TABLE.splitlines()
    named = [f"{row},{patient}" for row, patient in zip([header, *rows], ("patient_id", "p", "q", "p"), strict=True)]
    path.write_text("\n".join(named) + "\n")
    bank, _ = read_reference(path)
    assert bank.concepts == ("edema", "mass")
    assert bank.patient.tolist() == [0, 1, 0]


def test_one_reader(path):
    bank, _ = read_reference(path, ["edema"], "b")
    assert bank.truth[:, 0].tolist() == [1, 0, -1]


def test_a_random_reader_is_the_same_for_all_concepts_of_an_image():
    votes = np.stack([np.full((3000, 2), k, np.int8) % 2 for k in range(3)], axis=2)
    votes[:1000, :, 0] = -1  # did not read these
    votes[5] = -1
    drawn = random_reader(votes, np.random.default_rng(0))
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert drawn[5].tolist() == [-1, -1]
    # Readers 1 of 1 and 2: half; of 0, 1 and 2: a third. Standard errors 0.016 and 0.011.
    assert np.mean(drawn[:1000, 0] == 1) == pytest.approx(1 / 2, abs=0.05)
    assert np.mean(drawn[1000:, 0] == 1) == pytest.approx(1 / 3, abs=0.035)


def test_the_seed_decides_the_random_readers(path):
    first, again, other = (read_reference(path, None, "random", seed)[0].hash for seed in (0, 0, 3))
    assert first == again != other


def test_a_table_with_one_truth_is_read_as_ever(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("image_id,edema\nx,1\ny,0\n")
    bank, panel = read_reference(path)
    assert (bank.concepts, panel) == (("edema",), None)
    with pytest.raises(InputError, match=r"has one truth.*CONCEPT@READER"):
        read_reference(path, None, "majority")


@pytest.mark.parametrize(
    ("concepts", "truth", "says"),
    [(None, "d", "has no reader 'd'"), (["oedema"], None, "has no column 'oedema@…'. Did you mean 'edema'")],
)
def test_unknown_names(path, concepts, truth, says):
    with pytest.raises(InputError, match=says):
        read_reference(path, concepts, truth)


def test_a_reader_who_lacks_a_concept_is_named(path):
    path.write_text("image_id,edema@a,mass@b\nx,1,0\n")
    with pytest.raises(InputError, match="has no column 'edema@b', 'mass@a'"):
        read_reference(path)


def test_a_coin_decides_the_ties_of_an_even_panel():
    votes = np.array([[[1, 0]], [[1, 1]], [[0, -1]], [[-1, -1]]], np.int8)
    drawn = np.array([majority(votes, np.random.default_rng(k))[:, 0] for k in range(400)])
    assert (drawn[:, 1:] == [1, 0, -1]).all()
    assert drawn[:, 0].mean() == pytest.approx(0.5, abs=3 * 0.025)


@pytest.mark.parametrize("count", [2, 5, 30])
def test_drawn_panels_are_those_of_the_bayesian_bootstrap(count):
    """As many readers each; the variance of a mean over them is 2 / (R + 1) of that between readers, within 5 errors of 7 %."""
    panel = ReaderPanel(tuple("r" * count), np.zeros((1, 1, count), np.int8), "majority")
    drawn = panel.drawn()
    assert set(drawn.sum(axis=1)) == {count}
    values = np.random.default_rng(0).normal(size=count)
    assert (drawn @ values / count).var() == pytest.approx(values.var() * 2 / (count + 1), rel=0.35)
