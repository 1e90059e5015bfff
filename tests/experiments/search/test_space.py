"""Spaces and their points, against SciPy, against what defines a Sobol sequence, and against what was published."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, qmc

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.experiments.config import load_run
from retinabench.experiments.search.search import trial_runs
from retinabench.experiments.search.space import Choices, Range, points, read_space, space_of, spaces, unit_points
from retinabench.experiments.study.definition import read_study

PUBLISHED = ("map", "dropout", "mfvi", "radial", "rank1", "fsvi")
DEMO = ("map", "dropout", "mfvi", "radial", "rank1", "fsvi", "swag", "ivon", "laplace")


def base_of(name):
    kind, method = name.split("/")
    if kind == "published":
        return load_run(f"published/{method}/country/joint", data="x")
    return load_run("demo/map", [f"method.name={method}"], data="x")


def test_the_points_are_those_of_scipy():
    with pytest.warns(UserWarning, match="power of 2"):
        whole = qmc.Sobol(5, scramble=True, seed=numpy_generator(7, "sobol")).random(100)
    assert np.array_equal(unit_points(5, 0, 100, 7), whole)


def test_the_first_points_stay_what_they_are():
    """Known values: another SciPy, NumPy or stream would silently give a sweep other trials."""
    expected = [
        [0.03562335669994354, 0.5333801293745637], [0.7150325831025839, 0.3127673314884305],
        [0.8569643720984459, 0.7788654565811157], [0.39625505916774273, 0.1249031238257885],
    ]  # fmt: skip
    assert np.array_equal(unit_points(2, 0, 4, 0), expected)


def test_a_longer_search_begins_with_the_shorter_one():
    space = read_space("published/fsvi")
    assert points(space, 0, 64, 0)[:32] == points(space, 0, 32, 0)
    assert points(space, 32, 64, 0) == points(space, 0, 64, 0)[32:]
    assert points(space, 0, 8, 1) != points(space, 0, 8, 0)


@pytest.mark.parametrize(
    ("table", "there"),
    [
        ({"low": 1e-4, "high": 1.0, "scale": "log"}, math.log),
        ({"low": -3.0, "high": 5.0}, float),
        ({"low": 0.9, "high": 0.999, "scale": "log_complement"}, lambda value: -math.log(1 - value)),
    ],
)
def test_values_are_uniform_on_their_scale(table, there):
    """512 points of one dimension are stratified: their distance to the uniform distribution is below 2 / 512."""
    parameter = space_of({"x": table}).parameters["x"]
    drawn = np.array([there(parameter.value(u)) for u in unit_points(1, 0, 512, 0)[:, 0]])
    low, high = there(table["low"]), there(table["high"])
    assert kstest((drawn - low) / (high - low), "uniform").statistic < 2 / 512


@pytest.mark.parametrize("table", [{"choices": ["a", "b", "c", "d"]}, {"low": 3, "high": 6, "integer": True}])
def test_choices_and_integers_are_equally_frequent(table):
    drawn = [point["x"] for point in points(space_of({"x": table}), 0, 64, 0)]
    assert sorted(drawn.count(value) for value in set(drawn)) == [16, 16, 16, 16]
    assert all(isinstance(value, str if "choices" in table else int) for value in drawn)


def test_integers_on_a_logarithmic_scale_reach_both_ends():
    space = space_of({"x": {"low": 1, "high": 32, "scale": "log", "integer": True}})
    drawn = [point["x"] for point in points(space, 0, 4096, 0)]
    assert {1, 32} <= set(drawn) <= set(range(1, 33))
    # P(1) = ln 2 / ln 33, to a standard error below 0.008.
    assert abs(drawn.count(1) / 4096 - math.log(2) / math.log(33)) < 0.005


@given(
    low=st.floats(1e-9, 1e3), ratio=st.floats(1.001, 1e6), u=st.floats(0, 1, exclude_max=True),
    scale=st.sampled_from(["linear", "log"]),
)  # fmt: skip
def test_no_value_leaves_its_range_and_it_is_drawn_on_the_scale(low, ratio, u, scale):
    value = Range(low=low, high=low * ratio, scale=scale).value(u)
    assert low <= value <= low * ratio
    # Six digits of the value: a relative error of 5e-6.
    exact = low * ratio**u if scale == "log" else low + u * (low * ratio - low)
    assert value == pytest.approx(exact, rel=1e-5)


def test_drawn_values_have_few_digits():
    """A run is its hash, and the last bits of a logarithm differ between machines."""
    for point in points(read_space("demo/dropout"), 0, 64, 0):
        assert float(f"{point['optimizer.lr']:.6g}") == point["optimizer.lr"]
        assert float(f"{(left := 1 - point['optimizer.momentum']):.6g}") == pytest.approx(left, rel=1e-9)


def test_every_space_that_comes_along_fits_its_method():
    mini = {one.space for one in read_study("drawn_1_mini").methods.values()}  # tried on methods by the study
    shipped = {f"published/{name}" for name in PUBLISHED} | {f"demo/{name}" for name in DEMO} | {"filos2019/l2"}
    assert shipped | mini == set(spaces())
    for name in shipped - {"filos2019/l2"}:
        runs = trial_runs(base := base_of(name), read_space(name), 32, 0)
        assert len({run.hash("f") for run in runs}) == 32
        assert {run.method.name for run in runs} == {base.method.name}


def test_eight_trials_of_the_grid_of_2019_are_each_of_its_values_once_and_hold_the_paper_s():
    base, space = load_run("filos2019/dropout", data="x"), read_space("filos2019/l2")
    values = [run.optimizer.l2 for run in trial_runs(base, space, 8, 0)]
    assert len(set(values)) == 8
    assert base.optimizer.l2 in values


@pytest.mark.parametrize("method", PUBLISHED)
def test_every_published_choice_lies_in_its_published_space(method):
    """The tuned values of all tasks and criteria came from these searches: a wrong end would leave some outside."""
    space = read_space(f"published/{method}")
    for task in ("country", "severity"):
        for criterion in ("in_domain", "joint"):
            run = load_run(f"published/{method}/{task}/{criterion}", data="x")
            for key, parameter in space.parameters.items():
                value = functools.reduce(getattr, key.split("."), run)
                bounds = parameter.bounds()
                inside = value in bounds if isinstance(parameter, Choices) else bounds[0] <= value <= bounds[1]
                assert inside, (task, criterion, key, value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = { low = 1, high = 1 }", ["x: low (1) is not below high (1)"]),
        ('x = { low = 0, high = 1, scale = "log" }', ["x:", "above 0"]),
        ('x = { low = 0.5, high = 1, scale = "log_complement" }', ["x:", "below 1"]),
        ('x = { low = 1, high = 2, scale = "lgo" }', ["x: scale", "'lgo'"]),
        ("x = { low = 1, lwo = 1, high = 2 }", ["x: unknown key 'lwo'", "Did you mean 'low'?"]),
        ("x = { high = 2 }", ["x: low: is missing"]),
        ("x = { low = 1.5, high = 2, integer = true }", ["whole numbers"]),
        ("x = { low = nan, high = 2 }", ["x: low", "finite number"]),
        ("x = { low = true, high = 2 }", ["x: low", "valid number"]),
        ("x = { choices = [1] }", ["x: choices", "at least 2"]), ("x = { choices = [1, 1] }", ["appears twice"]),
        ("x = { choices = [1, [2]] }", ["x: choices.1"]),
        ("x = { choices = [1, 2], low = 1 }", ["x: unknown key 'low'"]), ("x = 3", ["x: should be a table"]),
        ("a = { b = { low = 1, high = 2 }, c = 3 }", ["a.c: should be a table"]),
        ('a.b = { low = 1, high = 2 }\n"a.b" = { low = 1, high = 2 }', ["appears twice"]), ("", ["is empty"]),
        ("x = {", ["is not TOML"]),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_name_and_key(tmp_path, text, words):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_space(file)
    for word in [str(file), *words]:
        assert word in str(caught.value)
