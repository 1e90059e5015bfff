"""The published tasks, at full size, from label files alone; and what tasks do with other data.

The label files are drawn with the true counts by split and grade (`kaggle_layout.py`); the counts asserted here are
those of the released benchmark.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.datasets import aptos, eyepacs
from retinabench.data.ingest.archives import open_files
from retinabench.data.ingest.label_matching import make_records as from_lists
from retinabench.data.records import join
from retinabench.data.registry import TASKS
from retinabench.data.splits import hold_out
from retinabench.data.tasks import SPLITS, load_task
from retinabench.experiments.config import load_run, presets
from retinabench.experiments.run import make_batches
from support.helpers import TINY, make_prepared
from support.kaggle_layout import FELLOWS, GRADES, write_aptos, write_eyepacs


@pytest.fixture(scope="module")
def kaggle(tmp_path_factory):
    """EyePACS with APTOS as its shifted domain."""
    folder = tmp_path_factory.mktemp("kaggle")
    ours = eyepacs.labels(open_files(write_eyepacs(folder / "eyepacs")))
    theirs = aptos.labels(open_files(write_aptos(folder / "aptos")))
    return join([ours, replace(theirs, domain=np.full(len(theirs), "shifted"))])


def make_records(n=200, domain="in_domain", split="train", prefix="p"):
    return from_lists(
        (f"{prefix}{k}" for k in range(n)),
        np.random.default_rng(0).choice(5, n, p=[0.6, 0.1, 0.2, 0.05, 0.05]).tolist(),
        patient_id=(f"{prefix}-patient-{k // 2}" for k in range(n)),
        domain=domain,
        split=split,
    )


def by_grade(records, rows):
    return tuple(np.bincount(records.grade[rows], minlength=5).tolist())


def patients(records, rows):
    return set(records.patient_id[rows].tolist())


def test_country_shift_has_the_published_counts(kaggle):
    splits = TASKS["country_shift"].divide(kaggle)
    assert [len(splits[name]) for name in SPLITS] == [35_126, 10_906, 733, 42_670, 2_929]
    assert by_grade(kaggle, splits["train"]) == (25_810, 2_443, 5_292, 873, 708)
    assert by_grade(kaggle, splits["validation"]) == (8_130, 720, 1_579, 237, 240)
    assert by_grade(kaggle, splits["test"]) == (31_403, 3_042, 6_282, 977, 966)
    shifted = np.concatenate([splits["shifted_validation"], splits["shifted_test"]])
    assert by_grade(kaggle, shifted) == (1_805, 370, 999, 193, 295)


def test_the_aptos_split_goes_by_row(kaggle):
    splits = TASKS["country_shift"].divide(kaggle)
    first = int(np.flatnonzero(kaggle.domain == "shifted")[0])
    assert splits["shifted_test"].tolist() == list(range(first, first + 2_929))
    assert splits["shifted_validation"].tolist() == list(range(first + 2_929, first + 3_662))


@pytest.mark.parametrize(
    ("task", "highest", "counts"),
    [
        ("severity_shift_published", 2, [33_545, 10_429, 477, 40_727, 3_524]),
        ("severity_shift_mild_published", 1, [28_253, 8_850, 2_056, 34_445, 15_098]),
    ],
)
def test_severity_shift_has_the_published_counts(kaggle, task, highest, counts):
    splits = TASKS[task].divide(kaggle)
    assert [len(splits[name]) for name in SPLITS] == counts
    cut = highest + 1
    for name, part in (("train", "train"), ("validation", "Public"), ("test", "Private")):
        assert by_grade(kaggle, splits[name]) == GRADES[part][:cut] + (0,) * (5 - cut)
    assert by_grade(kaggle, splits["shifted_validation"]) == (0,) * cut + GRADES["Public"][cut:]
    both = tuple(a + b for a, b in zip(GRADES["train"], GRADES["Private"], strict=True))
    assert by_grade(kaggle, splits["shifted_test"]) == (0,) * cut + both[cut:]


def test_severity_shift_leaks_307_fellow_eyes_and_the_corrected_task_drops_them_and_nothing_else(kaggle):
    released = TASKS["severity_shift_published"].divide(kaggle)
    corrected = TASKS["severity_shift"].divide(kaggle)
    trained = patients(kaggle, released["train"])
    leaking = [row for row in released["shifted_test"].tolist() if kaggle.patient_id[row] in trained]
    assert len(leaking) == FELLOWS == 307
    from_train = kaggle.split[released["shifted_test"]] == "train"
    assert len(patients(kaggle, released["shifted_test"][from_train])) == 944
    assert sorted({*corrected["shifted_test"].tolist(), *leaking}) == released["shifted_test"].tolist()
    assert len(corrected["shifted_test"]) == 3_524 - 307
    for name in ("train", "validation", "test", "shifted_validation"):
        assert np.array_equal(released[name], corrected[name]), name
    for name in SPLITS[1:]:
        assert not trained & patients(kaggle, corrected[name]), name


def test_the_mild_variant_is_patient_disjoint_too(kaggle):
    splits = TASKS["severity_shift_mild"].divide(kaggle)
    assert not patients(kaggle, splits["train"]) & patients(kaggle, splits["shifted_test"])
    assert TASKS["severity_shift_mild"].referable_from == 1


def test_the_2019_protocol_holds_out_a_fifth_of_the_patients(kaggle):
    splits = TASKS["hold_out_2019"].divide(kaggle)
    assert len(splits["test"]) == 53_576
    assert len(splits["train"]) + len(splits["validation"]) == 35_126
    assert len(splits["shifted_test"]) == 2_929
    # Whole patients of two eyes, a fifth within each of five worst grades: rounding costs at most one of each.
    assert abs(len(splits["validation"]) - 35_126 / 5) <= 10
    assert not patients(kaggle, splits["train"]) & patients(kaggle, splits["validation"])
    share = np.array(by_grade(kaggle, splits["validation"])) / by_grade(kaggle, kaggle.split == "train")
    # Fellow eyes have their own grades: four standard errors of a fifth of the rarest grade's 708 images.
    assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 708)


def test_no_patient_stands_in_two_of_kaggles_parts(kaggle):
    mine = kaggle.domain == "in_domain"
    sides = [patients(kaggle, mine & (kaggle.split == split)) for split in ("train", "validation", "test")]
    assert [len(side) for side in sides] == [17_563, 5_453, 21_335]
    assert len(set.union(*sides)) == 44_351
    eyes = kaggle.eye[mine]
    assert (eyes == "left").sum() == (eyes == "right").sum() == 44_351


def test_hold_out_keeps_patients_together_and_grades_in_proportion():
    records = make_records(2000)
    rest, held = hold_out(records, np.arange(2000))
    assert sorted([*rest, *held]) == list(range(2000))
    assert not set(records.patient_id[rest]) & set(records.patient_id[held])
    assert abs(len(held) / 2000 - 0.2) < 0.02
    # Stratified by each patient's worst grade: every grade gives its fifth, give or take rounding.
    worst = np.maximum(records.grade[::2], records.grade[1::2])
    held_patients = np.unique(held // 2)
    for grade in range(5):
        of_grade = (worst == grade).sum()
        assert abs((worst[held_patients] == grade).sum() - of_grade / 5) <= 2


def test_hold_out_does_not_depend_on_the_order_of_rows():
    records = make_records(400)
    mixed = np.random.default_rng(1).permutation(400)
    assert set(hold_out(records, np.arange(400))[1]) == set(hold_out(records, mixed)[1])


def test_country_shift_never_trains_or_selects_on_the_shifted_domain():
    parts = [
        make_records(200, split="train", prefix="a"),
        make_records(40, split="validation", prefix="b"),
        make_records(40, split="test", prefix="c"),
        make_records(20, "shifted", "validation", "d"),
        make_records(30, "shifted", "test", "e"),
    ]
    records = join(parts)
    splits = TASKS["country_shift"].divide(records)
    assert {name: len(rows) for name, rows in splits.items()} == {
        "train": 200, "validation": 40, "test": 40, "shifted_validation": 20, "shifted_test": 30,
    }  # fmt: skip
    assert set(records.domain[splits["train"]]) == {"in_domain"}
    assert set(records.domain[splits["shifted_test"]]) == {"shifted"}


def test_country_shift_without_shifted_images_says_what_to_use():
    with pytest.raises(InputError, match="in_domain"):
        TASKS["country_shift"].divide(make_records())


def test_an_unknown_task_names_the_nearest(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'country_shift'"):
        load_task(tmp_path, "contry_shift")


def prepared(tmp_path, name="data", **options):
    return make_prepared(tmp_path / name, **options)


def test_labels_follow_the_task(tmp_path):
    folder = prepared(tmp_path)
    usual, mild = load_task(folder, "severity_shift"), load_task(folder, "severity_shift_mild")
    for task, least in ((usual, 2), (mild, 1)):
        for name in task.splits:
            part = task[name]
            assert np.array_equal(part.label, part.grade >= least), (task.name, name)
    assert (usual["shifted_test"].label == 1).all()
    assert (mild["train"].grade <= 1).all()
    assert set(mild["train"].label) == {0, 1}


@pytest.mark.parametrize("task", ["severity_shift", "severity_shift_mild"])
def test_training_and_validation_see_the_labels_of_the_task(tmp_path, task):
    loaded = load_task(prepared(tmp_path), task)
    run = load_run(None, TINY, data=str(tmp_path / "data"), task=task)
    batches = make_batches(run, loaded, torch.device("cpu"))
    positive = sum(int(labels.sum()) for _, labels in batches.epoch(0))
    assert (
        positive == loaded["train"].label.sum() == (loaded["train"].grade >= TASKS[task].referable_from).sum()
    )
    held = torch.cat([labels for _, labels in batches.held_out()])
    assert np.array_equal(held.numpy(), loaded["validation"].label)


def test_the_corrected_task_says_what_it_leaves_out(tmp_path):
    folder = prepared(tmp_path)
    corrected, released = load_task(folder, "severity_shift"), load_task(folder, "severity_shift_published")
    fewer = len(released.splits["shifted_test"]) - len(corrected.splits["shifted_test"])
    assert fewer > 0
    said = (
        f"{fewer} of {len(released.splits['shifted_test'])} images of the split 'shifted_test' are left out"
    )
    assert any(said in note for note in corrected.notes)
    assert any("of the split 'shifted_test' are in 'train' as well" in note for note in released.notes)
    assert not any("are in 'train' as well" in note for note in corrected.notes)


def test_without_test_split_patients_are_held_out_and_it_is_said(tmp_path):
    task = load_task(prepared(tmp_path, parts=(("in_domain", "train", 200),)), "in_domain")
    sides = [patients(task.records, task.splits[name]) for name in ("train", "validation", "test")]
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
    about.write_text(about.read_text().replace("{", '{"settings": {"columns": {"label": "referable"}},', 1))
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


def test_records_from_lists_take_one_word_for_all():
    records = from_lists(["a", "b"], [0, 4], split="test")
    assert records.patient_id.tolist() == ["a", "b"]
    assert records.split.tolist() == ["test", "test"]
    assert records.domain.tolist() == ["in_domain", "in_domain"]
