"""APTOS as downloaded, and the split by row."""

import pytest

from retinabench.core.errors import InputError
from retinabench.data.archives import open_files
from retinabench.data.datasets import aptos
from retinabench.data.labels import Survey
from support.kaggle_layout import write_aptos


def test_aptos_from_one_zip(tmp_path):
    survey = Survey()
    records = aptos.records(write_aptos(tmp_path, "zip"), survey=survey)
    assert len(records) == 3_662
    assert sorted(survey.no_label) == ["test_images/x.png", "test_images/y.png"]
    assert survey.lines() == ["2 files without a label, left out (test_images/x.png, test_images/y.png)"]


def test_another_number_of_aptos_rows_cannot_give_the_published_split(tmp_path):
    (tmp_path / "train.csv").write_text("id_code,diagnosis\nab,1\ncd,4\n")
    with pytest.raises(InputError, match="has 2 rows, not 3,662: the published split goes by row number"):
        aptos.labels(open_files(tmp_path))
    assert set(aptos.labels(open_files(tmp_path), "test").split) == {"test"}
