"""Entries, their budget, and the search for their settings."""

import csv
import json
import re
from pathlib import Path

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.fidelity.submissions import tuning
from retinabench.fidelity.submissions.entries import check_plan, entries, entry, entry_run, planned, within
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.base import FidelitySettings
from support.fake_reference import classified, regressed
from support.tiny_target import TRAIN, classification_target, regression_target


def run_of(method, budget=100, **optimizer):
    chosen = FidelitySettings(name="x", title="x", method=method, optimizer=optimizer)
    return entry_run(chosen, regression_target(), TRAIN, budget, 0)


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ({"name": "map"}, 100), ({"name": "mfvi", "train_samples": 3}, 33), ({"name": "ensemble", "members": 7}, 14),
        ({"name": "ensemble", "members": 3, "member": {"name": "ivon", "train_samples": 2}}, 16),
        ({"name": "laplace", "weights": "diagonal"}, 99),
    ],
)  # fmt: skip
def test_the_budget_makes_the_epochs(method, epochs):
    run = run_of(method)
    assert run.optimizer.epochs == epochs
    assert planned(run) <= 100
    assert planned(within(run, 1000)) > 100


def test_a_plan_above_the_budget_is_refused_with_what_to_lower():
    with pytest.raises(InputError, match=r"plans 300 gradient .* the budget is 100.* optimizer\.epochs to 33"):
        check_plan(run_of({"name": "mfvi", "train_samples": 3}, epochs=100), 100)
    with pytest.raises(InputError, match=r"Lower method\.members"):
        check_plan(run_of({"name": "ensemble", "members": 101}), 100)


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


@pytest.mark.parametrize(("budget", "rate"), [(10, 0.02), (316, 0.02), (317, 0.007), (10_000, 0.007)])
def test_a_budget_between_tiers_has_the_rate_of_the_nearest_by_logarithm(budget, rate):
    assert (
        run_of({"name": "map"}, budget, lr={100: 0.02, 1000: 0.007}).optimizer.lr == rate
    )  # 316² < 100 · 1,000 < 317²


def test_an_entry_has_the_rate_that_was_nearest_in_the_search_of_its_tier_and_large_networks_that_of_fundus_small():
    tables = Path(__file__).parents[3] / "docs" / "tables"
    rows = list(csv.DictReader((tables / "fidelity-search.csv").read_text().splitlines()))
    on_fundus_small = {row[0]: row[2] for row in csv.reader((tables / "fidelity-tuning.csv").read_text().splitlines())}
    for name, tier in {(row["entry"], row["gradients"]) for row in rows}:
        own = [row for row in rows if (row["entry"], row["gradients"]) == (name, tier)]
        best = min(own, key=lambda row: float(row["total variation"]))
        head, large = (
            entry_run(entry(name), TARGETS[task], 100, float(tier), 0) for task in ("drawn-head", "fundus-100")
        )
        assert (name, head.optimizer.lr) == (name, float(best["rate"]))
        searched = re.search(r"lr ([\d.]+)", on_fundus_small.get(name, on_fundus_small["ensemble"]))
        assert (name, large.optimizer.lr) == (name, float(searched[1]))


def search(monkeypatch, tmp_path, reference, chosen, name="map", trials=3, **space):
    space = space or {"optimizer.lr": {"low": 1e-4, "high": 1e-1, "scale": "log"}}
    one = entry(name).model_copy(update={"search": {chosen.likelihood: space}})
    monkeypatch.setattr(tuning, "entries", lambda: {name: one})
    monkeypatch.setattr(tuning, "read_reference", lambda *_: reference)
    return tuning.tune(name, chosen, trials=trials, budget=30, out=tmp_path)


def test_the_least_distance_wins_and_everything_is_recorded(monkeypatch, tmp_path):
    chosen = classification_target()
    reference = classified(24, 5)
    record = search(monkeypatch, tmp_path, reference, chosen)
    written = json.loads((tmp_path / f"map-{chosen.name}.json").read_text())
    assert written | record.to_dict() == written
    assert (written["entry"], written["task"], written["budget"]) == ("map", chosen.name, 30)
    rates = [trial.settings["optimizer.lr"] for trial in record.trials]
    assert len(set(rates)) == 3
    assert record.best.distance == min(trial.distance for trial in record.trials)
    assert all(trial.gradients == 30 for trial in record.trials)
    assert written["seconds"] >= 0


def test_a_longer_search_goes_on_where_the_shorter_ended(monkeypatch, tmp_path):
    chosen = regression_target()
    reference = regressed(24)
    shorter = search(monkeypatch, tmp_path, reference, chosen, trials=2)
    run_entry, ran = tuning.run_entry, []
    monkeypatch.setattr(tuning, "run_entry", lambda *words, **more: ran.append(more) or run_entry(*words, **more))
    longer = search(monkeypatch, tmp_path, reference, chosen, trials=3)
    assert longer.trials[:2] == shorter.trials
    assert len(ran) == 1


def test_a_trial_that_breaks_is_recorded_and_cannot_win(monkeypatch, tmp_path):
    chosen = regression_target()
    record = search(
        monkeypatch, tmp_path, regressed(24), chosen, trials=4, **{"optimizer.lr": {"choices": [1e-3, 1e30]}}
    )
    broken = [trial for trial in record.trials if trial.distance is None]
    assert broken
    assert all(trial.settings["optimizer.lr"] == 1e30 and trial.why for trial in broken)
    assert record.best.settings["optimizer.lr"] == 1e-3


SEARCHED = [name for name, one in entries().items() if one.search]


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("task", ["fundus-small", "energy-gap-wall"])
def test_every_space_is_one_of_settings_that_its_entry_has(name, task):
    chosen = TARGETS[task]
    for settings in tuning.points(tuning.search_space(name, chosen), 0, 4, 0):
        words = [f"{key}={value}" for key, value in settings.items()]
        run = entry_run(entry(name), chosen, chosen.train, 1000, 0, words)
        assert load_run(**run.model_dump()) == run
