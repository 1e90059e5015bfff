"""The images of a frozen benchmark have the hashes of its definition, however many processes draw them."""

import hashlib

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.frozen import definition, images
from retinabench.data.frozen.definition import HASH_BYTES, BenchmarkTruth, frozen_benchmark, listing_sha256, truth_of
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe

NAME = "retinabench-drawn-1-mini"


@pytest.mark.parametrize(
    "image_id",
    [
        pytest.param("in_domain-000000", id="healthy"), pytest.param("in_domain-000283", id="beaded veins"),
        pytest.param("in_domain-002322", id="every other lesion"), pytest.param("shifted-000599", id="shifted"),
    ],
)  # fmt: skip
def test_a_drawn_image_has_its_hash(image_id: str) -> None:
    """Pixel by pixel: anatomy, lesions and cameras are what they were when the benchmark was frozen."""
    truth = truth_of(NAME)
    image = images.drawn_image(frozen_benchmark(NAME))(image_id)
    assert image is not None
    known = truth.sha256[np.searchsorted(truth.image_id, image_id)]
    assert hashlib.sha256(image.tobytes()).hexdigest()[: 2 * HASH_BYTES] == known


def test_an_image_that_is_not_in_the_benchmark_is_not_drawn() -> None:
    draw = images.drawn_image(frozen_benchmark(NAME))
    assert draw("in_domain-999999") is None
    assert draw("../../etc/passwd") is None


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """64 images of 16 px, drawn by one process."""
    return prepare("synthetic", tmp_path_factory.mktemp("one"), recipe=Recipe(16), images=32, seed=3, workers=1)


@pytest.fixture
def small(made, monkeypatch):
    benchmark = frozen_benchmark(NAME).model_copy(
        update={"name": "small", "draw": definition.DrawingSettings(images=32, size=16, seed=3), "images": len(made)}
    )
    hashes = images.image_hashes(benchmark, made)
    order = np.argsort(made.records.image_id)
    of = made.records.take(order)
    short = np.array([hashes[name][: 2 * HASH_BYTES] for name in of.image_id.tolist()])
    label = (of.grade >= 2).astype(np.int8)
    truth = BenchmarkTruth(of.image_id, label, of.grade, of.patient_id, of.domain, of.split, short)
    monkeypatch.setattr(images, "truth_of", lambda name: truth)
    listing = listing_sha256(hashes, hashes.values())
    return benchmark.model_copy(update={"listing_sha256": listing, "made_with": {"numpy": "1.0"}})


def test_the_hashes_do_not_depend_on_the_number_of_processes(small, tmp_path) -> None:
    assert len(images.draw_benchmark(small, tmp_path / "two", workers=2)) == small.images


def test_another_image_is_named_with_the_versions(small, tmp_path) -> None:
    other = prepare("synthetic", tmp_path / "other", recipe=Recipe(16), images=32, seed=4, workers=1)
    with pytest.raises(InputError, match=r"64 of 64 images are not those of small.*numpy 1\.0; here are numpy "):
        images.check_images(small, other)
    more = prepare("synthetic", tmp_path / "more", recipe=Recipe(16), images=34, seed=3, workers=1)
    with pytest.raises(InputError, match="images that small does not have"):
        images.check_images(small, more)


def test_published_photographs_are_not_drawn(tmp_path) -> None:
    real = frozen_benchmark(NAME).model_copy(update={"draw": None, "dataset": "idrid"})
    with pytest.raises(InputError, match="is not drawn"):
        images.draw_benchmark(real, tmp_path)
