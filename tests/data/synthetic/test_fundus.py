"""The synthetic fundus data: determinism, distributions, truth, and equal content at every size."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.synthetic.fundus import draw
from retinabench.data.synthetic.streams import POPULATIONS
from retinabench.data.synthetic.truth import (
    truth,
)

Find = Callable[..., list[int]]


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_picture_depends_on_seed_index_and_size_alone(population: str) -> None:
    first = {i: draw(i, size=48, population=population) for i in (5, 2, 9)}
    for i in (9, 2, 5):
        again = draw(i, size=48, population=population)
        assert again.truth == first[i].truth == truth(i, population=population)
        np.testing.assert_array_equal(again.image, first[i].image)
        assert again.masks.keys() == first[i].masks.keys()
        for name, mask in again.masks.items():
            np.testing.assert_array_equal(mask, first[i].masks[name])
        np.testing.assert_array_equal(
            draw(i, size=48, population=population, masks=False).image,
            again.image,
            "masks change the image",
        )
    assert not np.array_equal(draw(2, size=48, seed=1, population=population).image, first[2].image)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_another_process_draws_the_same_bytes(threads: str) -> None:
    code = (
        "import hashlib; from retinabench.data.synthetic.fundus import draw;"
        "print(hashlib.sha256(b''.join(draw(i, size=s, population=p).image.tobytes()"
        " for i, s, p in ((3, 64, 'in_domain'), (8, 300, 'shifted')))).hexdigest())"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    here: dict[str, str] = {}
    exec(code.replace("print(", "here['hash'] = str("), {"here": here})
    assert there.stdout.strip() == here["hash"]


@pytest.mark.parametrize("size", [64, 300])
@pytest.mark.parametrize("population", POPULATIONS)
def test_masks_show_what_the_truth_counts(size: int, population: str, find: Find) -> None:
    for grade in range(5):
        for i in find(lambda t, grade=grade: t.true_grade == grade, 2, population):
            picture = draw(i, size=size, population=population)
            present = {name for name, count in picture.truth.lesions.items() if count}
            assert picture.masks.keys() == present | {"field_of_view", "optic_disc"}
            field = picture.masks["field_of_view"]
            for name in present:
                assert picture.masks[name].any(), name
                assert not (picture.masks[name] & ~field).any(), name
            outside = picture.image[~field].astype(int)
            assert np.median(outside) < 10
            for name, mask in picture.masks.items():
                assert mask.shape == (size, size), name
                assert mask.dtype == np.bool_, name


def test_lesions_change_the_picture_where_their_masks_say(find: Find) -> None:
    """Against the same eye without lesions: blood darkens the green channel, exudates brighten it."""
    i = find(lambda t: t.true_grade == 3 and t.lesions["hard_exudate"] > 30 and t.camera["focus"] < 0.005)[0]
    picture = draw(i, size=300)
    green = picture.image[..., 1].astype(float)
    around = np.median(green[picture.masks["field_of_view"]])
    assert np.median(green[picture.masks["blot_haemorrhage"]]) < 0.75 * around
    assert np.median(green[picture.masks["hard_exudate"]]) > 1.25 * around


@pytest.mark.parametrize("population", POPULATIONS)
def test_small_and_large_pictures_have_the_same_content(population: str, find: Find) -> None:
    """512 px averaged over 8 x 8 pixels against 64 px: mean difference under 2 of 255 grey levels."""
    for i in find(lambda t: t.true_grade == 2, 2, population) + find(
        lambda t: t.true_grade == 4, 2, population
    ):
        large, small = (draw(i, size=s, population=population) for s in (512, 64))
        assert large.truth == small.truth
        mean = large.image.reshape(64, 8, 64, 8, 3).mean((1, 3))
        difference = np.abs(mean - small.image)
        assert difference.mean() < 2
        inside = small.masks["field_of_view"]
        for c in range(3):
            assert np.corrcoef(mean[inside][:, c], small.image[inside][:, c])[0, 1] > (0.97 if c < 2 else 0.9)


def test_left_and_right_eyes_mirror_each_other(find: Find) -> None:
    """Seen from outside, the disc is on the left in a left eye and on the right in a right eye."""
    for i in range(4):
        disc = np.argwhere(draw(i, size=64).masks["optic_disc"])
        assert (disc[:, 1].mean() < 32) == (i % 2 == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": -1}, "index is -1"),
        ({"index": 1.5}, "index is 1.5"),
        ({"index": True}, "index is True"),
        ({"seed": -2}, "seed is -2"),
        ({"population": "in-domain"}, "Did you mean 'in_domain'"),
        ({"size": 8}, "size is 8"),
        ({"size": 64.0}, "size is 64.0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(**{"index": 0, "size": 32, **arguments})  # type: ignore[arg-type]
