"""Counts of a data set against counts by hand."""

from collections import defaultdict
from itertools import combinations

import numpy as np

from retinabench.data.records import Records
from retinabench.inspection.counts import GRADES, Classes, camera_rows, leaks, split_names, split_rows
from retinabench.inspection.files import OriginalFiles


def study(n=400, seed=0):
    """Patients and eyes at random over five splits: most patients leak."""
    random = np.random.default_rng(seed)
    domain = random.choice(["in_domain", "shifted"], n)
    return Records(
        image_id=np.array([f"i{k}" for k in range(n)]),
        patient_id=np.array([f"p{k}" for k in random.integers(0, n // 2, n)]),
        eye=random.choice(["left", "right", ""], n),
        grade=random.integers(0, 5, n).astype(np.int8),
        domain=domain,
        split=random.choice(["train", "validation", "test"], n),
        source=np.array([str(k) for k in range(n)]),
        p_referable=np.full(n, np.nan),
    )


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


def test_no_leak_where_patients_keep_to_their_split():
    records = study()
    apart = Records(**{**vars(records), "patient_id": np.char.add(split_names(records), records.patient_id)})
    assert list(leaks(apart)) == []


def test_splits_count_images_patients_and_grades():
    records = study()
    rows = {row.split: row for row in split_rows(records, Classes("grade", GRADES, records.grade))}
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
    files = OriginalFiles(
        np.full(6, ""), width, np.where(width > 0, 200, 0), np.array([10, 20, 40, 9, 7, 9]), ()
    )
    rows = [(r.domain, r.width, r.images, r.median_bytes, r.referable) for r in camera_rows(records, files)]
    assert rows == [
        ("in_domain", 400, 2, 30, 0.5),
        ("in_domain", 300, 1, 10, 0.0),
        ("shifted", 300, 2, 8, 0.5),
    ]
    assert list(camera_rows(records, None)) == []
