"""Each check sees the fault that it is for, on runs that are made up; `tests/conformance` runs them on every method."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import retinabench as rb
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.conformance import checks
from retinabench.experiments.conformance.subject import NonconformingError
from retinabench.methods import map as method


def predicted(label, prob, **changes):
    n = len(label)
    about = {"method": "map", "seed": 0, "config_hash": "abc", "samples": 1, "members": 1} | changes
    return rb.Predictions(
        np.arange(2 * n), np.tile(label, 2), np.tile(prob, 2),
        domain=np.repeat(["in_domain", "shifted"], n), split=np.tile(["validation", "test"], n), metadata=about,
    )  # fmt: skip


@dataclass
class Pretended:
    """A subject whose run is not computed."""

    predictions: rb.Predictions
    run: Run = field(default_factory=lambda: load_run(None, ["method=map"], data="d"))
    finished: Path = Path("map-abc")
    method: object = method


LABEL = np.tile([0, 0, 1, 1], 8)


def test_learning_is_an_auroc_of_easy_images_above_the_bound():
    checks.learns(Pretended(predicted(LABEL, 0.2 + 0.6 * LABEL)))
    with pytest.raises(NonconformingError, match=r"AUROC is 0\.500"):
        checks.learns(Pretended(predicted(LABEL, np.full(32, 0.3))))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "mfvi"}, "states the method 'mfvi'"),
        ({"seed": 4}, "states the seed 4"),
        ({"config_hash": "xyz"}, "does not end in the run's hash"),
    ],
)
def test_a_wrong_origin_is_named(changes, says):
    checks.records_its_origin(Pretended(predicted(LABEL, 0.5 * LABEL)))
    with pytest.raises(NonconformingError, match=says):
        checks.records_its_origin(Pretended(predicted(LABEL, 0.5 * LABEL, **changes)))


def test_a_method_without_build_or_card_is_named():
    class Bare:
        __doc__ = "A card."
        fit = staticmethod(method.fit)

    subject = Pretended(predicted(LABEL, 0.5 * LABEL))
    checks.states_its_settings(subject)
    subject.method = Bare
    with pytest.raises(NonconformingError, match="the module has no build"):
        checks.states_its_settings(subject)
