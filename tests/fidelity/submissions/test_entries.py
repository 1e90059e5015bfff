"""The entries of the benchmark, as the methods state them."""

from __future__ import annotations

import pytest

from retinabench.fidelity.submissions.budget import planned
from retinabench.fidelity.submissions.entries import entries, entry, entry_run
from retinabench.fidelity.targets.registry import TARGETS
from retinabench.methods.base import FidelitySettings
from retinabench.methods.registry import METHODS


@pytest.mark.parametrize("name", list(entries()))
def test_every_entry_targets_the_stated_posterior_within_the_budget(name):
    for one in TARGETS.values():
        run = entry_run(entry(name), one, one.train, 1000, seed=3)
        assert planned(run) <= 1000
        optimizer = run.optimizer
        assert optimizer.l2 == pytest.approx(1 / (2 * one.train * one.prior_variance), rel=1e-12)
        settings = (optimizer.l2_on, optimizer.reweight, optimizer.augment, optimizer.select)
        assert settings == ("everything", "none", "none", "last")
        if "prior_precision" in type(run.method).model_fields:
            assert run.method.prior_precision == pytest.approx(1 / one.prior_variance)
        if "prior_stddev" in type(run.method).model_fields:
            assert run.method.prior_stddev**2 == pytest.approx(one.prior_variance)


def test_a_member_s_settings_may_differ_by_likelihood():
    chosen = FidelitySettings(
        name="two", title="two",
        method={"name": "ensemble", "members": 2, "member": {"name": "sghmc", "samples": 5, "lr_factor": 0.1}},
        gaussian={"method": {"members": 3, "member": {"lr_factor": 0.2}}},
    )  # fmt: skip
    one, other = (entry_run(chosen, TARGETS[task], 50, 30, 0).method for task in ("fundus", "energy-gap"))
    assert (one.members, one.member.samples, one.member.lr_factor) == (2, 5, 0.1)
    assert (other.members, other.member.samples, other.member.lr_factor) == (3, 5, 0.2)


def test_settings_without_a_method_s_name_are_of_the_method_that_states_them(monkeypatch):
    nameless = FidelitySettings(name="mine", title="Mine", method={"samples": 3})
    monkeypatch.setattr(METHODS["dropout"], "FIDELITY", (nameless,))
    entries.cache_clear()
    try:
        run = entry_run(entry("mine"), TARGETS["fundus"], 50, 30, 0)
    finally:
        monkeypatch.undo()
        entries.cache_clear()
    assert (run.method.name, run.method.samples) == ("dropout", 3)
