"""Every data set of `DATASETS` through one oracle: sound records, images of the asked size, the same every time."""

import re

import numpy as np
import pytest

from retinabench.data.labels import Survey
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from retinabench.data.tasks import load_task
from support.kaggle_layout import write_aptos, write_eyepacs, write_pictures

MANY = 64  # images, so that every task finds enough
SOURCES = {}


def source(make):
    """Register what writes a small source: (folder) -> source and options, named as the data set."""
    SOURCES[make.__name__] = make
    return make


# Small sources of the data sets:


@source
def synthetic(root):
    return None, {"images": MANY}


@source
def idrid(root):
    rows = [f"{k}.png,image{k},{('train', 'test')[k % 2]},{k % 5}" for k in range(MANY)]
    (root / "labels.csv").write_text("\n".join(["file,name,split,grade", *rows]))
    write_pictures(root, "", [(f"images/{k}.png", k % 5) for k in range(MANY)], "folder")
    return root, {}


@source
def eyepacs(root):
    return write_eyepacs(root, "parts", share=0.002), {}


@source
def aptos(root):
    return write_aptos(root, "zip", rows=MANY), {"split": "test"}


@source
def messidor(root):
    lines = ["image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable"]
    lines += [f"{k}.png,{k % 5},0,1" for k in range(MANY)]
    (root / "messidor_data.csv").write_text("\n".join(lines))
    write_pictures(root, "IMAGES", [(f"{k}.png", k % 5) for k in range(MANY)], "zip")
    return root, {}


def tables(root, files, images, **options):
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join([*lines, ""]))
    write_pictures(root, "", [(f"{name}", grade) for name, grade in images], "folder")
    return root, options


@source
def brset(root):
    lines = [f"img{k:05d},{k // 2},{k % 2 + 1},{k % 5},Canon CR" for k in range(MANY)]
    images = [(f"fundus_photos/img{k:05d}.jpg", k % 5) for k in range(MANY)]
    return tables(root, {"labels.csv": ["image_id,patient_id,exam_eye,DR_ICDR,camera", *lines]}, images)


@source
def mbrset(root):
    lines = [f"{k // 4},{k // 4}.{k % 4 + 1}.jpg,{('left', 'right')[k % 2]},{k % 5}.0" for k in range(MANY)] + [
        "99,99.1.jpg,left,"
    ]
    images = [(f"images/{k // 4}.{k % 4 + 1}.jpg", k % 5) for k in range(MANY)]
    return tables(root, {"labels_mbrset.csv": ["patient,file,laterality,final_icdr", *lines]}, images)


@source
def ddr(root):
    parts = ("train", "valid", "test")
    files = {f"{part}.txt": [f"007-{part}-{k}.jpg {k % 6}" for k in range(MANY)] for part in parts}
    return tables(root, files, [(f"{part}/007-{part}-{k}.jpg", k % 5) for part in parts for k in range(MANY)])


