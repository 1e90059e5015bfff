"""The helpers of the contract."""

import pytest

from retinabench.experiments.config import load_run
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.dropout import Config as Dropout
from retinabench.methods.map import Config as Map


def test_a_configuration_of_another_method_is_a_fault_of_the_program():
    run = load_run(None, ["method=dropout", "method.rate=0.25"], data="d")
    assert as_config(run, Dropout).rate == 0.25
    with pytest.raises(TypeError, match=r"a run of the method 'dropout' came to .*methods\.map"):
        as_config(run, Map)


def test_an_entry_takes_all_of_the_budget_unless_it_says_so():
    entry = FidelitySettings(name="x", title="X", method={"name": "map"})
    assert (entry.share, entry.optimizer, entry.search) == (1, {}, {})
    assert log_range(1e-3, 1) == {"low": 1e-3, "high": 1, "scale": "log"}
    with pytest.raises(ValueError, match="share"):
        FidelitySettings(name="x", title="X", method={}, share=0)
