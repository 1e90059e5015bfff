"""Tables in the layouts in which the data sets are published, with their published counts."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.label_table import read_label_table
from retinabench.data.ingest.archives import Files
from support.bank_files import opened, picture, refused, table


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
    assert "row 3, column 'Path': its image 'CheXpert-v1.0-small/train/patient00001" in refused(
        "chexpert", chexpert
    )
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


def test_eleven_biomarkers_of_two_hundred_slices_are_2200_questions(tmp_path):
    biomarkers = find_definition("oct_biomarkers").concepts
    picture(tmp_path / "images/0.png")
    rows = [[f"{k}.png", k // 2, *[(k + j) % 2 for j in range(11)]] for k in range(200)]
    for k in range(1, 200):
        (tmp_path / f"images/{k}.png").symlink_to(tmp_path / "images/0.png")
    table(tmp_path / "labels.csv", ["image", "patient", *biomarkers.values()], rows)
    images = opened("oct_biomarkers", tmp_path)
    assert images.truth.size == 2200
    assert len(set(images.patient_id)) == 100


def test_a_bank_of_ones_own_is_one_file(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'title = "mine"\nsize = 32\n[concepts]\nbleeding = ["blot", "flame"]\n'
        '[table]\nfile = "t.csv"\nimage = "name"\npath = "pix/{image}.png"\npresent = ["yes"]\nabsent = ["no"]\n'
        'unknown = ["?", ""]\n'
    )
    for name in "abc":
        picture(tmp_path / f"pix/{name}.png")
    table(
        tmp_path / "t.csv",
        ["name", "blot", "flame"],
        [["a", "no", "yes"], ["b", "no", "?"], ["c", "no", "no"]],
    )
    assert opened(tmp_path / "mine.toml", tmp_path).truth.ravel().tolist() == [1, -1, 0]


def published(name, folder, file, header, rows, images):
    """Read a table of published size; the images are named, and not there."""
    table(folder / file, header, rows)
    definition = find_definition(name)
    return read_label_table(definition, definition.table, Files(folder, loose={file, *images}))


def test_rfmid_has_1920_images_and_45_diseases(tmp_path):
    header = ["ID", "Disease_Risk", *[f"D{j}" for j in range(45)]]
    rows = [[k, 1, *[int(j == k % 45) for j in range(45)]] for k in range(1, 1921)]
    names = [f"Training_Set/Training/{k}.png" for k in range(1, 1921)]
    found = published("rfmid", tmp_path, "Training_Set/RFMiD_Training_Labels.csv", header, rows, names)
    assert found.truth.shape == (1920, 45)
    assert found.truth.sum() == 1920


def test_odir_has_7000_images_of_3500_patients(tmp_path):
    header = ["ID", "Patient Age", "Patient Sex", "Left-Fundus", "Right-Fundus", "Left-Diagnostic Keywords",
              "Right-Diagnostic Keywords", *"NDGCAHMO"]  # fmt: skip
    words = "normal fundus", "glaucoma"
    rows = [[k, 60, "Male", f"{k}_left.jpg", f"{k}_right.jpg", *words, *[0] * 8] for k in range(3500)]
    names = [f"ODIR-5K_Training_Images/{k}_{side}.jpg" for k in range(3500) for side in ("left", "right")]
    file = "ODIR-5K_Training_Annotations(Updated)_V2.csv"
    found = published("odir", tmp_path, file, header, rows, names)
    assert found.truth.shape == (7000, 7)
    assert len(set(found.patient_id)) == 3500
    assert found.truth.sum(axis=0).tolist()[:3] == [3500, 0, 3500]


def test_olives_has_9408_slices_and_16_biomarkers(tmp_path):
    """192 visits of 96 eyes with 49 slices each; the table writes paths with a slash in front, and lies there twice."""
    definition = find_definition("olives")
    paths = [f"/Prime_FULL/{k // 98:02}/W{k // 49 % 2}/OD/{k % 49}.png" for k in range(9408)]
    header = [definition.table.image, *definition.concepts.values(), "Eye_ID", "Patient_ID"]
    rows = [[path, *[k % 2] * 16, k // 98, k // 98 % 87] for k, path in enumerate(paths)]
    table(tmp_path / "OLIVES_Dataset_Labels/full_labels/Biomarker_Clinical_Data_Images.csv", header, rows)
    file = "OLIVES_Dataset_Labels/ml_centric_labels/Biomarker_Clinical_Data_Images.csv"
    found = published("olives", tmp_path, file, header, rows, [f"OLIVES{path}" for path in paths])
    assert found.truth.shape == (9408, 16)
    assert len(set(found.patient_id)) == 87
    assert found.truth.sum() == 16 * 4704


@pytest.mark.slow
def test_chexpert_has_191027_frontal_images(tmp_path):
    header = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *find_definition("chexpert").concepts]
    names = [f"CheXpert-v1.0-small/train/patient{k % 64540:05}/study1/view{k}.jpg" for k in range(223_414)]
    view = ["Frontal"] * 191_027 + ["Lateral"] * (223_414 - 191_027)
    rows = [[name, "Male", 50, side, "AP", *["1.0", "", "-1.0", "0.0"], *[""] * 10]
            for name, side in zip(names, view, strict=True)]  # fmt: skip
    found = published("chexpert", tmp_path, "CheXpert-v1.0-small/train.csv", header, rows, names)
    assert found.truth.shape == (191_027, 14)
    assert found.truth[0].tolist() == [1, -1, -1, 0, *[-1] * 10]
    assert len(set(found.patient_id)) == 64_540
