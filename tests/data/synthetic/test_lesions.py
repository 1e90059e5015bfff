"""Where lesions are placed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from retinabench.data.synthetic.anatomy import grow_eye
from retinabench.data.synthetic.camera import visible
from retinabench.data.synthetic.fundus import truth
from retinabench.data.synthetic.lesions import place
from retinabench.data.synthetic.streams import POPULATIONS, stream

Find = Callable[..., list[int]]


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
