import json

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.tasks import SPLITS, expected_sizes, load_task
from retinabench.experiments.config import load_run, presets
from retinabench.experiments.run import make_batches
from support.helpers import TINY, make_prepared


def prepared(tmp_path, name="data", **options):
    return make_prepared(tmp_path / name, **options)


@pytest.mark.parametrize(("task", "least"), [("severity_shift", 2), ("severity_shift_mild", 1)])
def test_every_split_training_and_validation_see_the_labels_of_the_task(tmp_path, task, least):
    loaded = load_task(prepared(tmp_path), task)
    for name in loaded.splits:
        assert np.array_equal(loaded[name].label, loaded[name].grade >= least), name
    assert (loaded["shifted_test"].label == 1).all()
    assert (loaded["train"].grade <= least).all()
    assert set(loaded["train"].label) == {0, 1}
    run = load_run(None, TINY, data=str(tmp_path / "data"), task=task)
    batches = make_batches(run, loaded, torch.device("cpu"))
    assert sum(int(labels.sum()) for _, labels in batches.epoch(0)) == loaded["train"].label.sum()
    held = torch.cat([labels for _, labels in batches.rows(batches.validation)])
    assert np.array_equal(held.numpy(), loaded["validation"].label)
    assert np.array_equal(batches.targets(batches.train).numpy(), loaded["train"].label)


def test_the_corrected_task_says_what_it_leaves_out(tmp_path):
    folder = prepared(tmp_path)
    corrected, released = load_task(folder, "severity_shift"), load_task(folder, "severity_shift_published")
    fewer = len(released.splits["shifted_test"]) - len(corrected.splits["shifted_test"])
    assert fewer > 0
    said = f"{fewer} of {len(released.splits['shifted_test'])} images of the split 'shifted_test' are left out"
    assert any(said in note for note in corrected.notes)
    assert any("of the split 'shifted_test' are in 'train' as well" in note for note in released.notes)
    assert not any("are in 'train' as well" in note for note in corrected.notes)


def test_without_test_split_patients_are_held_out_and_it_is_said(tmp_path):
    task = load_task(prepared(tmp_path, parts=(("in_domain", "train", 200),)), "in_domain")
    sides = [set(task.records.patient_id[task.splits[name]].tolist()) for name in ("train", "validation", "test")]
    assert [len(side) for side in sides] == pytest.approx([64, 16, 20], abs=3)
    assert len(set.union(*sides)) == sum(map(len, sides)) == 100
    assert any("'test' come from the data set's own training split" in note for note in task.notes)


def test_an_incomplete_eyepacs_is_said_to_be_incomplete(tmp_path):
    folder = prepared(tmp_path)
    about = folder / "dataset.json"
    about.write_text(about.read_text().replace('"patches"', '"eyepacs"'))
    notes = load_task(folder, "country_shift").notes
    assert "the split 'train' holds 64 images; the complete data set gives 35,126" in notes


def test_labels_without_grades_are_refused_where_grades_divide(tmp_path):
    folder = prepared(tmp_path)
    about = folder / "dataset.json"
    content = json.loads(about.read_text())
    content["settings"] = {**content.get("settings", {}), "columns": {"label": "referable"}}
    about.write_text(json.dumps(content))
    with pytest.raises(InputError, match="labels without grades"):
        load_task(folder, "severity_shift")
    part = load_task(folder, "country_shift")["test"]
    assert part.grade is None
    assert set(part.label) == {0, 1}


def test_published_presets_take_the_released_task():
    for name in presets():
        if name.startswith("published/"):
            expected = "severity_shift_published" if "severity" in name else "country_shift"
            assert load_run(name, data="d").task == expected, name


def test_sizes_that_are_known_before_the_data_are_there():
    published = dict(zip(SPLITS, (35_126, 10_906, 733, 42_670, 2_929), strict=True))
    assert expected_sizes("country_shift", "eyepacs", "aptos") == published
    # The published numbers of this task, from the counts by grade.
    assert expected_sizes("severity_shift_mild_published", "eyepacs") == dict(
        zip(SPLITS, (28_253, 8_850, 2_056, 34_445, 15_098), strict=True)
    )
    by_grade = expected_sizes("severity_shift_mild", "eyepacs")
    assert (by_grade["train"], by_grade["shifted_validation"]) == (28_253, 2_056)
    assert expected_sizes("in_domain", "idrid")["test"] == 103
    with pytest.raises(InputError, match="images of the data set 'folder' is not known before"):
        expected_sizes("in_domain", "folder")
