import errno
import io
import os
import shutil
import signal

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError, WorkError
from retinabench.fidelity.reference import chains
from retinabench.fidelity.reference.chains import ChainPlan, sample
from retinabench.fidelity.targets import density
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from support.forking import forked
from support.killing import killing
from support.small_targets import small_data

PLAN = ChainPlan(chains=2, burn_in=6, keep=10, seed=4, first=0.02)


def small(seed=0):
    return Density.of(TARGETS["energy-gap"], small_data("energy-gap", 20, seed))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run: its folder and its chains."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, sample(small(), PLAN, folder, {"data": "a"})


def test_the_kept_part_is_that_of_the_sampler(whole):
    _, kept = whole
    assert kept.predictions.shape == (10, 2, 7, 2)
    assert kept.weights.shape == (10, 2, 552)  # all of so few
    assert kept.history.shape == (16, 3, 2)
    # The last row is what the last state predicts; where a proposal was refused, the row before is repeated.
    assert np.array_equal(kept.predictions[-1], small().predict(kept.state.weights).numpy())
    assert np.array_equal(kept.weights[-1], kept.state.weights.numpy())
    for t in range(1, 10):
        for k in range(2):
            moved = not np.array_equal(kept.weights[t, k], kept.weights[t - 1, k])
            assert moved == bool(kept.kept_history[t, 1, k])
    assert 0 < kept.kept_history[:, 1].mean() < 1


@pytest.mark.parametrize("when", [pytest.param("12", marks=pytest.mark.slow), "row13"])
def test_a_killed_run_goes_on_bit_for_bit(whole, tmp_path, when):
    """It saves after every transition, and is killed in the middle of one write: of a row, torn, or of a checkpoint."""
    folder, _ = whole

    def work():
        write_row = chains._Run.write_row

        def torn(self, rows):
            write_row(self, rows)
            if self.done == int(when[3:]):
                rows.truncate(rows.tell() - 100)
                rows.flush()
                os.kill(os.getpid(), signal.SIGKILL)

        if when.startswith("row"):
            chains._Run.write_row = torn
        else:
            os.replace = killing("before", int(when))
        sample(small(), PLAN, tmp_path, {"data": "a"}, interval=0.0)

    assert forked(work) == -signal.SIGKILL
    sample(small(), PLAN, tmp_path, {"data": "a"})
    assert (tmp_path / "kept.f32").read_bytes() == (folder / "kept.f32").read_bytes()
    with np.load(tmp_path / "checkpoint.npz") as found, np.load(folder / "checkpoint.npz") as truth:
        for name in ("w", "l", "g", "history"):
            assert np.array_equal(found[name], truth[name]), name


def test_a_longer_keep_continues_and_a_shorter_one_reads_the_beginning(whole, tmp_path):
    _, kept = whole
    for keep in (4, 10, 7):
        found = sample(small(), ChainPlan(2, 6, keep, 4, 0.02), tmp_path, {"data": "a"})
        assert np.array_equal(found.predictions, kept.predictions[:keep])
        assert len(found.kept_history) == keep


def test_a_disk_that_fails_is_one_line_and_the_chains_continue(whole, tmp_path, monkeypatch):
    class Failing(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda opened, mode: Failing(opened, "w"))
        with pytest.raises(WorkError, match=r"kept.f32: no space left on the disk"):
            sample(small(), PLAN, tmp_path, {"data": "a"})
    found = sample(small(), PLAN, tmp_path, {"data": "a"})
    assert np.array_equal(found.predictions, whole[1].predictions)


@pytest.mark.parametrize("name", ["kept.f32", "checkpoint.npz", "settings.json"])
def test_a_damaged_file_is_named(whole, tmp_path, name):
    folder = shutil.copytree(whole[0], tmp_path / "damaged")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: is damaged"):
        sample(small(), PLAN, folder, {"data": "a"})


@pytest.mark.parametrize(
    ("plan", "identity", "named"),
    [
        (PLAN, {"data": "b"}, 'another data: "a" there, "b" here'),
        (ChainPlan(2, 5, 10, 4, 0.02), {"data": "a"}, "another burn.in: 6 there, 5 here"),
        (ChainPlan(2, 6, 10, 5, 0.02), {"data": "a"}, "another seed: 4 there, 5 here"),
    ],
)
def test_other_settings_are_refused(whole, plan, identity, named):
    folder, _ = whole
    before = (folder / "checkpoint.npz").read_bytes()
    with pytest.raises(InputError, match=named):
        sample(small(), plan, folder, identity)
    assert (folder / "checkpoint.npz").read_bytes() == before


def test_a_chain_that_becomes_nan_stops_and_what_was_kept_stays(whole, tmp_path, monkeypatch):
    _, kept = whole
    # Transition 12 ends with a likelihood that any other accepts and that is no finite number.
    move, by_hand = chains._Run.move, density.MLPGaussian.__call__

    def infinite(self, weights):
        values, gradient = by_hand(self, weights)
        return torch.full_like(values, torch.inf), gradient

    def moving(run):
        if run.done == 12:
            monkeypatch.setattr(density.MLPGaussian, "__call__", infinite)
        move(run)

    monkeypatch.setattr(chains._Run, "move", moving)
    with pytest.raises(WorkError, match=r"chain 0 .* transition 12.*--step"):
        sample(small(), PLAN, tmp_path, {"data": "a"})
    monkeypatch.undo()
    with np.load(tmp_path / "checkpoint.npz") as saved:
        assert len(saved["history"]) == 12
    found = sample(small(), ChainPlan(2, 6, 6, 4, 0.02), tmp_path, {"data": "a"})
    assert np.array_equal(found.predictions, kept.predictions[:6])


def test_a_step_that_nothing_accepts_says_what_to_do(tmp_path):
    with pytest.raises(WorkError, match=r"no chain has moved in the last 30 transitions.*smaller --step"):
        sample(small(), ChainPlan(2, 0, 100, 0, first=5.0), tmp_path, {})
