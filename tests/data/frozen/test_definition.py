import hashlib

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets.synthetic import records
from retinabench.data.frozen.definition import benchmark_names, drawn_names, frozen_benchmark, listing_sha256, truth_of
from retinabench.experiments.study.definition import read_study

MINI_LISTING = "4c65664602c896429a941c4a5564564abae52ac5cee30c23b9db8c76fb0346b9"


@pytest.mark.parametrize("name", benchmark_names())
def test_the_truth_has_the_content_of_the_definition(name: str) -> None:
    benchmark, truth = frozen_benchmark(name), truth_of(name)
    assert len(truth.image_id) == benchmark.images == len(set(truth.image_id.tolist()))
    assert truth.image_id.tolist() == sorted(truth.image_id.tolist())
    assert set(truth.domain[truth.test].tolist()) == set(benchmark.sets)
    assert np.array_equal(truth.label, truth.grade >= 2)
    if benchmark.study:
        (task,) = read_study(benchmark.study).tasks.values()
        drawn = None if task.draw is None else task.draw.model_dump()
        assert drawn == (None if benchmark.draw is None else benchmark.draw.model_dump())


@pytest.mark.parametrize("name", drawn_names())
def test_the_truth_is_what_the_renderer_says(name: str) -> None:
    benchmark, truth = frozen_benchmark(name), truth_of(name)
    assert benchmark.draw is not None
    if benchmark.draw.images > 2000:
        pytest.skip("the truth of 12,800 images takes seconds")
    drawn = records(None, benchmark.draw.images, benchmark.draw.seed)
    order = np.argsort(drawn.image_id)
    for column in ("image_id", "patient_id", "grade", "domain", "split"):
        assert np.array_equal(getattr(drawn, column)[order], getattr(truth, column)), column


def test_the_published_hash_never_changes() -> None:
    assert frozen_benchmark("retinabench-drawn-1-mini").listing_sha256 == MINI_LISTING


def test_a_listing_does_not_depend_on_the_order() -> None:
    expected = hashlib.sha256(b"a 1\nb 2\n").hexdigest()
    assert listing_sha256(["b", "a"], ["2", "1"]) == listing_sha256(["a", "b"], ["1", "2"]) == expected


def test_an_unknown_benchmark_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Did you mean 'retinabench-drawn-1-mini'"):
        frozen_benchmark("retinabench-drawn-1-mni")
