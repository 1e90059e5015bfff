import csv
import os
import re

import numpy as np
import pytest
from PIL import Image

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.experiments.exporting.model import export_run
from retinabench.experiments.exporting.predict_images import predict_images
from retinabench.predictions.io import read_predictions
from support.raw_images import raw_folder


@pytest.fixture(scope="module")
def model(finished, tmp_path_factory):
    run = finished("method=dropout", "method.samples=3")
    return rb.load_model(export_run(run, tmp_path_factory.mktemp("dropout") / "model", scores=False))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_unlabelled_images_are_predicted_and_ordered(model, tmp_path, ending):
    raw = raw_folder(tmp_path / "new", images=6, seed=5)
    found = predict_images(model, raw, tmp_path / f"p{ending}")
    with pytest.raises(InputError, match="label"):
        read_predictions(found.predictions)
    predictions = read_predictions(found.predictions, unlabelled=True)
    assert predictions.probs.shape == (6, 3)
    assert set(predictions.subgroups["labelled"]) == {"no"}
    with open(found.referral_list) as handle:
        rows = list(csv.DictReader(handle))
    assert [int(row["rank"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    listed = [float(row["uncertainty"]) for row in rows]
    assert listed == sorted(listed, reverse=True)
    mean = dict(zip(predictions.image_id, predictions.prob, strict=True))
    entropy = {name: -(p * np.log(p) + (1 - p) * np.log(1 - p)) for name, p in mean.items()}
    assert [row["image_id"] for row in rows] == sorted(entropy, key=entropy.get, reverse=True)


def test_files_that_are_no_images_are_named_and_the_others_predicted(model, tmp_path):
    raw = raw_folder(tmp_path / "new", images=4)
    (raw / "eye001.png").write_bytes(b"no image")
    (raw / "eye003.png").write_bytes((raw / "eye003.png").read_bytes()[:200])
    found = predict_images(model, raw, tmp_path / "p.csv")
    assert found.images == 2
    assert [line.partition(":")[0].rpartition("/")[2] for line in found.refused] == ["eye001.png", "eye003.png"]
    assert set(read_predictions(found.predictions, unlabelled=True).image_id) == {"eye000.png", "eye002.png"}


def test_names_that_look_the_same_are_refused_before_anything_is_predicted(model, tmp_path):
    raw = raw_folder(tmp_path / "new", images=2)
    try:
        (raw / "eye000.png").rename(raw / "e\u0301.png")
        (raw / "eye001.png").rename(raw / "\u00e9.png")
    except OSError as error:
        pytest.skip(f"this file system has no such names ({error})")
    if len(list(raw.glob("*.png"))) < 2:
        pytest.skip("this file system has one form of each letter")
    with pytest.raises(InputError, match=r"the files '\\xe9.png' and 'e\\u0301.png' have names that look"):
        predict_images(model, raw, tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("level", [0, 255])
def test_images_of_one_colour_are_predicted_and_noted(model, tmp_path, level):
    raw = raw_folder(tmp_path / "new", images=3)
    Image.new("RGB", (96, 96), (level, level, level)).save(raw / "eye001.png")
    found = predict_images(model, raw, tmp_path / "p.csv")
    assert found.images == 3
    assert found.notes[-1] == "1 of 3 images have one colour and show no retina; the first is eye001.png"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (b"Se\xf1ora.png", r"new/Se\\udcf1ora.png: the name of the file is not UTF-8 text. Rename it."),
        (b"a\nb.png", r"new/a\\nb.png: the name of the file has a line break. Rename it."),
    ],
)
def test_a_file_whose_name_can_be_no_id_is_named_and_the_others_predicted(model, tmp_path, name, says):
    raw = raw_folder(tmp_path / "new", images=2)
    try:
        (raw / "eye001.png").rename(raw / os.fsdecode(name))
    except OSError as error:
        pytest.skip(f"this file system has no such names ({error})")
    found = predict_images(model, raw, tmp_path / "p.csv")
    assert (found.images, len(found.refused)) == (1, 1)
    assert re.search(says, found.refused[0])


def test_a_folder_without_images_is_refused(model, tmp_path):
    (tmp_path / "new").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        predict_images(model, tmp_path / "new", tmp_path / "p.csv")
    (tmp_path / "new" / "a.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="none of 1 files is an image"):
        predict_images(model, tmp_path / "new", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    with pytest.raises(InputError, match=r"cannot write '\.txt'"):
        predict_images(model, tmp_path / "new", tmp_path / "p.txt")


def test_labels_without_files_are_named_and_the_others_predicted(model, tmp_path):
    raw = raw_folder(tmp_path / "new", images=6)
    (raw / "eye002.png").unlink()
    (raw / "extra.png").write_bytes((raw / "eye000.png").read_bytes())
    found = predict_images(model, raw, tmp_path / "p.csv", labels="labels.csv")
    left_out = "1 label without a file, left out (eye002.png)", "1 file without a label, left out (extra.png)"
    assert found.notes[-2:] == left_out
    assert len(read_predictions(found.predictions)) == found.images == 5


def test_labels_map_columns_and_are_scored(model, tmp_path):
    raw = raw_folder(tmp_path / "new", images=12)
    table = (raw / "labels.csv").read_text().replace("image,grade,patient", "file,icdr,mrn")
    (raw / "labels.csv").write_text(table)
    columns = {"image": "file", "grade": "icdr", "patient": "mrn"}
    found = predict_images(model, raw, tmp_path / "p.parquet", labels="labels.csv", columns=columns)
    predictions = read_predictions(found.predictions)
    assert predictions.label.tolist() == [0, 1] * 6
    assert rb.score(predictions, bootstrap=0)["in_domain"].images == 12
