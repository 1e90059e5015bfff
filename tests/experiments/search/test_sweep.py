"""The folder of a search, and the runs of its trials."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments import config
from retinabench.experiments.config import load_run
from retinabench.experiments.search import sweep
from retinabench.experiments.search.space import points, read_space, space_of
from retinabench.experiments.search.sweep import check_space, trial_runs
from support.helpers import make_prepared
from support.searching import SPACE, Serial, again, base_run, pretend


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1}, ["seed: 0 there, 1 here"]),
        (
            {"space": space_of({**SPACE, "method": {"rate": {"low": 0.0, "high": 0.4}}})},
            ["space.method.rate.high: 0.5 there, 0.4 here"],
        ),
        ({"space": space_of({k: SPACE[k] for k in ("method", "optimizer")})}, ["another order of keys"]),
    ],
)
def test_a_folder_of_another_sweep_is_refused(data, copy, options, words):
    engine = Serial(pretend)
    with pytest.raises(InputError) as caught:
        again(data, copy, engine, **options)
    for word in [str(copy), "choose another --out", *words]:
        assert word in str(caught.value)
    assert engine.computed == []


def test_another_base_other_data_another_version_and_protocol_are_refused_by_name(
    data, copy, tmp_path, monkeypatch
):
    with pytest.raises(InputError, match=r"base\.optimizer\.epochs: 3 there, 4 here"):
        again(data, copy, base=base_run(data, "optimizer.epochs=4"))
    other = make_prepared(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match=r"fingerprint: .* there, .* here"):
        again(other, copy)
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "__version__", "9.9.9")
        with pytest.raises(InputError, match=r'version: "0\.\S+" there, "9\.9\.9" here'):
            again(data, copy)
    monkeypatch.setattr(sweep, "PROTOCOL", 99)
    with pytest.raises(InputError, match=f"protocol: {config.PROTOCOL} there, 99 here"):
        again(data, copy)


def test_what_the_space_varies_may_differ_in_the_base(data, copy):
    _, engine = again(data, copy, base=base_run(data, "optimizer.lr=0.5", "method.rate=0.3"))
    assert engine.computed == []


def test_a_damaged_manifest_is_refused(data, copy):
    (copy / "sweep.json").write_text("{")
    with pytest.raises(InputError, match=r"sweep\.json: is damaged"):
        again(data, copy)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"optimizer.lrr": {"low": 1, "high": 2}},
            ["unknown key 'optimizer.lrr'", "Did you mean 'optimizer.lr'?"],
        ),
        ({"optimizer": {"lr": {"low": 0.0, "high": 1.0}}}, ["optimizer.lr", "greater than 0"]),
        ({"optimizer": {"momentum": {"low": 0.5, "high": 1.0}}}, ["optimizer.momentum", "less than 1"]),
        ({"method": {"rate": {"choices": [0.1, 1.5]}}}, ["method.rate", "1.5"]),
        ({"method": {"name": {"choices": ["map", "mfvi"]}}}, ["unknown key 'method.name'"]),
        ({"seed": {"low": 0, "high": 9, "integer": True}}, ["unknown key 'seed'"]),
        ({"optimizer": {"schedule": {"choices": ["step", "stepp"]}}}, ["optimizer.schedule", "'stepp'"]),
        ({"method": {"samples": {"low": 1.0, "high": 5.0}}}, ["method.samples"]),
    ],
)
def test_a_space_that_the_run_refuses_is_refused_by_file_and_key(tmp_path, table, words):
    base = load_run("demo/dropout", data="x")
    with pytest.raises(InputError) as caught:
        trial_runs(base, space_of(table, file=tmp_path / "s.toml"), 4, 0)
    for word in [str(tmp_path / "s.toml"), *words]:
        assert word in str(caught.value)


def test_values_that_fit_alone_but_not_together_name_the_trial():
    base = load_run("demo/map", ["method.name=rank1", "method.samples=4"], data="x")
    space = space_of({"method": {"samples": {"choices": [4, 6]}, "components": {"choices": [1, 2, 4]}}})
    with pytest.raises(InputError, match=r"trial \d+: .*no multiple of components"):
        trial_runs(base, space, 32, 0)


def test_trials_take_the_values_of_their_points():
    base, space = load_run("demo/dropout", data="x"), read_space("demo/dropout")
    for run, values in zip(trial_runs(base, space, 6, 0), points(space, 0, 6, 0), strict=True):
        assert (run.optimizer.lr, run.method.rate) == (values["optimizer.lr"], values["method.rate"])
        assert run.optimizer.epochs == base.optimizer.epochs


def test_members_of_an_ensemble_have_keys_of_their_own():
    base = load_run("demo/ensemble", ["method.member.name=dropout"], data="x")
    space = space_of({"method": {"member": {"rate": {"low": 0.1, "high": 0.3}}}})
    check_space(base, space)
    assert 0.1 <= trial_runs(base, space, 1, 0)[0].method.member.rate <= 0.3
