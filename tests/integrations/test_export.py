"""Unknown trackers, missing libraries and damaged folders are named in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.integrations.export import track_runs
from retinabench.integrations.tracked_run import read_run


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_an_absent_library_says_how_to_install_it(tracker, trained, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == tracker]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, tracker, None)
    assert command(["track", str(trained), "--to", tracker, "--out", str(tmp_path / "out"), "-q"]) == 2
    assert "pip install 'retinabench[track]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_damaged_folders_are_named(unfinished, tmp_path):
    with pytest.raises(InputError, match="'tensorboard'"):
        track_runs([unfinished], "tensorbaord", tmp_path / "out", project="")
    with pytest.raises(InputError, match="two folders have the name"):
        track_runs([unfinished, unfinished], "tensorboard", tmp_path / "out", project="")
    with pytest.raises(InputError, match=r"10,001 runs are more than are exported at once \(10,000\)"):
        track_runs([unfinished] * 10_001, "tensorboard", tmp_path / "out", project="")
    with pytest.raises(InputError, match="not a run folder"):
        track_runs([unfinished, tmp_path / "none"], "tensorboard", tmp_path / "out", project="")
    with open(unfinished / "metrics.jsonl", "a") as handle:
        handle.write("{}\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl, row 3"):
        read_run(unfinished)
    (unfinished / "run.json").write_text("[]")
    with pytest.raises(InputError, match="describe a run"):
        read_run(unfinished)
    assert not (tmp_path / "out").exists()


def test_exporters_need_no_torch():
    code = "import sys, retinabench.integrations.export; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
