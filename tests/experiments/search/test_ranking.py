import csv
import json
import math
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from retinabench.experiments.config import load_run
from retinabench.experiments.search import ranking as module
from retinabench.experiments.search.ranking import Trial, TrialRanking, in_order, short_names, to_toml, write_figure
from retinabench.experiments.search.space import points, space_of

pytestmark = pytest.mark.usefixtures("legible")


def test_the_table_holds_every_trial_as_csv_and_json(begun, tmp_path):
    ranking = begun[1]
    module.write_ranking(ranking, tmp_path)
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
    "source", ["demo/ensemble", "published/radial/severity/joint", "corrected/rank1/country/joint", "filos2019/mfvi"]
)
def test_any_run_survives_being_written_as_toml(source, tmp_path):
    run = load_run(source, ["method.samples=6"] if "rank1" in source else [], data="x", seed=3)
    file = tmp_path / "run.toml"
    file.write_text(to_toml(run.model_dump(mode="json", exclude={"data", "shifted"})))
    assert load_run(file, data="x") == run


def test_odd_text_survives_being_written_as_toml():
    tree = {"a": 'quote " back \\ line\n é \x7f \x00', "b": True, "c": 1e-300, "d": -7, "t": {"u": {"v": 1.0}}}
    assert tomllib.loads(to_toml(tree)) == tree


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
    run = load_run("demo/map", data="x")
    drawn = zip(points(space, 0, len(values), 0), values, strict=True)
    state = [("it broke" if i in states else "", states.get(i, "done")) for i in range(len(values))]
    rows = [Trial(i, x, run, state[i][1], v, state[i][0], 1.0, 1, None) for i, (x, v) in enumerate(drawn)]
    found = TrialRanking("in_domain_auroc", "corrected", space, in_order(rows))
    assert short_names(space) == ["a.b", "c", "d.b", "e"]
    svg, png = write_figure(found, tmp_path)
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with Image.open(png) as picture:
        assert picture.width > 400
