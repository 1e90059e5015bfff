"""Weights & Biases receives every point of a run once, from a server in memory and from the real library offline."""

from __future__ import annotations

import json
import struct
import sys
import types

import numpy as np
import pytest

from retinabench.cli.main import run as command
from retinabench.integrations.export import track_runs
from retinabench.integrations.tracked_run import read_run
from retinabench.integrations.wandb import run_id
from support.tracked_runs import finish, rows_of


class Server(types.ModuleType):
    """What the exporter uses of wandb, kept in memory: runs by id, across processes as a server would."""

    def __init__(self):
        super().__init__("wandb")
        self.runs: dict[str, dict] = {}
        self.fail_after = None
        self.errors = types.SimpleNamespace(Error=RuntimeError, UsageError=LookupError)

    def Settings(self, **settings):  # noqa: N802
        return settings

    def init(self, **given):
        run = self.runs.setdefault(given["id"], {"points": [], "summary": {}})
        run["config"] = given["config"]

        def log(values, step):
            if self.fail_after is not None and step > self.fail_after:
                raise self.errors.Error("the server is gone")
            run["points"].append((step, values))

        return types.SimpleNamespace(log=log, summary=run["summary"], finish=lambda: None, offline=False)


@pytest.fixture
def server(monkeypatch):
    found = Server()
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


def test_weights_and_biases_gets_every_point_once(unfinished, trained, tmp_path, server):
    out = tmp_path / "wandb"
    (line,) = track_runs([unfinished], "wandb", out, project="retina")
    assert "epochs 0 to 2" in line
    assert track_runs([unfinished], "wandb", out, project="retina") == []
    finish(unfinished, trained)
    track_runs([unfinished], "wandb", out, project="retina")
    assert track_runs([unfinished], "wandb", out, project="retina") == []
    (run,) = server.runs.values()
    assert [step for step, _ in run["points"]] == [1, 2, 3]
    assert [values["loss"] for _, values in run["points"]] == [row["loss"] for row in rows_of(trained)]
    assert run["config"]["method.name"] == "dropout"
    assert run["summary"] == read_run(trained).scores


def test_a_server_that_fails_is_one_line_and_the_command_repeats(trained, tmp_path, server, capsys):
    arguments = ["track", str(trained), "--to", "wandb", "--out", str(tmp_path / "w"), "-q"]
    server.fail_after = 0
    assert command(arguments) == 1
    assert "the server is gone" in capsys.readouterr().err
    server.fail_after = None
    assert command(arguments) == 0
    (run,) = server.runs.values()
    assert [step for step, _ in run["points"]] == [1, 2, 3]


def scan(file):
    """Read the records of a .wandb file: blocks of 32 KiB of LevelDB's log format after 7 bytes of header."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts, found = file.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def test_the_real_library_offline(unfinished, trained, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "offline"
    track_runs([unfinished], "wandb", out, project="retina")
    finish(unfinished, trained)
    track_runs([unfinished], "wandb", out, project="retina")
    assert track_runs([unfinished], "wandb", out, project="retina") == []
    points, config, summary = {}, {}, {}
    (file,) = out.glob("wandb/offline-run-*/*.wandb")  # the second export holds the first
    for record in scan(file):
        if record.HasField("history"):
            values = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            assert values["_step"] not in points
            points[values["_step"]] = values
        if record.HasField("run"):
            assert record.run.run_id == run_id(read_run(trained))
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.HasField("summary"):
            summary |= {item.key: json.loads(item.value_json) for item in record.summary.update}
    rows = rows_of(trained)
    assert sorted(points) == [1, 2, 3]
    assert [points[step]["validation/nll"] for step in (1, 2, 3)] == [row["validation_nll"] for row in rows]
    assert config["model.name"] == "resnet18"
    expected = read_run(trained).scores
    assert {key: summary[key] for key in expected} == expected
    assert np.isfinite(list(expected.values())).all()
