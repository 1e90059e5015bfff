"""A predictions file is complete, has the benchmark's labels and splits, and no setting of it was chosen on the test images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import frozen_benchmark, truth_of
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard import checking
from support.board_entries import NAME, noisy

BENCHMARK = frozen_benchmark(NAME)


def with_rows(ids, split="validation"):
    """The test images, and one more row for each id."""
    good, truth = noisy(1.0), truth_of(NAME)
    rows = np.searchsorted(truth.image_id, ids)
    return Predictions(
        [*good.image_id, *ids],
        [*good.label, *truth.label[rows]],
        [*good.prob, *([0.4] * len(ids))],
        domain=[*good.domain, *truth.domain[rows]],
        split=[*good.split, *([split] * len(ids))],
    )


def test_a_good_file_gets_the_order_grades_and_patients_of_the_truth(tmp_path) -> None:
    good, truth = noisy(1.0), truth_of(NAME)
    shuffled = good.take(np.random.default_rng(0).permutation(len(good)))
    sampled = replace(shuffled, probs=np.repeat(shuffled.probs, 4, axis=1))
    write_predictions(sampled, tmp_path / "a.parquet")
    found = checking.read_checked(tmp_path / "a.parquet", BENCHMARK)
    assert np.array_equal(found.image_id, truth.image_id[truth.test])
    assert np.array_equal(found.patient_id, truth.patient_id[truth.test])
    assert found.samples == 1
    assert np.array_equal(found.prob, good.prob), "the mean over the samples, exactly"


def test_validation_images_may_be_there_and_come_last() -> None:
    found = checking.checked(with_rows(["in_domain-001600"]), BENCHMARK)
    assert (found.image_id[-1], found.split[-1]) == ("in_domain-001600", "validation")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda p: p.take(np.arange(len(p) - 2)), "lacks 2 of the 1,000 test images"),
        (lambda p: replace(p, label=1 - p.label, grade=None), "column 'label'"),
        (lambda p: replace(p, domain=np.full(len(p), "in_domain")), "column 'domain'"),
        (lambda p: replace(p, split=np.full(len(p), "validation")), "column 'split'"),
        (lambda p: replace(p, image_id=[f"x{k}" for k in range(len(p))]), "is no image of"),
        (lambda p: replace(p, probs=p.label.astype(float)), "every probability is the image's label"),
        (lambda p: replace(p, metadata={"threshold_chosen_on": "test split"}), "chosen on the test images"),
        (
            lambda p: replace(p, metadata={"temperature": {"fitted": ["val", "test"]}}),
            "chosen on the test images",
        ),
    ],
)
def test_what_is_wrong_is_named(change, problem: str) -> None:
    with pytest.raises(InputError) as error:
        checking.checked(change(noisy(1.0)), BENCHMARK)
    assert problem in str(error.value)


def test_a_training_image_is_refused_even_as_validation() -> None:
    with pytest.raises(InputError, match="of the train split"):
        checking.checked(with_rows(["in_domain-000001"]), BENCHMARK)


def test_metadata_that_only_mention_tests_are_fine() -> None:
    said = {
        "threshold": "sensitivity=.85@validation",
        "fit": "latest weights",
        "note": "test",
        "criterion": "auroc",
    }
    checking.checked(replace(noisy(1.0), metadata=said), BENCHMARK)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path) -> None:
    with (tmp_path / "seed-0.csv").open("wb") as handle:
        handle.truncate(checking.MOST_BYTES + 1)
    with pytest.raises(InputError, match="a submission's file may have 64"):
        checking.read_checked(tmp_path / "seed-0.csv", BENCHMARK)


def test_a_file_that_is_not_there_is_wrong_input(tmp_path, capsys) -> None:
    assert run(["leaderboard", str(tmp_path / "none.csv"), "--quiet"]) == 2
    assert "none.csv: does not exist" in capsys.readouterr().err
