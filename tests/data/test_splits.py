"""The divisions of the tasks, at full size, from label files alone. The label files are drawn with the true counts by split and
grade (`kaggle_layout.py`); the counts asserted here are those of the released benchmark."""

from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.archives import open_files
from retinabench.data.dataset import join
from retinabench.data.dataset import make_records as from_lists
from retinabench.data.label_tables import definition, labels
from retinabench.data.registry import TASKS
from retinabench.data.splits import fold_splits, hold_out
from retinabench.data.tasks import SPLITS
from support.kaggle_layout import FELLOWS, GRADES, write_aptos, write_eyepacs


@pytest.fixture(scope="module")
def kaggle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kaggle")
    ours = labels(definition("eyepacs"), open_files(write_eyepacs(folder / "eyepacs")))
    theirs = labels(definition("aptos"), open_files(write_aptos(folder / "aptos")))
    return join([ours, replace(theirs, domain=np.full(len(theirs), "shifted"))])


def make_records(n=200, domain="in_domain", split="train", prefix="p"):
    return from_lists(
        (f"{prefix}{k}" for k in range(n)),
        np.random.default_rng(0).choice(5, n, p=[0.6, 0.1, 0.2, 0.05, 0.05]).tolist(),
        patient_id=(f"{prefix}-patient-{k // 2}" for k in range(n)), domain=domain, split=split,
    )  # fmt: skip


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
    assert set(kaggle.domain[shifted]) == {"shifted"}
    rows = np.concatenate([splits[name] for name in ("train", "validation", "test")])
    assert set(kaggle.domain[rows]) == {"in_domain"}


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


def test_the_2019_protocol_holds_out_a_fifth_of_the_patients(kaggle):
    splits = TASKS["hold_out_2019"].divide(kaggle)
    assert len(splits["test"]) == 53_576
    assert len(splits["train"]) + len(splits["validation"]) == 35_126
    assert len(splits["shifted_test"]) == 2_929
    # Whole patients of two eyes, a fifth within each of five worst grades: rounding costs at most one of each.
    assert abs(len(splits["validation"]) - 35_126 / 5) <= 10
    assert not patients(kaggle, splits["train"]) & patients(kaggle, splits["validation"])


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


def test_country_shift_without_shifted_images_says_what_to_use():
    with pytest.raises(InputError, match="in_domain"):
        TASKS["country_shift"].divide(make_records())


def test_folds_test_every_patient_once_and_share_the_grades():
    records = make_records(200)
    splits = TASKS["in_domain"].divide(records)
    tested = []
    for fold in range(5):
        found = fold_splits(records, splits, folds=5, repeat=0, fold=fold)
        sets = [patients(records, found[name]) for name in ("train", "validation", "test")]
        assert sum(map(len, sets)) == len(set.union(*sets)) == 100
        assert sum(len(found[name]) for name in ("train", "validation", "test")) == 200
        assert len(sets[2]) == 20
        tested.append(found["test"])
    assert np.array_equal(np.sort(np.concatenate(tested)), np.arange(200))
    worst = [sorted(max(records.grade[records.patient_id == p]) for p in patients(records, r)) for r in tested]
    counts = np.array([np.bincount(one, minlength=5) for one in worst])
    assert (np.ptp(counts, axis=0) <= 1).all()
    again = fold_splits(records, splits, folds=5, repeat=0, fold=0)["test"]
    assert np.array_equal(again, tested[0])
    assert not np.array_equal(fold_splits(records, splits, folds=5, repeat=1, fold=0)["test"], tested[0])
    with pytest.raises(InputError, match="100 patients cannot fill 101 folds"):
        fold_splits(records, splits, folds=101, repeat=0, fold=0)


def test_shifted_images_go_with_their_patient_or_keep_their_split():
    ours = make_records(40)
    copies = replace(ours, image_id=np.char.add("x", ours.image_id), domain=np.full(40, "shifted"))
    foreign = make_records(10, domain="shifted", split="test", prefix="q")
    records = join([ours, copies, foreign])
    splits = TASKS["country_shift"].divide(records)
    found = fold_splits(records, splits, folds=4, repeat=0, fold=1)
    shifted = patients(records, found["shifted_test"])
    assert shifted == patients(records, found["test"]) | patients(foreign, np.arange(10))
    assert patients(records, found["shifted_validation"]) == patients(records, found["validation"])
