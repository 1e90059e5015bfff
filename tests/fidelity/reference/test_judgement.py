"""The verdict follows from the arrays of a file, whatever its metadata say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.reference.arrays import ReferenceAbout
from retinabench.fidelity.reference.judgement import judge
from retinabench.fidelity.reference.make_reference import make_reference
from retinabench.fidelity.reference.reference_file import read_reference, write_reference
from retinabench.fidelity.targets.registry import TARGETS
from support.small_targets import small_data

FUNDUS, ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]


@pytest.fixture(scope="module")
def shipped():
    return read_reference(FUNDUS, FUNDUS.sha256)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A reference with states, of 20 points."""
    small = small_data("energy-gap", 20)
    folder = tmp_path_factory.mktemp("chains")
    return small, make_reference(ENERGY, small, folder, chains=4, burn_in=25, keep=60, step=0.02, seed=1)


def test_a_file_with_a_bad_r_hat_fails_although_it_says_that_it_passed(shipped):
    about = shipped.about.changed(passed=True, why=())
    found = judge(replace(shipped, rhat=np.full_like(shipped.rhat, 3), about=about))
    assert found.verdict == "failed"
    assert "the chains disagree" in found.why[0]


def test_chains_that_disagree_fail_although_the_stated_r_hat_is_good(shipped):
    apart = shipped.chain_probs.copy()
    apart[0] = np.roll(apart[0], 1, axis=-1)
    words = " ".join(judge(replace(shipped, chain_probs=apart)).why)
    assert "the chains disagree" in words
    assert "times as much as its standard errors allow" in words


def test_an_earlier_reference_is_provisional_and_says_what_it_lacks(shipped):
    found = shipped.judgement
    assert shipped.passed
    assert found.verdict == "provisional"
    assert found.reservations[0].startswith("3.3% of the trajectories diverge")
    assert any("half a draw of the prior" in one for one in found.reservations)
    often = shipped.about.changed(energy_error=replace(shipped.about.energy_error, diverged=0.2))
    assert judge(replace(shipped, about=often)).verdict == "failed"


@pytest.mark.parametrize("key", ["energy_error", "half_step", "acceptance", "kept"])
@pytest.mark.parametrize("value", ["x", [None], 10**400])
def test_an_earlier_file_without_its_numbers_fails(shipped, tmp_path, key, value):
    stated = shipped.about.to_dict()
    without = {name: found for name, found in stated.items() if name != key}
    for meta in (without, {**without, key: None}):
        assert judge(replace(shipped, about=ReferenceAbout(**meta))).verdict == "failed"
    arrays = {name: found for name, found in vars(shipped).items() if isinstance(found, np.ndarray)}
    meta = json.dumps({"schema": "retinabench.fidelity-reference/1", **stated, key: value})
    np.savez(tmp_path / "r.npz", meta=np.array(meta), **arrays)
    with pytest.raises(InputError, match=r"r\.npz: is no reference file"):
        read_reference(FUNDUS, FUNDUS.sha256, tmp_path / "r.npz")


@pytest.mark.filterwarnings("error")
def test_standard_errors_that_are_no_numbers_fail_without_a_warning(shipped):
    assert judge(replace(shipped, mcse=np.full_like(shipped.mcse, np.nan))).verdict == "failed"


def test_states_of_a_wide_posterior_may_miss_its_means_by_their_standard_error(made, tmp_path):
    small, good = made
    generator = np.random.default_rng(0)
    states = generator.normal(size=good.states.shape)  # a mean of 60 is expected to be .8 / sqrt(60) = .1 off
    draws = generator.normal(size=good.chain_draws.shape).astype(np.float32)

    def shifted(by):
        moved = replace(good, states=(states + by).astype(np.float16), chain_draws=draws)
        write_reference(tmp_path / "r.npz", moved)
        return tmp_path / "r.npz"

    assert read_reference(ENERGY, small.sha256, shifted(0)).states is not None
    with pytest.raises(InputError, match="states whose means"):
        read_reference(ENERGY, small.sha256, shifted(0.5))


def test_states_are_judged_and_nothing_else(made, tmp_path):
    small, good = made
    assert good.states.shape == (60, 4, 7, 2)
    assert good.about.passed == good.passed
    lying = replace(good, rhat=np.ones_like(good.rhat), about=good.about.changed(passed=True, why=()))
    states = good.states.astype(np.float64)
    turned = replace(
        lying, states=(states + 2.0 * np.linspace(-1, 1, 60)[:, None, None, None]).astype(np.float16)
    )
    assert "the chains disagree" in " ".join(judge(turned).why)
    refused = good.history.copy()
    refused[:4, 2] = 50
    assert "diverge" in " ".join(judge(replace(good, history=refused)).why)
    assert "over-dispersed" in " ".join(judge(replace(good, start=0 * good.start)).why)
    write_reference(tmp_path / "r.npz", replace(good, states=good.states + np.float16(1)))
    with pytest.raises(InputError, match="states whose means"):
        read_reference(ENERGY, small.sha256, tmp_path / "r.npz")
    write_reference(tmp_path / "r.npz", replace(good, start=None))
    with pytest.raises(InputError, match="and not start"):
        read_reference(ENERGY, small.sha256, tmp_path / "r.npz")