@source
def deepdrid(root):
    head = "patient_id,image_id,image_path,Overall quality,left_eye_DR_Level,right_eye_DR_Level,patient_DR_Level"
    files, images = {}, []
    for part, first in (("training", 1), ("validation", 265)):
        folder, rows = f"regular-fundus-{part}", [(first + k // 4, "lr"[k // 2 % 2], k % 2 + 1) for k in range(MANY)]
        lines = [
            f"{p},{p}_{e}{i},{folder}\\{p}\\{p}_{e}{i}.jpg,1,{p % 5 if e == 'l' else ''},{(p + 1) % 5 if e == 'r' else ''},{p % 5}"
            for p, e, i in rows
        ]
        files[f"{folder}/{folder}.csv"] = [head, *lines]
        images += [(f"{folder}/Images/{p}/{p}_{e}{i}.jpg", p % 5) for p, e, i in rows]
    return tables(root, files, images)


@source
def rfmid(root):
    parts = {"Training_Set/RFMiD_Training_Labels.csv": "Training", "Evaluation_Set/RFMiD_Validation_Labels.csv": "Validation",
             "Test_Set/RFMiD_Testing_Labels.csv": "Test"}  # fmt: skip
    files = {name: ["ID,Disease_Risk,DR,ARMD", *(f"{k},1,{k % 2},0" for k in range(1, MANY))] for name in parts}
    folders = [f"{name.partition('/')[0]}/{part}" for name, part in parts.items()]
    images = [(f"{folder}/{k}.png", k % 5) for folder in folders for k in range(1, MANY)]
    return tables(root, files, images)


@source
def odir(root):
    sides, kinds = ("left", "right"), ("D", "N", "C")
    lines = [f"{k // 2},{k // 2}_left.jpg,\"['{kinds[k % 3]}']\",{k // 2}_{sides[k % 2]}.jpg" for k in range(MANY)]
    images = [(f"preprocessed_images/{k // 2}_{sides[k % 2]}.jpg", k % 5) for k in range(MANY)]
    return tables(root, {"full_df.csv": ["ID,Left-Fundus,labels,filename", *lines]}, images)


@source
def airogs(root):
    lines = ["challenge_id,class", *(f"TRAIN{k:06d},{('NRG', 'RG')[k % 2]}" for k in range(MANY))]
    return tables(root, {"train_labels.csv": lines}, [(f"{k % 6}/TRAIN{k:06d}.jpg", k % 5) for k in range(MANY)])


@source
def retinamnist(root):
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (MANY, 28, 28, 3), dtype=np.uint8)
    names = [f"{split}_{kind}" for split in ("train", "val", "test") for kind in ("images", "labels")]
    np.savez(root / "small.npz", **dict(zip(names, [images, np.arange(MANY)[:, None] % 5] * 3, strict=True)))
    return root / "small.npz", {}


@source
def folder(root):
    lines = ["image,grade,split", *(f"{k},{k % 5},{('train', 'test')[k % 2]}" for k in range(MANY))]
    (root / "labels.csv").write_text("\n".join(lines))
    write_pictures(root, "", [(f"{k}.jpg", k % 5) for k in range(MANY)], "folder")
    return root, {}


def test_every_data_set_is_here():
    assert set(SOURCES) == set(DATASETS)


@pytest.fixture(params=DATASETS)
def opened(request, tmp_path):
    root, options = SOURCES[request.param](tmp_path)
    return DATASETS.find(request.param), root, options


@pytest.mark.parametrize(
    ("name", "images", "label", "row"),
    [  # one row as its table states it: id, patient, eye, grade (2 stands for label 1), split
        ("brset", 64, "", ("img00003", "1", "left", 3, "test")),
        ("mbrset", 64, "", ("2.2.jpg", "2", "right", 4, "test")),
        ("ddr", 3 * 54, "", ("007-valid-4.jpg", "007-valid-4.jpg", "", 4, "validation")),
        ("deepdrid", 128, "", ("265_r2", "265", "right", 1, "test")),
        ("rfmid", 3 * 63, "retinopathy of any grade", ("validation-3", "validation-3", "", 2, "validation")),
        ("odir", 64, "retinopathy of any grade", ("1_right.jpg", "1", "right", 2, "test")),
        ("airogs", 64, "referable glaucoma", ("TRAIN000001", "TRAIN000001", "", 2, "test")),
    ],
)
def test_a_table_of_labels_is_read_as_it_is_published(name, images, label, row, tmp_path):
    root, _ = SOURCES[name](tmp_path)
    dataset, survey = DATASETS.find(name), Survey()
    records = dataset.records(root, survey=survey)
    assert (len(records), dataset.label) == (images, label)
    columns = (records.image_id, records.patient_id, records.eye, records.grade, records.split)
    assert row in set(zip(*(column.tolist() for column in columns), strict=True))
    ungradable = [image for image, why in survey.left_out if why == "ungradable"]
    graded = [f"007-{p}-{k}.jpg" for p in ("train", "valid", "test") for k in range(5, 64, 6)]
    assert ungradable == {"mbrset": ["99.1.jpg"], "ddr": graded}.get(name, [])


def test_a_shifted_set_whose_labels_mean_something_else_is_asked_about(tmp_path):
    folders = {}
    for name in ("idrid", "airogs", "brset"):
        (tmp_path / name).mkdir()
        root, options = SOURCES[name](tmp_path / name)
        out = tmp_path / f"{name}-prepared"
        folders[name] = prepare(name, out, recipe=Recipe(16), source=root, workers=1, **options).folder
    (note,) = (n for n in load_task(folders["idrid"], "country_shift", folders["airogs"]).notes if "label 1" in n)
    assert note.startswith("label 1 of 'idrid' is referable retinopathy by its grade, of 'airogs' referable glaucoma")
    assert not any("label 1" in n for n in load_task(folders["idrid"], "country_shift", folders["brset"]).notes)


@pytest.mark.parametrize("name", DATASETS)
def test_the_data_card_answers_the_questions(name):
    dataset = DATASETS.find(name)
    card = dataset.card
    assert len(dataset.steps) > 40
    assert "retinabench prepare" in dataset.steps
    if dataset is not DATASETS["synthetic"]:
        terms = {term.strip() for row in re.findall(r"^\| ([^|]+) \|", card, re.MULTILINE) for term in row.split(",")}
        assert terms >= {"input", "label", "population", "camera", "splits", "patients", "licence"}
        # One's own folder has nobody else to cite or to get it from.
        assert dataset is DATASETS["folder"] or terms >= {"citation", "how to get it"}


def test_records_are_sound_and_pictures_have_the_asked_size_and_are_the_same_every_time(opened):
    dataset, root, options = opened
    records = dataset.records(root, **options)
    assert len(np.unique(records.image_id)) == len(records)
    assert set(records.split) <= {"train", "validation", "test"}
    assert "test" in set(records.split)
    assert set(records.domain) <= {"in_domain", "shifted"}
    assert set(records.eye) <= {"left", "right", ""}
    assert (records.patient_id != "").all()
    known = records.p_referable[~np.isnan(records.p_referable)]
    assert ((known >= 0) & (known <= 1)).all()
    source = str(records.source[0])
    for size in (32, 48):
        picture = dataset.image(source, root, Recipe(size))
        assert picture.shape == (size, size, 3)
        assert picture.dtype == np.uint8
        assert picture.std() > 5
        assert np.array_equal(picture, dataset.image(source, root, Recipe(size)))
