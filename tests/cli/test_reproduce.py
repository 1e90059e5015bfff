import csv
import json
from pathlib import Path

import pytest

from cli.test_main import one_line
from retinabench.cli import main as cli
from support.kaggle_layout import write_aptos, write_eyepacs

SMALL_2019 = Path(__file__).resolve().parents[2] / "benchmarks" / "studies" / "small_2019.toml"
ALONE = [
    'base.model={name="resnet18", width=4, stem="small"}', "base.optimizer.epochs=1", "base.optimizer.batch_size=64",
    "bootstrap=20",
]  # fmt: skip
TINY = [*ALONE, "seeds=2", "ensemble=2", 'criteria=["in_domain_auroc"]']


@pytest.mark.slow
def test_downloads_become_tables_and_claims_and_a_second_command_computes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))  # drawing is slow
    write_eyepacs(tmp_path / "kaggle" / "eyepacs", "folder", share=0.006)
    write_aptos(tmp_path / "kaggle" / "aptos", "folder")
    out = tmp_path / "out"
    words = f"reproduce country --source {tmp_path}/kaggle --out {out} --size 32 --device cpu --network resnet50"
    words = words.split()
    assert cli.run([*words, "--workers", "1", *TINY]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("claims.md\n")
    for number, task in ((1, "country"), (2, "severity")):
        (file,) = (out / "tables" / "tables").glob(f"table-{number:02d}-*.csv")
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert {row["task"] for row in rows} == {f"{task}_shift"}
        assert len({row["method"] for row in rows}) == 12
    claims = json.loads((out / "claims.json").read_text())["claims"]
    assert [one["section"] for one in claims].count("6.2") == 6
    assert claims[0]["verdict"] == "undefined"  # an AUROC of severe cases alone
    assert all(one["statements"][0]["low"] is not None for one in claims[6:])
    before = {path: path.stat().st_mtime_ns for path in out.rglob("predictions.parquet")}
    assert len(before) == 24
    assert cli.run([*words, "--quiet", *TINY]) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("predictions.parquet")} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["reproduce", "country", "--draw", "0.001", "--size", "32", *ALONE, "seeds=1", "ensemble=0"], "claims.md"),
        (["benchmark", str(SMALL_2019), "tasks.hold_out_2019.draw.size=32"], "tables/tables/table-2019-1-hold-out-2019.md"),
    ],
)  # fmt: skip
def test_a_paper_is_rehearsed_on_drawn_retinas(words, made, tmp_path, monkeypatch):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))  # drawing is slow
    assert cli.run([*words, "--device", "cpu", "--workers", "1", "--quiet", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / made).is_file()


@pytest.mark.parametrize("words", [[], ["--source", "somewhere", "--draw", "0.1"]])
def test_images_are_either_named_or_drawn(words, tmp_path, capsys):
    assert cli.run(["reproduce", "country", "--out", str(tmp_path / "out"), *words]) == 2
    assert "--source" in one_line(capsys)
