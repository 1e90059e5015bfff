"""The findings of an inspection, from known counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from retinabench.data.prepared.folder import open_prepared
from retinabench.inspection.counts import Leak
from retinabench.inspection.duplicates import CopyGroup, CopyPair
from retinabench.inspection.files import BadFile, OriginalFiles
from retinabench.inspection.inspection import Inspection, findings, inspect_data
from retinabench.inspection.outliers import Outlier
from support.helpers import make_prepared


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    """A data set of which only the tables were read, and nothing was found."""
    folder: Path = make_prepared(tmp_path_factory.mktemp("plain") / "data")
    return replace(inspect_data(open_prepared(folder), read_images=False), files=None, leaks=[])


def sentences(found: Inspection) -> dict[str, tuple[str, str]]:
    return {one.lead: (one.text, one.mood) for one in findings(found)}


def group(splits: tuple[str, ...], classes: tuple[int, ...], kind: str = "equal bytes") -> CopyGroup:
    return CopyGroup(tuple(range(len(splits))), kind, (CopyPair((0, 1), kind),), splits, classes)


def test_copies_are_not_denied_where_nothing_was_compared(plain: Inspection):
    assert "No copies." not in sentences(plain)
    text, mood = sentences(replace(plain, read_images=True))["No copies."]
    assert (text, mood) == ("Nothing occurs twice among the images.", "good")


def test_copies_across_splits_and_conflicts_are_counted(plain: Inspection):
    groups = [
        group(("train", "test"), (0, 1)), group(("train", "train"), (2, 2)),
        group(("train", "train"), (1, 2), "same retina"),
    ]  # fmt: skip
    found = sentences(replace(plain, groups=groups))
    assert found["Copies."] == ("3 groups of images that show the same (2 equal bytes, 1 same retina).", "")
    assert found["Copies across splits."][0].startswith("1 group with copies in different splits")
    # Of one retina in other pixels the grades may differ, as between visits: no grade is called wrong.
    assert found["Conflicting grades."][0].startswith("1 group whose copies carry different grades")
    text, mood = found["Different grades of one retina."]
    assert (text[:35], mood) == ("1 group of images of one retina, a ", "")


def test_patients_in_two_splits_bad_files_and_outliers(plain: Inspection):
    leaks = [Leak(("train", "test"), 1200, 1, 3)]
    files = OriginalFiles(
        np.array([""]), *(np.zeros(1, np.int64) for _ in range(3)), (BadFile("a", "b", "c"),)
    )
    outliers = [Outlier(5, "brightness", -9.0, "dark"), Outlier(5, "sharpness", -4.0, "blurred")]
    found = sentences(replace(plain, leaks=leaks, files=files, outliers=outliers))
    expected = "1,200 patients in both train and test, 3 of them by a fellow eye: 1 image of test."
    assert found["Patients in two splits."] == (expected, "bad")
    assert found["Not prepared."][0] == "1 image of the data set could not be read or was left out."
    assert found["Outliers."][0].startswith("1 image with a robust z-score beyond ±3.5")
