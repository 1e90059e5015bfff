"""How records are divided into the splits of a task.

Every division is a pure function of the records, without random numbers, so that the label files alone decide it. A new
task is one function, one `Division` and one name in `registry.TASKS`. Cross-validation (`fold_splits`) divides the images of
any task anew, by patient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import MODERATE, Records, Rows, Splits

HOLD_OUT = 0.2  # of the training patients, where a data set has no validation or test split of its own


@dataclass(frozen=True)
class Division:
    """One task: its splits, and which grades are referable in it."""

    divide: Callable[[Records], Splits]
    referable_from: int = MODERATE
    by_grade: bool = False
    repairs: Callable[[Records], Splits] | None = None
    published: tuple[int, int, int, int, int] | None = None


def in_domain(records: Records) -> Splits:
    """Train, validate and test on one population, by the data set's own split.

    A data set without a test or validation split gives a fifth of its training patients for each, stratified by grade.
    """
    mine = records.domain == "in_domain"
    train, validation, test = (
        np.flatnonzero(mine & (records.split == split)) for split in ("train", "validation", "test")
    )
    if test.size == 0:
        train, test = hold_out(records, train)
    if validation.size == 0:
        train, validation = hold_out(records, train)
    return {"train": train, "validation": validation, "test": test}


def country_shift(records: Records) -> Splits:
    """Train and validate on one population; test on it and on another country's cameras (domain 'shifted')."""
    splits = in_domain(records) | _shifted(records)
    if splits["shifted_test"].size == 0:
        hint = "Name a second data set with --shifted, or use the task 'in_domain'."
        raise InputError("country_shift needs test images of the domain 'shifted'", hint=hint)
    return splits


def severity_shift(records: Records) -> Splits:
    """Train on no, mild and moderate retinopathy; the shifted sets show severe and proliferative disease.

    The shifted test set joins the severe images of the training and test splits, as released; but images of patients
    who are also in the training set are left out (in EyePACS 307 of 3,524).
    """
    return patient_disjoint(records, severity_shift_published(records))


def severity_shift_published(records: Records) -> Splits:
    """Severity Shift as released: fellow eyes of training images are in the shifted test set."""
    return _by_severity(records, highest=2)


def severity_shift_mild(records: Records) -> Splits:
    """The released variant: train on no and mild retinopathy, referable from grade 1; without leaking patients."""
    return patient_disjoint(records, severity_shift_mild_published(records))


def severity_shift_mild_published(records: Records) -> Splits:
    """The variant as released, with leaking patients."""
    return _by_severity(records, highest=1)


def hold_out_2019(records: Records) -> Splits:
    """The protocol of the first edition's paper (Filos et al. 2019): a fifth of the training images validates.

    All 53,576 images of Kaggle's test are the test set. The paper does not say how the fifth was drawn; here whole
    patients are held out, stratified by grade, since an image-level draw would put fellow eyes on both sides.
    """
    mine = records.domain == "in_domain"
    train, validation = hold_out(records, np.flatnonzero(mine & (records.split == "train")))
    test = np.flatnonzero(mine & (records.split != "train"))
    return {"train": train, "validation": validation, "test": test} | _shifted(records)


def _shifted(records: Records) -> Splits:
    return {
        f"shifted_{split}": np.flatnonzero((records.domain == "shifted") & (records.split == split))
        for split in ("validation", "test")
    }


def _by_severity(records: Records, highest: int) -> Splits:
    """Keep grades up to `highest` in domain; the others are the shifted sets, those of training for the test."""
    whole = in_domain(records)
    severe = {name: rows[records.grade[rows] > highest] for name, rows in whole.items()}
    splits = {name: rows[records.grade[rows] <= highest] for name, rows in whole.items()}
    splits["shifted_validation"] = severe["validation"]
    splits["shifted_test"] = np.sort(np.concatenate([severe["train"], severe["test"]]))
    return splits


