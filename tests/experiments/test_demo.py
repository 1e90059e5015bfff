"""The demo asks for the runs that its page compares; `retinabench demo` itself takes minutes (benchmarks/)."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from retinabench.core.progress import QUIET, Progress
from retinabench.experiments import demo as module
from retinabench.experiments.execution import member_runs

NETWORKS = [("demo/map", 6), ("demo/map", 7), ("demo/map", 8), ("demo/dropout", 2)]


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_three_seeds_of_map_dropout_and_their_ensemble_on_one_drawn_data_set(tmp_path, monkeypatch, capsys, workers):
    asked, drawn, page, trained = [], {}, tmp_path / "report" / "index.html", []

    def prepare(name, folder, **options):
        drawn.update(name=name, folder=folder, **options)
        return SimpleNamespace(image=None)

    def execute(run, out, resources):
        asked.append((run.method.name, run.seed, run.task))
        assert out == tmp_path / "runs"
        assert resources.progress is QUIET  # the bar of the trainings has named every network
        return out

    def evaluate(methods, settings, **options):
        assert [(name, len(files)) for name, files in methods.items()] == [
            ("MAP", 3), ("MC dropout", 1), ("deep ensemble of 3", 1),
        ]  # fmt: skip
        return SimpleNamespace(files=[[]], sets={}, controls=None)

    def in_processes(work, items, count):
        assert count == min(workers, 4)
        trained.extend(items)
        yield from enumerate(items)

    monkeypatch.setattr(module, "in_processes", in_processes)
    monkeypatch.setattr(module, "prepare", prepare)
    monkeypatch.setattr(module, "execute", execute)
    monkeypatch.setattr(module, "read_predictions", lambda path: path)
    monkeypatch.setattr(module, "evaluate_methods", evaluate)
    monkeypatch.setattr(module, "write_evaluation", lambda *_, **__: page)
    monkeypatch.setattr(module, "scores_table", lambda *_: "the table")
    assert module.run_demo(tmp_path, seed=2, images=64, workers=workers, progress=Progress()) == page
    assert trained == NETWORKS
    assert asked == [
        *(("map", seed, "country_shift") for seed in (6, 7, 8)),
        ("dropout", 2, "country_shift"), ("ensemble", 2, "country_shift"),
    ]  # fmt: skip
    assert (drawn["name"], drawn["images"], drawn["seed"]) == ("synthetic", 64, 2)
    assert drawn["folder"] == tmp_path / "data"
    shown = capsys.readouterr().out
    assert "the table" in shown
    assert shown.splitlines()[-1] == str(page)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_ensembles_members_are_the_seeds_of_map(seed):
    run = module.load_run("demo/ensemble", data="d", task="country_shift", seed=seed)
    members = member_runs(run)
    assert [one.seed for one in members] == [module.SEEDS * seed + k for k in range(module.SEEDS)]


@pytest.mark.slow
def test_the_picture_of_readme_shows_the_numbers_of_this_demo(tmp_path):
    """To .02: other processors round differently, and a training amplifies it."""
    page = module.run_demo(tmp_path, progress=QUIET)
    entries = {one["entry"]: one for one in json.loads((page.parent / "scores.json").read_text())}
    scores = entries["deep ensemble of 3"]["sets"]["in_domain"]["scores"]
    words = re.search(r'alt="Report of the demo: ([^"]*)"', Path("README.md").read_text())[1]
    value, low, high, found = map(
        float, re.search(r"accuracy of (\S+) \[(\S+), (\S+)\], finds (\d+) %", words).groups()
    )
    shown = [scores["accuracy"][name] for name in ("value", "low", "high")]
    assert shown == pytest.approx([value, low, high], abs=0.02)
    assert scores["sensitivity"]["value"] == pytest.approx(found / 100, abs=0.05)
    assert "The uncertainty is better than chance" in page.read_text()
