"""Messidor-2: ungradable images, and pairs of eyes."""

import zipfile

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import messidor
from retinabench.data.labels import Survey
from support.kaggle_layout import drawn

MESSIDOR = """image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable
20051020_1_PP.png,0,0,1
20051020_2_PP.png,3,1,1
IM0001.jpg,2,0,1
IM0002.jpg,,,0
"""


def write_messidor(root, pairs=True):
    root.mkdir(exist_ok=True)
    (root / "messidor_data.csv").write_text(MESSIDOR)
    if pairs:
        lines = ["left;right", "20051020_1_PP.png;20051020_2_PP.png", "IM0001.JPG;IM0002.JPG"]
        (root / "messidor-2.csv").write_text("\r\n".join(lines))
    with zipfile.ZipFile(root / "IMAGES.zip", "w") as archive:
        for name in ("20051020_1_PP.png", "20051020_2_PP.png", "IM0001.JPG", "IM0002.JPG"):
            archive.writestr(f"IMAGES/{name}", drawn(name.lower(), 0))
    return root


def test_messidor_leaves_out_the_ungradable_and_pairs_the_eyes(tmp_path):
    survey = Survey()
    records = messidor.records(write_messidor(tmp_path), survey=survey)
    assert records.grade.tolist() == [0, 3, 2]
    assert records.eye.tolist() == ["left", "right", "left"]
    assert records.patient_id[0] == records.patient_id[1] != records.patient_id[2]
    assert set(records.split) == {"test"}
    assert records.source[2] == "IMAGES/IM0001.JPG"  # the list says .jpg
    assert survey.lines() == ["1 labelled image left out: ungradable (IM0002.jpg)"]


def test_messidor_without_pairs_says_what_that_means(tmp_path):
    survey = Survey()
    records = messidor.records(write_messidor(tmp_path, pairs=False), survey=survey)
    assert len(np.unique(records.patient_id)) == 3
    assert "the two eyes of a patient count as two patients" in survey.notes[0]
    text = (tmp_path / "messidor_data.csv").read_text()
    (tmp_path / "messidor_data.csv").write_text(text.replace("20051020_2_PP.png,3", "20051020_2_PP.png,"))
    with pytest.raises(InputError, match="row 2, column 'adjudicated_dr_grade': is ''"):
        messidor.records(tmp_path)
