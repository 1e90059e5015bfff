"""A tiny study from end to end: what it computes, what it does not compute again, what it refuses, what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.core.atomic_files import write_json
from retinabench.core.errors import InputError
from retinabench.experiments.study.prediction_files import label_predictions
from retinabench.experiments.study.runner import compute
from retinabench.experiments.study.summary import summarise
from retinabench.predictions.io import read_predictions
from support.helpers import make_prepared
from support.studies import BOTH, Serial, study


def again(root, definition, out=None):
    """Compute a study once more; return what was computed and the summary."""
    engine, out = Serial(), out or root / "out"
    chosen = compute(definition, out, engine)
    entries = label_predictions(definition, out, chosen)
    return engine.computed, summarise(definition, out, chosen, entries).to_dict()


def test_trials_and_seeds_are_computed_once_each(finished):
    _, _, engine, summary = finished
    hashes = [job.run.hash("f") for job in engine.computed]
    assert len(hashes) == len(set(hashes))
    assert [job.run.seed for job in engine.computed[:4]] == [0] * 4  # all trials of all methods come first
    choices = {json.dumps([c["method"], c["values"]]) for c in summary["choices"]}
    assert len(hashes) == 4 + len(choices)  # the chosen trials are the first seed's runs
    assert [table["criterion"] for table in summary["tables"]] == BOTH
    assert summary["complete"]


def test_trials_keep_their_seconds_in_the_searches_tables(finished):
    root, *_ = finished
    for method in ("map", "dropout"):
        folder = root / "out" / "country_shift" / method / f"{BOTH[0]}-corrected"
        rows = json.loads((folder / "ranking.json").read_text())["rows"]
        assert all(row["seconds"] > 0 for row in rows)


def test_methods_with_the_same_runs_have_folders_of_their_own(tmp_path):
    data = make_prepared(tmp_path / "data")
    twice = {name: {"config": "demo/map"} for name in ("one", "other")}
    definition = study(tmp_path, data, methods=twice, criteria=[], trials=0)
    computed, summary = again(tmp_path, definition, tmp_path / "out")
    assert len(computed) == 4
    assert summary["complete"]
    names = {entry["name"] for entry in summary["tables"][0]["entries"]}
    assert names == {f"{what}MAP ({label})" for what in ("", "ensemble of 2 ") for label in ("one", "other")}
    assert summary["tables"][0]["criterion"] == "as_configured"


def test_ensembles_are_pooled_from_files_that_say_what_they_are(finished):
    root, *_ = finished
    folder = root / "out" / "predictions" / "country_shift" / BOTH[1] / "dropout"
    singles = [read_predictions(folder / f"seed-{k}.parquet") for k in (0, 1)]
    pooled = read_predictions(folder / "ensemble-0-1.parquet")
    assert np.array_equal(pooled.probs, np.concatenate([one.probs for one in singles], axis=1))
    assert pooled.metadata["criterion"] == BOTH[1]
    assert pooled.metadata["members"] == 2
    assert pooled.metadata["title"] == "ensemble of 2 MC dropout"
    assert singles[1].metadata["criterion"] == BOTH[1]


def test_a_finished_study_computes_nothing_and_writes_the_same_bytes(finished):
    root, definition, *_ = finished
    before = {file: file.read_bytes() for file in (root / "out").glob("summary.*")}
    stamps = {file: file.stat().st_mtime_ns for file in (root / "out" / "predictions").rglob("*.parquet")}
    computed, _ = again(root, definition)
    assert computed == []
    assert {file: file.read_bytes() for file in before} == before
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps


def test_what_is_added_is_all_that_is_computed(tmp_path):
    data = make_prepared(tmp_path / "data")
    small = {"criteria": BOTH[:1], "methods": {"map": {"space": str(tmp_path / "space.toml")}}}
    computed, summary = again(tmp_path, study(tmp_path, data, **small), tmp_path / "out")
    assert len(computed) == 2 + 1
    first = summary["choices"][0]["values"]

    seeds, _ = again(tmp_path, study(tmp_path, data, **small, seeds=3), tmp_path / "out")
    assert [job.run.seed for job in seeds] == [2]

    both = study(tmp_path, data, criteria=BOTH[:1], seeds=3)
    method, _ = again(tmp_path, both, tmp_path / "out")
    assert {job.run.method.name for job in method} == {"dropout"}
    assert len(method) == 2 + 2

    trials, longer = again(tmp_path, study(tmp_path, data, **small, seeds=3, trials=3), tmp_path / "out")
    changed = longer["choices"][0]["values"] != first
    assert len(trials) == 1 + 2 * changed
    # The method that was left out again has no files any more; its runs stay.
    assert not list((tmp_path / "out" / "predictions").glob("*/*/dropout/*.parquet"))
    assert list((tmp_path / "out" / "country_shift" / "dropout" / "runs").glob("*/done"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("protocol", 1, r"another protocol: 1 there, \d+ here"),
        ("version", "0.0.1", r'another version: "0\.0\.1" there'),
        (
            "data",
            {"country_shift": "f" * 64},
            r'another data\.country_shift: "f+.* there',
        ),
    ],
)
def test_other_code_and_other_data_are_refused_with_both_sides(finished, key, value, words):
    root, definition, *_ = finished
    file = root / "out" / "study.json"
    before = json.loads(file.read_text())
    write_json(file, before | {key: value}, checked=True)
    try:
        with pytest.raises(InputError, match=rf"{words}.*choose another --out"):
            again(root, definition)
    finally:
        write_json(file, before, checked=True)


def test_another_configuration_under_the_same_name_is_refused(finished):
    root, *_ = finished
    other = study(root, root / "data")
    other = other.model_copy(
        update={"base": {**other.base, "optimizer": {**other.base["optimizer"], "epochs": 3}}}
    )
    engine = Serial()
    with pytest.raises(InputError, match=r"optimizer\.epochs: 2 there, 3 here"):
        compute(other, root / "out", engine)
    assert engine.computed == []


def test_a_criterion_without_its_images_is_refused_before_anything_is_computed(tmp_path):
    data, engine = make_prepared(tmp_path / "data"), Serial()
    definition = study(tmp_path, data, tasks={"in_domain": {"data": str(data)}})
    with pytest.raises(InputError, match=r"tasks\.in_domain: has no shifted validation images"):
        compute(definition, tmp_path / "out", engine)
    assert engine.computed == []
    assert not (tmp_path / "out").exists()


def test_a_method_without_any_trial_does_not_stop_the_others(tmp_path):
    data = make_prepared(tmp_path / "data")
    definition = study(tmp_path, data, criteria=BOTH[:1], trials=1)
    engine = Serial(broken={("map", 0): "diverged"})
    chosen = compute(definition, tmp_path / "out", engine)
    entries = label_predictions(definition, tmp_path / "out", chosen)
    summary = summarise(definition, tmp_path / "out", chosen, entries).to_dict()
    names = [entry["name"] for entry in summary["tables"][0]["entries"]]
    assert sorted(names[:2]) == ["MC dropout", "ensemble of 2 MC dropout"]
    assert {entry["state"] for entry in summary["tables"][0]["entries"][2:]} == {"no trial has a value"}
    assert not summary["complete"]
