"""A reference file comes back as it was written, and one that lacks something is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.reference.reference_file import STATED, Reference, read_reference, write_reference
from support.evaluators import FUNDUS
from support.fake_reference import softmax

DATA = "ab" * 32


def fake():
    """Return a reference of six points that belongs to FUNDUS and DATA."""
    probs = softmax(np.random.default_rng(1).normal(size=(4, 6, FUNDUS.outputs)))
    quality = np.ones((6, FUNDUS.outputs), np.float32)
    meta = {
        "task": FUNDUS.name, "target": FUNDUS.fingerprint(DATA), "data": DATA, "chains": 4, "passed": True, "why": [],
    }  # fmt: skip
    return Reference(meta, quality, quality, quality, quality, quality[:, 0], probs, probs.astype(np.float16))


def test_a_reference_comes_back_as_it_was_written(tmp_path):
    made = fake()
    write_reference(tmp_path / "r.npz", made)
    back = read_reference(FUNDUS, DATA, tmp_path / "r.npz")
    assert np.array_equal(back.probs, made.probs)
    assert np.array_equal(back.rhat, made.rhat)
    assert (back.passed, back.why, back.chains) == (made.passed, made.why, made.chains)


@pytest.mark.parametrize("key", sorted(STATED))
def test_a_file_that_does_not_state_what_it_is_of_is_refused(tmp_path, key):
    made = fake()
    arrays = {name: value for name, value in vars(made).items() if name != "meta" and value is not None}
    meta = {"schema": "retinabench.fidelity-reference/1", **made.meta}
    del meta[key]
    np.savez(tmp_path / "r.npz", meta=np.array(json.dumps(meta)), **arrays)
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


@pytest.mark.parametrize("meta", [{"chains": "four"}, {"data": 3}, {"target": None}, {"task": "\ud800"}])
def test_metadata_that_say_something_else_are_refused(tmp_path, meta):
    made = fake()
    write_reference(tmp_path / "r.npz", replace(made, meta={**made.meta, **meta}))
    with pytest.raises(InputError, match=r"metadata|no reference"):
        read_reference(FUNDUS, DATA, tmp_path / "r.npz")
