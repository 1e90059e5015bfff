import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import write_json
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.study import benchmark as module
from retinabench.experiments.study.benchmark import benchmark
from retinabench.experiments.study.definition import Study, read_study
from retinabench.experiments.study.prediction_files import ensembles, label_predictions
from retinabench.experiments.study.status import read_status, status_lines
from retinabench.experiments.study.study import base_run, cells, compute, is_drawn, most_runs, with_seeds
from retinabench.experiments.study.summary import summarise
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions
from support.forking import forked
from support.helpers import make_prepared
from support.killing import killing
from support.studies import BOTH, MINIMAL, TINY, Serial, study, tiny, written


def test_a_folder_with_other_things_is_not_touched(tmp_path):
    data = make_prepared(tmp_path / "data")
    out = tmp_path / "home"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and holds no benchmark"):
        benchmark(study(tmp_path, data), out, Serial())
    assert [file.name for file in out.iterdir()] == ["letter.txt"]


def test_what_diverges_or_fails_is_kept_marked_and_last(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_outputs", lambda *_, **_others: None)
    data = make_prepared(tmp_path / "data")
    definition = study(tmp_path, data, criteria=BOTH[:1], trials=1)
    engine = Serial(broken={("map", 1): "diverged", ("dropout", 1): "out_of_memory"})
    with pytest.raises(WorkError, match=r"country_shift/dropout failed .*tries them again"):
        benchmark(definition, tmp_path / "out", engine)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert not summary["complete"]
    (table,) = summary["tables"]
    rows = {entry["name"]: entry for entry in table["entries"]}
    area = {name: row["scores"].get("balanced", {}).get("referral_accuracy_area", {}) for name, row in rows.items()}
    assert rows["MAP"]["state"] == "diverged with seed 1"
    assert area["MAP"]["mean"] is None
    assert "rank" not in area["MAP"]
    assert table["entries"][0]["name"] == "MC dropout"
    assert area["MC dropout"] | {"rank": 1.0, "runs": 1} == area["MC dropout"]
    assert any("dropout, seed 1: out of memory: made to fail" in note for note in summary["notes"])
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "Not complete" in text
    assert "diverged with seed 1" in text

    status = read_status(definition, tmp_path / "out")
    lines = "\n".join(status_lines(status))
    assert {line.method: dict(line.runs) for line in status.lines} == {"map": {"failed": 1}, "dropout": {"failed": 1}}
    assert "dropout mlp seed 1: out of memory: made to fail" in lines

    shutil.rmtree(tmp_path / "out" / "country_shift" / "map" / "results")  # it would diverge again
    repaired = Serial()
    benchmark(definition, tmp_path / "out", repaired)
    assert {job.run.method.name for job in repaired.computed} == {"map", "dropout"}
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"]


def again(root, definition, out=None):
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


def test_methods_with_the_same_runs_have_folders_of_their_own(tmp_path):
    data = make_prepared(tmp_path / "data")
    twice = {name: {"config": "demo/map"} for name in ("one", "other")}
    definition = study(tmp_path, data, methods=twice, criteria=[], trials=0, bootstrap=0)
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
    small = {"criteria": BOTH[:1], "methods": {"map": {"space": str(tmp_path / "space.toml")}}, "bootstrap": 0}
    computed, summary = again(tmp_path, study(tmp_path, data, **small), tmp_path / "out")
    assert len(computed) == 2 + 1
    first = summary["choices"][0]["values"]

    seeds, _ = again(tmp_path, study(tmp_path, data, **small, seeds=3), tmp_path / "out")
    assert [job.run.seed for job in seeds] == [2]

    both = study(tmp_path, data, criteria=BOTH[:1], seeds=3, bootstrap=0)
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
        ("data", {"country_shift": "f" * 64}, r'another data\.country_shift: "f+.* there'),
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
    other = other.model_copy(update={"base": {**other.base, "optimizer": {**other.base["optimizer"], "epochs": 3}}})
    engine = Serial()
    with pytest.raises(InputError, match=r"optimizer\.epochs: 2 there, 3 here"):
        compute(other, root / "out", engine)
    assert engine.computed == []


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


@pytest.mark.parametrize("name", ["country", "severity"])
@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_the_published_choices_can_be_taken_instead_of_a_search(name, rules, tmp_path):
    study = read_study(name, ["trials=0", f"rules={rules}"])
    runs = [(cell, criterion) for cell in cells(study, tmp_path) for criterion in study.choices]
    found = {base_run(study, cell.task, cell.method, tmp_path, criterion) for cell, criterion in runs}
    # Radial and rank-1 have one choice for both criteria on the severity task.
    assert len(found) == 12 - 2 * (name == "severity")
    norms = {run.method.norm for run in found if run.method.name == "radial"}
    assert norms == {"per_filter" if rules == "published" else "layer"}


def test_a_method_s_name_is_short_for_its_table(tmp_path):
    text = MINIMAL + '\n[methods.other]\nrun = {method = "dropout", optimizer = {lr = 0.2}}\n'
    study = read_study(written(tmp_path, text), ["base.method.samples=2", "base.optimizer.lr=0.1"])
    run = base_run(study, next(iter(study.tasks)), "other", tmp_path)
    assert (run.method.name, run.method.samples, run.optimizer.lr) == ("dropout", 2, 0.2)


def test_repeated_cross_validation_gives_every_repeat_seeds_and_ensembles_of_its_own(tmp_path):
    study = read_study(written(tmp_path, MINIMAL), ["folds=4", "repeats=2", "seeds=3", "ensemble=2"])
    assert study.run_seeds == (0, 1, 2, 3, 4, 5)
    runs = with_seeds(study, base_run(study, "country_shift", "map", tmp_path))
    assert [(run.seed, run.cross_validation.repeat) for run in runs] == [(k, k // 3) for k in range(6)]
    assert all(run.cross_validation.folds == 4 for run in runs)
    assert ensembles(study) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    assert most_runs(study) == 6


def test_tasks_that_draw_alike_share_their_data(tmp_path):
    drawn = {"draw": {"images": 64, "size": 16}}
    tasks = {"country_shift": drawn, "in_domain": drawn}
    study = Study(**tiny(tmp_path, Path("d"), tasks=tasks, criteria=[], trials=0))
    folders = {base_run(study, task, "map", tmp_path).data for task in study.tasks}
    assert folders == {str(tmp_path / "data" / "synthetic-64-16-0")}
    assert not is_drawn(study, "in_domain", tmp_path)


# Number of the write within each command; the whole study has more than 30.
KILLS = [("before", 1), ("torn", 9), ("after", 20)]


def contents(out: Path) -> dict[str, bytes]:
    names = ("**/*.parquet", "**/choices.json", "summary.*", "study.json")
    files = [file for name in names for file in out.glob(name)]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def test_killed_again_and_again_it_ends_with_the_same_bytes(tmp_path, one_thread, monkeypatch):
    # Tables, pages and figures come after all that can be lost.
    monkeypatch.setattr(module, "write_outputs", lambda *_, **_others: None)
    definition = study(tmp_path, make_prepared(tmp_path / "data"), criteria=BOTH[:1], trials=1)
    benchmark(definition, tmp_path / "undisturbed", Serial())
    for how, target in KILLS:

        def killed(how=how, target=target):
            os.replace = killing(how, target)
            benchmark(definition, tmp_path / "killed", Serial())

        assert forked(killed) == -signal.SIGKILL
    benchmark(definition, tmp_path / "killed", Serial())
    expected, found = contents(tmp_path / "undisturbed"), contents(tmp_path / "killed")
    assert len(expected) > 12
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


HOME = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32))
AWAY = HOME[1:]


def definition(root, **changes):
    task = {"data": str(root / "home"), "shifted": [str(root / "near"), str(root / "far")]}
    return Study(**{
        "tasks": {"country_shift": task}, "methods": {"map": {}}, "base": TINY, "trials": 0, "seeds": 1,
        "ensemble": 0, "bootstrap": 0, **changes,
    })  # fmt: skip


def test_a_list_makes_a_task_of_each_which_is_trained_in_the_first(tmp_path):
    study = definition(tmp_path)
    near, far = study.tasks["country_shift"], study.tasks["country_shift-far"]
    assert (near.shifted, near.trained_in) == (str(tmp_path / "near"), "")
    assert (far.task, far.shifted, far.trained_in) == ("country_shift", str(tmp_path / "far"), "country_shift")
    assert Study(**study.model_dump()) == study
    twice = [str(tmp_path / name / "near") for name in "abc"]
    with pytest.raises(ValidationError, match="would be called country_shift-near"):
        definition(tmp_path, tasks={"country_shift": {"data": "d", "shifted": twice}})


@pytest.mark.parametrize("labels", [("deterministic", "dropout"), ("dropout", "deterministic")])
def test_a_method_on_the_weights_of_another_trains_nothing(tmp_path, monkeypatch, labels):
    make_prepared(tmp_path / "home", parts=HOME)
    for seed, name in enumerate(("near", "far"), start=1):
        make_prepared(tmp_path / name, parts=AWAY, seed=seed)
    epochs = []
    original = loop._epoch
    monkeypatch.setattr(loop, "_epoch", lambda *given: epochs.append(given[6]) or original(*given))
    member = {"name": "dropout", "samples": 3}
    off = {"name": "dropout_off", "member": member}
    runs = {"dropout": {"run": {"method": member}}, "deterministic": {"run": {"method": off}}}
    study = definition(tmp_path, methods={label: runs[label] for label in labels})
    chosen = compute(study, tmp_path / "out", Serial())
    assert epochs == [0, 1]  # of one run, that of MC dropout
    assert {choice.folders[0].parent for choice in chosen} == {tmp_path / "out" / "country_shift" / "dropout" / "runs"}
    weights = {(c.cell.task, c.cell.method): load_tensors(c.folders[0] / "posterior.pt") for c in chosen}
    assert len(weights) == 4
    first, *others = weights.values()
    tensors = {name: value for name, value in first.items() if isinstance(value, torch.Tensor)}
    assert tensors
    assert all(torch.equal(one[name], value) for one in others for name, value in tensors.items())


def test_each_data_set_is_predicted_with_the_weights_of_one_training(tmp_path, monkeypatch):
    make_prepared(tmp_path / "home", parts=HOME)
    make_prepared(tmp_path / "near", parts=AWAY, seed=1)
    make_prepared(tmp_path / "far", parts=AWAY, seed=2)
    epochs = []
    original = loop._epoch
    monkeypatch.setattr(loop, "_epoch", lambda *given: epochs.append(given[6]) or original(*given))
    chosen = compute(definition(tmp_path), tmp_path / "out", Serial())
    assert epochs == [0, 1]  # two epochs of one run
    near, far = (read_predictions(choice.folders[0] / "predictions.parquet") for choice in chosen)
    inside = [one.select(domain="in_domain") for one in (near, far)]
    assert (inside[0].prob == inside[1].prob).all()
    outside = [one.select(domain="shifted") for one in (near, far)]
    assert not set(outside[0].prob.tolist()) & set(outside[1].prob.tolist())
    # A run that is damaged gives no weights, and does not stop another one: that is trained.
    (chosen[0].folders[0] / "run.json").write_text("{")
    (chosen[1].folders[0] / "run.json").write_text("{")
    make_prepared(tmp_path / "third", parts=AWAY, seed=3)
    run = chosen[0].run.model_copy(update={"shifted": str(tmp_path / "third")})
    execute(run, chosen[0].cell.runs, Resources("cpu"))
    assert epochs == [0, 1, 0, 1]


def test_published_rules_score_as_released_without_intervals(finished, tmp_path):
    root, *_ = finished
    out = shutil.copytree(root / "out", tmp_path / "out")
    computed, summary = again(root, study(root, root / "data", rules="published"), out)
    entry = summary["tables"][0]["entries"][0]
    files = [read_predictions(out / file) for file in entry["files"]]
    values = [score(one, "published", 0).value("auroc") for one in files]
    found = entry["scores"]["in_domain"]["auroc"]
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["error"] == pytest.approx(np.std(values) / np.sqrt(len(values)))
    assert "rank_low" not in found
    assert all(job.run.seed == 1 for job in computed)  # another choice at most, never another trial


@pytest.mark.slow
def test_two_data_sets_under_one_kind_of_task_have_tables_of_their_own(tmp_path):
    data = [make_prepared(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    definition = study(
        tmp_path, data[0], tasks={p.name: {"task": "country_shift", "data": str(p)} for p in data},
        methods={"map": {}}, criteria=[], trials=0, seeds=1, ensemble=0,
    )  # fmt: skip
    benchmark(definition, tmp_path / "out", Serial())
    index = (tmp_path / "out" / "tables" / "index.md").read_text()
    tables = {file.stem for file in (tmp_path / "out" / "tables").rglob("*.md")}
    for name in ("one", "two"):
        assert name in index
        assert any(name in table for table in tables), tables
        assert (tmp_path / "out" / "report" / name).is_dir()
