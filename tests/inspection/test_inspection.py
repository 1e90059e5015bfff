"""Counts of a data set against counts by hand."""

from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import median_abs_deviation, norm

from retinabench.data.dataset import Records, make_records
from retinabench.data.prepared import open_prepared
from retinabench.inspection import inspection
from retinabench.inspection.duplicates import BadFile, CopyGroup, CopyPair, OriginalFiles
from retinabench.inspection.inspection import Inspection, Leak, Outlier, camera_rows, leaks, robust_z, split_names
from support.helpers import make_prepared


def study(n=400, seed=0):
    """Patients and eyes at random over five splits: most patients leak."""
    random = np.random.default_rng(seed)
    domain = random.choice(["in_domain", "shifted"], n)
    patients = [f"p{k}" for k in random.integers(0, n // 2, n)]
    eyes, grades = random.choice(["left", "right", ""], n), random.integers(0, 5, n)
    splits = random.choice(["train", "validation", "test"], n)
    return make_records((f"i{k}" for k in range(n)), grades, patient_id=patients, eye=eyes, split=splits, domain=domain)


def test_leaks_equal_a_count_by_hand():
    records = study()
    names = split_names(records)
    held = defaultdict(lambda: defaultdict(list))
    for name, patient, eye in zip(names, records.patient_id, records.eye, strict=True):
        held[name][patient].append(eye)
    found = {leak.splits: leak for leak in leaks(records)}
    order = ["train", "validation", "test", "shifted train", "shifted validation", "shifted test"]
    for first, second in combinations(order, 2):
        both = set(held[first]) & set(held[second])
        eyes = [(set(held[first][p]), set(held[second][p])) for p in both]
        fellow = sum(("left" in a and "right" in b) or ("right" in a and "left" in b) for a, b in eyes)
        leak = found[first, second]
        assert (leak.patients, leak.fellow_eyes) == (len(both), fellow)
        assert leak.images == sum(len(held[second][p]) for p in both)
    # No leak where patients keep to their split.
    apart = Records(**{**vars(records), "patient_id": np.char.add(split_names(records), records.patient_id)})
    assert list(leaks(apart)) == []


def test_splits_count_images_patients_and_grades():
    records = study()
    classes = inspection.Classes("grade", inspection.GRADES, records.grade)
    rows = {row.split: row for row in inspection.split_rows(records, classes)}
    assert sum(row.images for row in rows.values()) == len(records)
    mine = (records.domain == "shifted") & (records.split == "test")
    assert rows["shifted test"].patients == len(set(records.patient_id[mine]))
    assert rows["shifted test"].classes == tuple((records.grade[mine] == grade).sum() for grade in range(5))
    assert rows["shifted test"].referable == (records.grade[mine] >= 2).mean()


def test_cameras_are_sizes_by_domain_the_commonest_first():
    records = study(6)
    records = Records(**{**vars(records), "domain": np.array(["in_domain"] * 4 + ["shifted"] * 2),
                         "grade": np.array([0, 4, 0, 0, 2, 0], np.int8)})  # fmt: skip
    width = np.array([300, 400, 400, 0, 300, 300])
    files = OriginalFiles(np.full(6, ""), width, np.where(width > 0, 200, 0), np.array([10, 20, 40, 9, 7, 9]), ())
    rows = [(r.domain, r.width, r.images, r.median_bytes, r.referable) for r in camera_rows(records, files)]
    assert rows == [("in_domain", 400, 2, 30, 0.5), ("in_domain", 300, 1, 10, 0.0), ("shifted", 300, 2, 8, 0.5)]
    assert list(camera_rows(records, None)) == []


def test_robust_z_is_the_distance_from_the_median_in_units_of_the_mad():
    values = np.random.default_rng(0).normal(5, 2, 501)
    expected = (values - np.median(values)) / median_abs_deviation(values) * norm.ppf(0.75)
    # The published constant 0.6745 rounds norm.ppf(3/4) = 0.67449.
    assert robust_z(values) == pytest.approx(expected, rel=2e-5)

    # Most values equal: the mean absolute deviation replaces the MAD. All equal: no outlier.
    assert robust_z(np.array([7.0] * 9 + [17.0])) == pytest.approx([0.0] * 9 + [10 / 1.2533])
    assert (robust_z(np.full(5, 3.0)) == 0).all()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    folder: Path = make_prepared(tmp_path_factory.mktemp("plain") / "data")
    return replace(inspection.inspect_data(open_prepared(folder), read_images=False), files=None, leaks=[])


def sentences(found: Inspection) -> dict[str, tuple[str, str]]:
    return {one.lead: (one.text, one.mood) for one in inspection.findings(found)}


def group(splits: tuple[str, ...], classes: tuple[int, ...], kind: str = "equal bytes") -> CopyGroup:
    return CopyGroup(tuple(range(len(splits))), kind, (CopyPair((0, 1), kind),), splits, classes)


def test_copies_are_not_denied_where_nothing_was_compared(plain: Inspection):
    assert "No copies." not in sentences(plain)
    text, mood = sentences(replace(plain, read_images=True))["No copies."]
    assert (text, mood) == ("Nothing appears twice among the images.", "good")


def test_copies_across_splits_and_conflicts_are_counted(plain: Inspection):
    groups = [
        group(("train", "test"), (0, 1)), group(("train", "train"), (2, 2)), group(("validation", "train"), (3, 3)),
        group(("train", "train"), (1, 2), "same retina"),
    ]  # fmt: skip
    found = sentences(replace(plain, groups=groups))
    assert found["Copies."] == ("4 groups of images that show the same (3 equal bytes, 1 same retina).", "")
    expected = "2 groups with copies in different splits (1 in train and test, 1 in train and validation): "
    assert found["Copies across splits."][0].startswith(expected)
    # Of one retina in other pixels the grades may differ, as between visits: no grade is called wrong.
    assert found["Conflicting grades."][0].startswith("1 group whose copies carry different grades")
    text, mood = found["Different grades of one retina."]
    assert (text[:35], mood) == ("1 group of images of one retina, a ", "")


def test_patients_in_two_splits_bad_files_and_outliers(plain: Inspection):
    leaks = [Leak(("train", "test"), 1200, 1, 3)]
    files = OriginalFiles(np.array([""]), *(np.zeros(1, np.int64) for _ in range(3)), (BadFile("a", "b", "c"),))
    outliers = [Outlier(5, "brightness", -9.0, "dark"), Outlier(5, "sharpness", -4.0, "blurred")]
    found = sentences(replace(plain, leaks=leaks, files=files, outliers=outliers))
    expected = "1,200 patients in both train and test, 3 of them by a fellow eye: 1 image of test."
    assert found["Patients in two splits."] == (expected, "bad")
    assert found["Not prepared."][0] == "1 image of the data set could not be read or was left out."
    assert found["Outliers."][0].startswith("1 image with a robust z-score beyond ±3.5")
