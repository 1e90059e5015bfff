"""What a run targets is computed from its settings, and the stated track refuses other posteriors."""

import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.entries import entry, entry_run
from retinabench.fidelity.submissions.implied import Implied, check_track, departures_of, implied_by
from retinabench.fidelity.targets.registry import TARGETS

FUNDUS = TARGETS["fundus"]
N = FUNDUS.train


def implied(name, *overrides):
    return implied_by(entry_run(entry(name), FUNDUS, N, 100, 0, overrides), N)


@pytest.mark.parametrize(
    "name", ["map", "laplace", "ensemble", "ivon-mixture", "mfvi", "sghmc", "multiswag", "swag", "dropout"]
)
def test_the_entries_take_part_in_the_stated_track(name):
    check_track(implied(name), FUNDUS, "stated")


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("sghmc", ("method.temperature=0.05", "optimizer.l2=0.5"), "temperature 0.05, not 1; prior variance 0.0001"),
        ("ivon", ("method.temperature=0.05",), "temperature 0.05"),
        ("gaussian_vi", ("method.kl_temperature=0.1",), "temperature 0.1"),
        ("map", ("optimizer.augment=flip",), "augmentation (flip)"),
        ("map", ("optimizer.reweight=constant",), "reweighted classes (constant)"),
        ("map", ("optimizer.l2=0",), "prior variance none"),
        ("dropout", ("optimizer.l2=0.5",), "noise on activations"),
        ("map", ("optimizer.l2_on=weights",), "a prior on weights only"),
        ("fsvi", (), "a prior over functions"),
    ],
)  # fmt: skip
def test_other_posteriors_are_refused_and_the_open_track_takes_them(name, overrides, words):
    found = implied(name, *overrides)
    with pytest.raises(InputError, match=r"--track open") as error:
        check_track(found, FUNDUS, "stated")
    assert words in str(error.value)
    check_track(found, FUNDUS, "open")


def test_settings_are_believed_more_than_the_statement():
    # The file says that it targets the stated posterior; its own settings say otherwise.
    claim = Implied(temperature=1.0, prior_variance=FUNDUS.prior_variance)
    cold = {
        "method": {"name": "ensemble", "member": {"name": "ivon", "temperature": 0.05}},
        "optimizer": {"l2": 0.02},
    }
    assert departures_of(cold, claim, FUNDUS) == ["temperature 0.05, not 1"]
    assert departures_of({"optimizer": {"augment": "flip"}}, claim, FUNDUS) == ["augmentation (flip)"]
    assert departures_of({"optimizer": {"l2": 1 / (2 * N * 0.05)}}, claim, FUNDUS) == []
    assert departures_of(None, None, FUNDUS) == ["it does not state what it targets"]
