"""Banks are read from files in the layouts in which they are published, and wrong files are one line."""

from __future__ import annotations

import csv
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from retinabench.concepts.banks.definition import bank_names, find_definition
from retinabench.concepts.banks.open_bank import read_images
from retinabench.core.errors import InputError


def picture(path, size=(24, 16), value=120):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 80, 60)).save(path)


def mask(path, box=None, size=(24, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = Image.new("L", size)
    if box:
        drawn.paste(255, box)
    drawn.save(path)


def table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([header, *rows])


def opened(name, source):
    return read_images(find_definition(str(name)), source)


def refused(name, source):
    with pytest.raises(InputError) as error:
        opened(name, source)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_definition_that_comes_along_is_sound():
    assert len(bank_names()) == 12
    concepts = {name: len(find_definition(name).concepts) for name in bank_names()}
    assert (concepts["isic2018"], concepts["oct_biomarkers"], concepts["olives"]) == (5, 11, 16)
    assert (concepts["chexpert"], concepts["chestxray14"]) == (14, 14)


@pytest.fixture
def isic(tmp_path):
    attributes = find_definition("isic2018").concepts
    for k in range(3):
        picture(tmp_path / f"ISIC2018_Task1-2_Training_Input/ISIC_000000{k}.jpg")
        for j, attribute in enumerate(attributes):
            box = (12, 0, 16, 4) if j == k else None
            mask(
                tmp_path / f"ISIC2018_Task2_Training_GroundTruth_v3/ISIC_000000{k}_attribute_{attribute}.png",
                box,
            )
    return tmp_path


def test_isic_has_five_masks_per_image(isic):
    images = opened("isic2018", isic)
    assert images.concepts == (
        "pigment_network",
        "negative_network",
        "streaks",
        "milia_like_cyst",
        "globules",
    )
    assert images.truth.tolist() == np.eye(3, 5, dtype=int).tolist()
    assert images.sample_id[0] == "ISIC_0000000"
    masks = images.masks(0)
    assert masks.shape == (5, 24, 24)  # padded to a square: 4 black rows above
    assert np.argwhere(masks[0]).min(axis=0).tolist() == [4, 12]
    assert masks.sum() == 16
    assert images.image(0, 12).shape == (12, 12, 3)
    assert not images.image(0, 24)[0].any()


def test_wrong_masks_are_named(isic):
    truths = isic / "ISIC2018_Task2_Training_GroundTruth_v3"
    mask(truths / "ISIC_0000001_attribute_streaks.png", size=(10, 10))
    with pytest.raises(InputError, match=r"streaks.png: is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("isic2018", isic).masks(1)
    (truths / "ISIC_0000001_attribute_streaks.png").write_bytes(b"no image")
    assert "streaks.png: is not an image" in refused("isic2018", isic)
    (truths / "ISIC_0000001_attribute_streaks.png").unlink()
    assert "ISIC_0000001_attribute_streaks.png' is missing" in refused("isic2018", isic)
    assert "holds no images" in refused("isic2018", truths)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\n', "needs exactly one of the tables table, masks, coco, idrid, synthetic"),
        ('title = "x"\n[table]\nfile = "x"\npaht = "y"\n', "unknown key 'table.paht'. Did you mean 'path'"),
        ('title = "x"\n[table]\nfile = "x"\npath = "y"\n', "path holds no {image}"),
        ('title = "x"\n[table]\nfile = "x"\nunknown = ["1"]\n', "cannot mean two of"),
        ('title = "x"\n[masks]\nimages = "x"\nmask = "{image}_{concept}"\n', "masks need concepts"),
        ("title = 3\nidrid = {}\n", "title: input should be a valid string"),
        ("[table\n", "is not TOML"),
    ],
)
def test_a_wrong_definition_is_one_line(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    assert message in refused(tmp_path / "x.toml", tmp_path)


COCO = {
    "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
    "categories": [{"id": 1, "name": "spot"}, {"id": 3, "name": "line"}],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 1,
            "segmentation": [[2, 2, 5, 2, 5, 5, 2, 5]],
            "bbox": [2, 2, 4, 4],
        },
        {
            "id": 2,
            "image_id": 9,
            "category_id": 3,
            "segmentation": {"size": [16, 24], "counts": [18, 4, 362]},
        },
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [10, 4, 3, 2]},
    ],
}


def coco(folder, content):
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations/instances.json").write_text(json.dumps(content))
    for name in "ab":
        picture(folder / f"images/{name}.png")
    return folder


def test_coco_polygons_runs_and_boxes_become_masks(tmp_path):
    images = opened("coco", coco(tmp_path, COCO))
    assert images.concepts == ("spot", "line")
    assert images.truth.tolist() == [[1, 0], [1, 1]]
    spot = images.masks(0)[0]
    assert spot[4 + 2 : 4 + 6, 2:6].all()  # 4 black rows above the image of 24 x 16
    assert spot.sum() == 16
    box, run = images.masks(1)
    assert np.argwhere(box).tolist() == [[8 + r, 10 + c] for r in range(2) for c in range(3)]
    assert np.argwhere(run).tolist() == [
        [4 + row, 1] for row in range(2, 6)
    ]  # column by column: 16 pixels, then 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "is no COCO file"),
        ({"annotations": [{"image_id": 8, "category_id": 1}]}, "is no COCO file (KeyError: 8)"),
        (
            {"images": [{"id": 7, "file_name": "gone.png"}], "annotations": []},
            "the image 'images/gone.png' is missing",
        ),
    ],
)
def test_a_wrong_coco_file_is_one_line(tmp_path, change, message):
    assert message in refused("coco", coco(tmp_path, COCO | change))


def test_runs_of_another_size_are_refused(tmp_path):
    wrong = [{"id": 2, "image_id": 9, "category_id": 3, "segmentation": {"size": [10, 10], "counts": [100]}}]
    with pytest.raises(InputError, match="is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("coco", coco(tmp_path, COCO | {"annotations": wrong})).masks(1)
