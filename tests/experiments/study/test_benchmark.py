"""The whole command: what fails is kept and marked, and a folder with other things is not touched."""

from __future__ import annotations

import json

import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.experiments.study import benchmark as module
from retinabench.experiments.study import console
from retinabench.experiments.study.benchmark import benchmark
from retinabench.experiments.study.status import read_status
from support.helpers import make_prepared
from support.studies import BOTH, Serial, study


def test_a_folder_with_other_things_is_not_touched(tmp_path):
    data = make_prepared(tmp_path / "data")
    out = tmp_path / "home"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and holds no benchmark"):
        benchmark(study(tmp_path, data), out, Serial())
    assert [file.name for file in out.iterdir()] == ["letter.txt"]


def test_what_diverges_or_fails_is_kept_marked_and_last(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_outputs", lambda *_: None)
    data = make_prepared(tmp_path / "data")
    definition = study(tmp_path, data, criteria=BOTH[:1], trials=1)
    engine = Serial(broken={("map", 1): "diverged", ("dropout", 1): "out_of_memory"})
    with pytest.raises(WorkError, match=r"country_shift/dropout failed .*tries them again"):
        benchmark(definition, tmp_path / "out", engine)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert not summary["complete"]
    (table,) = summary["tables"]
    rows = {entry["name"]: entry for entry in table["entries"]}
    area = {
        name: row["scores"].get("balanced", {}).get("referral_accuracy_area", {})
        for name, row in rows.items()
    }
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
    lines = "\n".join(console.status_lines(status))
    assert {line.method: dict(line.runs) for line in status.lines} == {
        "map": {"failed": 1},
        "dropout": {"failed": 1},
    }
    assert "dropout resnet18 seed 1: out of memory: made to fail" in lines

    repaired = Serial()
    benchmark(definition, tmp_path / "out", repaired)
    assert {job.run.method.name for job in repaired.computed} == {"map", "dropout"}
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"]
