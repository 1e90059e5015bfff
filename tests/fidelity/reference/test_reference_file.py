"""A reference file comes back as it was written, and one that lacks something is refused in one line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.reference.arrays import ReferenceAbout
from retinabench.fidelity.reference.reference_file import Reference, read_reference, write_reference
from retinabench.fidelity.targets.registry import TARGETS
from support.evaluators import FUNDUS
from support.fake_reference import softmax

DATA = "ab" * 32


def fake():
    """Return a reference of six points that belongs to FUNDUS and DATA."""
    probs = softmax(np.random.default_rng(1).normal(size=(4, 6, FUNDUS.outputs)))
    quality = np.ones((6, FUNDUS.outputs), np.float32)
    about = ReferenceAbout(
        task=FUNDUS.name, target=FUNDUS.fingerprint(DATA), data=DATA, chains=4, passed=True, why=(),
    )  # fmt: skip
    return Reference(
        about, quality, quality, quality, quality, quality[:, 0], probs, probs.astype(np.float16)
    )


def write_with(path, reference, meta):
    """Write the arrays of a reference with other metadata, as anyone could."""
    arrays = {name: value for name, value in vars(reference).items() if isinstance(value, np.ndarray)}
    meta = {"schema": "retinabench.fidelity-reference/1", **meta}
    np.savez(path, meta=np.array(json.dumps(meta)), **arrays)


def test_a_reference_comes_back_as_it_was_written(tmp_path):
    made = fake()
    write_reference(tmp_path / "r.npz", made)
    back = read_reference(FUNDUS, DATA, tmp_path / "r.npz")
    assert np.array_equal(back.probs, made.probs)
    assert np.array_equal(back.rhat, made.rhat)
    assert (back.passed, back.why, back.chains) == (made.passed, made.why, made.chains)


@pytest.mark.parametrize("key", ["chains", "data", "target", "task"])
def test_a_file_that_does_not_state_what_it_is_of_is_refused(tmp_path, key):
    made = fake()
    meta = made.about.to_dict()
    del meta[key]
    write_with(tmp_path / "r.npz", made, meta)
    with pytest.raises(InputError, match=r"r\.npz: is no reference file"):
        read_reference(FUNDUS, DATA, tmp_path / "r.npz")


@pytest.mark.parametrize(
    "changed",
    [
        {"samples": np.zeros((4, 5, FUNDUS.outputs))},
        {"samples": None},
        {"epistemic": np.zeros(7)},
        {"mcse": np.zeros((6, 2))},
        {"rhat": np.array(["x"] * 6)},
        {"chain_probs": np.full((4, 6, FUNDUS.outputs), np.nan)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changed):
    write_reference(tmp_path / "r.npz", replace(fake(), **changed))
    with pytest.raises(InputError, match="array"):
        read_reference(FUNDUS, DATA, tmp_path / "r.npz")


@pytest.mark.parametrize(
    "meta",
    [
        {"chains": "four"},
        {"data": 3},
        {"target": None},
        {"task": "\ud800"},
        {"kind": "guessed"},
        {"burn_in": "lots"},
        {"burn_in": "1", "kept": [2]},
        {"steps": 10**400},
        {"published_ceiling": "x"},
        {"accuracy": math.nan},
        {"ceiling": {"in_domain": 3}},
        {"passed": "perhaps"},
        {"chains": 3},
        {"chains": True},
        {"schema": "another"},
    ],
)
def test_metadata_that_say_something_else_are_refused(tmp_path, meta):
    made = fake()
    write_with(tmp_path / "r.npz", made, {**made.about.to_dict(), **meta})
    with pytest.raises(InputError, match=r"metadata|no reference"):
        read_reference(FUNDUS, DATA, tmp_path / "r.npz")


@pytest.mark.parametrize("target", ["fundus", "banana", "drawn-head"])
def test_what_a_shipped_file_states_is_written_as_it_was_read(tmp_path, target):
    file = resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{target}.npz")
    with resources.as_file(file) as path:
        stated = json.loads(str(np.load(path)["meta"]))
    write_reference(tmp_path / "r.npz", read_reference(TARGETS[target], stated["data"]))
    assert json.loads(str(np.load(tmp_path / "r.npz")["meta"])) == stated


def test_entries_of_other_names_are_kept(tmp_path):
    write_reference(tmp_path / "r.npz", replace(fake(), about=fake().about.changed(remark="seen")))
    assert json.loads(str(np.load(tmp_path / "r.npz")["meta"]))["remark"] == "seen"
    assert read_reference(FUNDUS, DATA, tmp_path / "r.npz").about.to_dict()["remark"] == "seen"
