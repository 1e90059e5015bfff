"""Grades, readers, counts and places of lesions of the synthetic patients follow their stated laws."""

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.synthetic import fundus
from retinabench.data.synthetic.anatomy import grow_eye
from retinabench.data.synthetic.camera import visible
from retinabench.data.synthetic.fundus import CONFUSION, GRADE_MIX, LESIONS, ImageTruth, draw, truth
from retinabench.data.synthetic.lesions import place
from retinabench.data.synthetic.streams import POPULATIONS, stream

Find = Callable[..., list[int]]


@pytest.fixture(scope="module")
def records() -> dict[str, list[ImageTruth]]:
    return {population: [truth(i, population=population) for i in range(4000)] for population in POPULATIONS}


@pytest.fixture(scope="module")
def find(records: dict[str, list[ImageTruth]]) -> Find:
    """Return the first `count` indices of a population that meet a condition."""

    def search(condition: Callable[[ImageTruth], bool], count: int = 1, population: str = "in_domain") -> list[int]:
        return [t.index for t in records[population] if condition(t)][:count]

    return search


@pytest.mark.parametrize("population", POPULATIONS)
def test_true_grades_follow_the_stated_mix(population: str, records: dict[str, list[ImageTruth]]) -> None:
    """Within four standard errors; one eye per patient, so that the draws are independent."""
    grades = np.array([t.true_grade for t in records[population][::2]])
    expected = GRADE_MIX[population]
    share = np.bincount(grades, minlength=5) / len(grades)
    assert np.all(np.abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(grades)))


@pytest.mark.parametrize("population", POPULATIONS)
def test_fellow_eyes_are_tied_by_the_stated_copula(population: str, records: dict[str, list[ImageTruth]]) -> None:
    """P(both eyes referable) equals the bivariate normal orthant probability, within four standard errors."""
    from scipy.stats import multivariate_normal, norm

    referable = np.array([t.true_grade >= 2 for t in records[population]]).reshape(-1, 2)
    cut = norm.ppf(GRADE_MIX[population][2:].sum())
    r = fundus.FELLOW_EYE_CORRELATION
    both = float(multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([cut, cut]))
    assert abs(referable.all(1).mean() - both) < 4 * np.sqrt(both * (1 - both) / len(referable))
    assert [t.eye for t in records[population][:2]] == ["left", "right"]
    assert [t.patient for t in records[population][:4]] == [0, 0, 1, 1]


def test_reported_grades_follow_the_confusion_matrix(records: dict[str, list[ImageTruth]]) -> None:
    pairs = np.array([(t.true_grade, t.reported_grade) for rows in records.values() for t in rows])
    np.testing.assert_allclose(CONFUSION.sum(1), 1, atol=1e-12)
    for grade in range(5):
        reported = pairs[pairs[:, 0] == grade, 1]
        share, expected = np.bincount(reported, minlength=5) / len(reported), CONFUSION[grade]
        assert np.all(np.abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / len(reported)))
    for t in (one for rows in records.values() for one in rows):
        assert t.p_referable == CONFUSION[t.true_grade, 2:].sum()


def test_the_shifted_cameras_are_less_in_focus(records: dict[str, list[ImageTruth]]) -> None:
    blur = {p: np.median([t.camera["focus"] for t in rows]) for p, rows in records.items()}
    assert blur["shifted"] > 2 * blur["in_domain"]


@pytest.mark.parametrize("population", POPULATIONS)
def test_lesion_counts_meet_the_severity_scale(population: str, records: dict[str, list[ImageTruth]]) -> None:
    for t in records[population]:
        n, haemorrhages = t.lesions, t.lesions["blot_haemorrhage"] + t.lesions["flame_haemorrhage"]
        proliferative = n["new_vessels"] + n["preretinal_haemorrhage"] + n["vitreous_haemorrhage"]
        total = sum(n.values())
        assert tuple(n) == LESIONS
        if t.true_grade == 0:
            assert total == 0
        elif t.true_grade == 1:
            assert n["microaneurysm"] == total > 0
        else:
            assert n["microaneurysm"] > 0
            assert n["blot_haemorrhage"] > 0
            assert n["flame_haemorrhage"] > 0
            severe = haemorrhages >= 80 or n["venous_beading"] >= 2
            assert severe == (t.true_grade == 3)
            assert (proliferative > 0) == (t.true_grade == 4)
            assert severe or haemorrhages < 20


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
            draw(i, size=48, population=population, masks=False).image, again.image, "masks change the image"
        )
    assert not np.array_equal(draw(2, size=48, seed=1, population=population).image, first[2].image)


def test_another_process_draws_the_same_bytes() -> None:
    code = (
        "import hashlib; from retinabench.data.synthetic.fundus import draw;"
        "print(hashlib.sha256(b''.join(draw(i, size=s, population=p).image.tobytes()"
        " for i, s, p in ((3, 64, 'in_domain'), (8, 300, 'shifted')))).hexdigest())"
    )
    threads = "1" if os.environ.get("OMP_NUM_THREADS") == "2" else "2"  # another number than here
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
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
    for i in find(lambda t: t.true_grade == 2, 2, population) + find(lambda t: t.true_grade == 4, 2, population):
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


@pytest.mark.parametrize("population", POPULATIONS)
def test_every_counted_lesion_is_placed_in_the_visible_field(population: str, find: Find) -> None:
    some = find(lambda t: t.true_grade >= 1, 30, population)
    for i in some + find(lambda t: t.lesions["venous_beading"] + t.lesions["new_vessels"] > 0, 80, population):
        t = truth(i, population=population)
        placed = place(t.lesions, grow_eye(0, population, i), t.camera, stream("placing", 0, population, i))
        assert {name: len(at) for name, at in placed.items()} == t.lesions
        for name, at in placed.items():
            assert visible(at, t.camera).all(), name


def test_severe_haemorrhages_fill_all_quadrants(find: Find) -> None:
    for i in find(lambda t: t.true_grade == 3 and t.lesions["blot_haemorrhage"] > 40, 5):
        t = truth(i)
        placed = place(t.lesions, grow_eye(0, "in_domain", i), t.camera, stream("placing", 0, "in_domain", i))
        at = np.concatenate([placed["blot_haemorrhage"], placed["flame_haemorrhage"]])
        offset = at - [t.camera["gaze_x"], t.camera["gaze_y"]]
        quadrants = np.bincount(2 * (offset[:, 0] > 0) + (offset[:, 1] > 0), minlength=4)
        assert quadrants.min() >= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"population": "in-domain"}, "Did you mean 'in_domain'"),
        ({"population": "aptos"}, "unknown population 'aptos'. Valid: in_domain, shifted"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(**{"index": 0, "size": 32, **arguments})  # type: ignore[arg-type]
