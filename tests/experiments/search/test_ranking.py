"""The tables of a search, and the best run as TOML."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.search.ranking import write_ranking


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
