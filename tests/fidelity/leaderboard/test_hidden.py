"""An official ranking on points whose labels and reference are kept: made, predicted, opened, and tampered with."""

import io
import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.board import score_task
from retinabench.fidelity.leaderboard.hidden import SECRET, hidden_evaluator, make_hidden
from retinabench.fidelity.reference.quadrature import quadrature_reference
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.published_points import with_points
from retinabench.fidelity.targets.registry import TARGETS

TARGET = TARGETS["banana"]


@pytest.fixture
def made(tmp_path):
    random = np.random.default_rng(0)
    inputs = random.integers(-3, 4, (40, 2)).astype(np.float32)
    points = {"inputs": inputs, "targets": random.integers(0, 2, 40), "group": np.full(40, "along")}
    np.savez(tmp_path / "mine.npz", **points)
    make_hidden(
        TARGET,
        load(TARGET),
        tmp_path / "mine.npz",
        tmp_path / "hidden",
        lambda data: quadrature_reference(TARGET, data),
    )
    return tmp_path / "hidden", points


def test_a_participant_predicts_the_published_points_and_is_ranked_on_them(made, tmp_path):
    folder, points = made
    file = run_entry("hmc", TARGET, budget=400, out=tmp_path / "runs", points=folder / "points.npz")
    evaluator, published = hidden_evaluator(TARGET, load(TARGET), folder, bootstrap=50)
    assert sorted(map(tuple, evaluator.data.test.inputs)) == sorted(map(tuple, points["inputs"]))
    board = score_task(evaluator, [read_submission(file, TARGET, 40, published)])
    (entry,) = board.competitors
    assert entry.scores["all"]["total_variation"].quantity.value < 0.1
    assert entry.rank is not None
    with pytest.raises(
        InputError, match="rows; the task 'banana' has 66"
    ):  # it is no submission to the public points
        read_submission(file, TARGET, len(load(TARGET).test))


def test_what_is_published_tells_neither_labels_nor_the_owner_s_order(made):
    folder, points = made
    with np.load(folder / "points.npz") as public:
        assert set(public.files) == {"inputs", "group", "meta"}
        assert not np.array_equal(public["inputs"], points["inputs"])
        assert len(json.loads(str(public["meta"]))["commitment"]) == 64


def test_a_kill_before_the_points_are_published_changes_neither_their_order_nor_the_salt(made, tmp_path):
    folder, points = made
    published = (folder / "points.npz").read_bytes()
    (folder / "points.npz").unlink()
    (folder / SECRET / "reference.npz").unlink()

    def sampler(data):
        return quadrature_reference(TARGET, data)

    np.savez(tmp_path / "others.npz", **{**points, "inputs": points["inputs"] + 1})
    with pytest.raises(InputError, match="another points"):
        make_hidden(TARGET, load(TARGET), tmp_path / "others.npz", folder, sampler)
    make_hidden(TARGET, load(TARGET), tmp_path / "mine.npz", folder, sampler)
    with np.load(folder / "points.npz") as now, np.load(io.BytesIO(published)) as then:
        np.testing.assert_array_equal(now["inputs"], then["inputs"])
    hidden_evaluator(TARGET, load(TARGET), folder)
    with pytest.raises(InputError, match="holds hidden points already"):
        make_hidden(TARGET, load(TARGET), tmp_path / "mine.npz", folder, sampler)


def test_labels_that_changed_after_publication_are_refused(made):
    folder, _ = made
    with np.load(folder / SECRET / "labels.npz") as kept:
        targets = 1 - kept["targets"]
    np.savez_compressed(folder / SECRET / "labels.npz", targets=targets)
    with pytest.raises(InputError, match="not what was committed to"):
        hidden_evaluator(TARGET, load(TARGET), folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"inputs": np.zeros((40, 3), np.float32)}, "takes float32"),
        ({"group": np.full(40, "beside")}, "names 'beside'"),
        ({"targets": np.full(40, 2)}, "there are the classes 0 to 1"),
        ({"group": np.full(39, "along")}, "39 values of 40 points"),
        ({"inputs": np.full((40, 2), np.nan, np.float32)}, "not finite"),
    ],
)
def test_points_of_another_kind_are_refused(made, tmp_path, changes, problem):
    _, points = made
    np.savez(tmp_path / "bad.npz", **{**points, **changes})
    with pytest.raises(InputError, match=problem):
        make_hidden(TARGET, load(TARGET), tmp_path / "bad.npz", tmp_path / "new", lambda data: None)
    assert not (tmp_path / "new").exists()


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "points.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputError, match="no whole NPZ"):
        with_points(TARGET, load(TARGET), tmp_path / "points.npz")
