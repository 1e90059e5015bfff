"""The tables of a search, and the best run as TOML."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from retinabench.experiments.config import load_run
from retinabench.experiments.search.plots import marginals, parallel, write_figures
from retinabench.experiments.search.ranking import short_names, write_ranking
from retinabench.experiments.search.space import read_space, space_of
from support.rankings import made_ranking, mixed_ranking


def test_the_table_holds_every_trial_as_csv_and_json(begun, tmp_path):
    ranking = begun[1]
    write_ranking(ranking, tmp_path)
    with open(tmp_path / "ranking.csv", newline="") as handle:
        table = list(csv.DictReader(handle))
    found = json.loads((tmp_path / "ranking.json").read_text())
    assert [int(line["trial"]) for line in table] == [row.trial for row in ranking.rows]
    assert [line["trial"] for line in found["rows"]] == [row.trial for row in ranking.rows]
    for line, inner, row in zip(table, found["rows"], ranking.rows, strict=True):
        assert float(line["optimizer.lr"]) == row.values["optimizer.lr"] == inner["values"]["optimizer.lr"]
        assert (line["value"] == "") == math.isnan(row.value) == (inner["value"] is None)
        assert line["state"] == row.state
        if row.state == "done":
            assert float(line["value"]) == row.value
    assert (found["schema"], found["criterion"], found["rules"]) == (
        "retinabench.ranking/1", "in_domain_auroc", "corrected",
    )  # fmt: skip
    assert Path(found["rows"][0]["folder"]).name == found["rows"][0]["folder"]


@pytest.mark.parametrize(
    "source",
    ["demo/ensemble", "published/radial/severity/joint", "corrected/rank1/country/joint", "filos2019/mfvi"],
)
def test_any_run_survives_being_written_as_toml(source, tmp_path):
    from retinabench.experiments.search.ranking import to_toml

    run = load_run(source, ["method.samples=6"] if "rank1" in source else [], data="x", seed=3)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(run.model_dump(mode="json", exclude={"data", "shifted"})))
    assert load_run(file, data="x") == run


def test_odd_text_survives_being_written_as_toml():
    import tomllib

    from retinabench.experiments.search.ranking import to_toml

    tree = {
        "a": 'quote " back \\ line\n é \x7f \x00',
        "b": True,
        "c": 1e-300,
        "d": -7,
        "t": {"u": {"v": 1.0}},
    }
    assert tomllib.loads(to_toml(tree)) == tree


def test_parallel_coordinates_draw_every_trial_and_mark_the_best_and_the_lost():
    found = mixed_ranking()
    figure = parallel(found)
    [axes] = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == len(found.space) + 1]
    assert len(lines) == 40
    widest = max(lines, key=lambda line: line.get_linewidth())
    best = found.rows[0]
    heights = [p.position(best.values[p.key]) for p in found.space if not p.choices]
    drawn = [y for y, p in zip(widest.get_ydata(), found.space, strict=False) if not p.choices]
    assert drawn == pytest.approx(heights)
    assert widest.get_ydata()[-1] == max(line.get_ydata()[-1] for line in lines)
    assert sum(line.get_marker() == "x" for line in axes.lines) == 2
    # Ranges are drawn inside their axes, whatever the scale; a lost trial ends below the criterion's.
    for line in lines:
        assert all(0 <= y <= 1 for y in line.get_ydata()[:-1])
        assert 0 <= line.get_ydata()[-1] <= 1 or line.get_linestyle() != "-"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["best: trial 39, 0.8900", "next 2", "34 others", "1 stopped early", "2 without a value"]


def test_marginals_draw_every_trial_in_every_panel():
    found = mixed_ranking()
    figure = marginals(found)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_xlabel() for axes in panels] == short_names(found.space)
    for axes in panels:
        assert sum(line.get_marker() == "o" for line in axes.lines) == 38
        assert sum(line.get_marker() == "x" for line in axes.lines) == 2


def test_of_very_many_trials_the_best_are_drawn_and_all_are_counted():
    values = [0.5 + i / 1000 for i in range(300)] + [float("nan")] * 100
    found = made_ranking(read_space("demo/map"), values, dict.fromkeys(range(300, 400), "failed"))
    figure = parallel(found)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == len(found.space) + 1]
    assert len(lines) == 225
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "best: trial 299, 0.7990", "next 9", "290 others, the best 190 drawn", "100 without a value",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [[0.7], [0.7, 0.7, 0.7], [float("nan")] * 3, [0.6, float("nan"), 0.8]],
    ids=["one", "equal", "none", "few"],
)
def test_figures_of_few_or_equal_or_no_values_are_drawn(values, tmp_path):
    space = space_of(
        {"a": {"b": {"low": 1, "high": 3, "integer": True}, "c": {"choices": [True, "x_y", 3]}},
         "d.b": {"low": 0.9, "high": 0.9001, "scale": "log_complement"}, "e": {"low": 1e-7, "high": 2e-7, "scale": "log"}}
    )  # fmt: skip
    states = {i: "failed" for i, value in enumerate(values) if value != value}
    found = made_ranking(space, values, states)
    files = write_figures(found, tmp_path)
    assert short_names(space) == ["a.b", "c", "d.b", "e"]
    for file in files:
        if file.suffix == ".svg":
            assert ElementTree.parse(file).getroot().tag.endswith("svg")
        else:
            with Image.open(file) as picture:
                assert picture.width > 400
    again = [file.read_bytes() for file in files]
    assert [file.read_bytes() for file in write_figures(found, tmp_path)] == again
