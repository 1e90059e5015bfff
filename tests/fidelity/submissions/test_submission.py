"""Submissions to the fidelity benchmark: what they state and what they target."""

import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.entries import entry, entry_run
from retinabench.fidelity.submissions.submission import (
    KEPT_SAMPLES,
    About,
    Submission,
    check_track,
    implied_by,
    read_submission,
    submission_of,
    write_submission,
    y_draws,
)
from retinabench.fidelity.targets.target import TARGETS
from support.small_submissions import DATA, FUNDUS, meta
from support.small_submissions import N as POINTS


def implied(name, *overrides):
    return implied_by(entry_run(entry(name), FUNDUS, FUNDUS.train, 100, 0, overrides), FUNDUS.train)


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


def test_a_counted_run_is_tied_to_its_arrays_and_budget(tmp_path, probs):
    counted = meta(FUNDUS) | {"budget": {"limit": 100, "used": 90.0}, "evidence": {"manifest": "0" * 64}}
    path = tmp_path / "s.npz"
    write_submission(path, Submission(probs, about=About(**counted)))
    back = read_submission(path, FUNDUS, POINTS, DATA)
    assert back.about.counted
    with np.load(path) as saved:
        arrays = dict(saved)
    for change in ("budget", "probs"):
        stated = json.loads(str(arrays["meta"]))
        if change == "budget":
            stated["budget"]["used"] = 9.0
        values = probs[::-1] if change == "probs" else probs
        np.savez(tmp_path / f"{change}.npz", probs=values, meta=np.array(json.dumps(stated)))
        with pytest.raises(InputError, match="content hash"):
            read_submission(tmp_path / f"{change}.npz", FUNDUS, POINTS, DATA)
    # Another title is no change of the run; a file without the hashes is declared.
    write_submission(path, Submission(probs, about=back.about.changed(title="Ours")))
    assert read_submission(path, FUNDUS, POINTS, DATA).about.counted
    write_submission(path, Submission(probs, about=About(**meta(FUNDUS))))
    assert not read_submission(path, FUNDUS, POINTS, DATA).about.counted


def test_draws_of_y_are_those_of_the_mixture():
    # Two components at -1 and 1 with std 0.5: mean 0, variance 1 + 0.25. Standard errors of 1,000 draws: 0.035 of
    # the mean, 0.05 of the variance; five of them.
    predicted = np.array([[[-1.0, 0.5]], [[1.0, 0.5]]], np.float32)
    draws = y_draws(predicted, np.random.default_rng(0))
    assert draws.shape == (1, 1000)
    assert draws.mean() == pytest.approx(0, abs=0.17)
    assert draws.var() == pytest.approx(1.25, abs=0.25)
    assert (draws[0, :500] < 0).mean() > 0.9  # every component gives its share


def test_many_samples_are_thinned_and_their_mean_is_that_of_all():
    values = np.random.default_rng(0).dirichlet(np.ones(2), (300, 4)).astype(np.float32)
    found = submission_of(values, TARGETS["logistic"], About(), 0)
    assert found.samples.shape == (KEPT_SAMPLES, 4, 2)
    assert found.probs == pytest.approx(values.mean(axis=0), abs=1e-6)