def patient_disjoint(records: Records, splits: Splits) -> Splits:
    """Drop from every other split the images of patients who are in `train`."""
    trained = np.unique(records.patient_id[splits["train"]])
    return {
        name: rows if name == "train" else rows[~np.isin(records.patient_id[rows], trained)]
        for name, rows in splits.items()
    }


def hold_out(records: Records, rows: Rows) -> tuple[Rows, Rows]:
    """Divide `rows` by patient into (rest, held out): of each worst grade the share `HOLD_OUT` of the patients, who are ordered by their ids."""
    patients, of_row, worst = _patients(records, rows)
    order = np.lexsort((patients, worst))
    out = np.zeros(len(patients), bool)
    step = round(1 / HOLD_OUT)
    out[order[step // 2 :: step]] = True
    return rows[~out[of_row]], rows[out[of_row]]


def fold_splits(records: Records, splits: Splits, folds: int, repeat: int, fold: int) -> Splits:
    """Divide the in-domain images of a task anew: one of K folds of the patients tests, the others train and validate.

    The patients are dealt out at random, in the order of their worst grade, so that every fold has its share of each grade. Of
    the patients that do not test, `hold_out` validates. A shifted image goes with its patient where that patient is in domain as
    well, as one in a folder of damaged copies is; the others keep their split.
    """
    pool = np.sort(np.concatenate([splits[name] for name in ("train", "validation", "test")]))
    patients, of_row, worst = _patients(records, pool)
    if len(patients) < folds:
        raise InputError(f"{len(patients)} patients cannot fill {folds} folds")
    order = np.lexsort((numpy_generator(repeat, "folds", folds).permutation(len(patients)), worst))
    fold_of = np.empty(len(patients), np.int64)
    fold_of[order] = np.arange(len(patients)) % folds
    tests = fold_of[of_row] == fold
    train, validation = hold_out(records, pool[~tests])
    found = {"train": train, "validation": validation, "test": pool[tests]}
    foreign = {name: rows for name, rows in splits.items() if name.startswith("shifted")}
    others = np.unique(np.concatenate([np.flatnonzero(records.domain == "shifted"), *foreign.values()]))
    others = others[np.isin(records.patient_id[others], patients)]
    for split in ("validation", "test"):
        rows = foreign.get(f"shifted_{split}", np.empty(0, np.intp))
        own = rows[~np.isin(records.patient_id[rows], patients)]
        taken = others[np.isin(records.patient_id[others], records.patient_id[found[split]])]
        found[f"shifted_{split}"] = np.sort(np.concatenate([own, taken]))
    return found


def _patients(records: Records, rows: Rows) -> tuple[NDArray[np.str_], NDArray[np.intp], NDArray[np.int64]]:
    """The patients of rows, in the order of their ids, the patient of each row, and every patient's worst grade."""
    patients, of_row = np.unique(records.patient_id[rows], return_inverse=True)
    worst = np.zeros(len(patients), np.int64)
    np.maximum.at(worst, of_row, records.grade[rows].astype(np.int64))
    return patients, of_row, worst


COUNTRY_SHIFT = Division(country_shift, published=(35_126, 10_906, 733, 42_670, 2_929))
IN_DOMAIN = Division(in_domain)
SEVERITY_SHIFT = Division(
    severity_shift, by_grade=True, repairs=severity_shift_published, published=(33_545, 10_429, 477, 40_727, 3_217)
)
SEVERITY_SHIFT_PUBLISHED = Division(
    severity_shift_published, by_grade=True, published=(33_545, 10_429, 477, 40_727, 3_524)
)
SEVERITY_SHIFT_MILD = Division(
    severity_shift_mild, referable_from=1, by_grade=True, repairs=severity_shift_mild_published
)
SEVERITY_SHIFT_MILD_PUBLISHED = Division(
    severity_shift_mild_published, referable_from=1, by_grade=True, published=(28_253, 8_850, 2_056, 34_445, 15_098)
)
HOLD_OUT_2019 = Division(hold_out_2019)
