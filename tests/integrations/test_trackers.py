import json
import shutil
import struct
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run as command
from retinabench.core.errors import InputError
from retinabench.experiments import run as runs_on_images
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.integrations import trackers
from retinabench.integrations.trackers import FILE, read_run, run_id, track_runs
from retinabench.methods.training.checkpoint import Checkpoint
from support.helpers import TINY, make_prepared


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def finish(unfinished: Path, trained: Path) -> None:
    for name in ("metrics.jsonl", "predictions.parquet"):
        shutil.copy(trained / name, unfinished)


@pytest.fixture(scope="session")
def easy(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("easy") / "data")


@pytest.fixture(scope="session")
def trained(easy, tmp_path_factory):
    run = load_run(None, [*TINY, "method=dropout"], data=str(easy))
    return execute(run, tmp_path_factory.mktemp("tracking"), Resources("cpu"))


@pytest.fixture
def unfinished(trained, tmp_path):
    folder = tmp_path / "runs" / trained.name
    folder.mkdir(parents=True)
    shutil.copy(trained / "run.json", folder)
    lines = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))
    return folder


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
        track_runs([unfinished], "tensorbaord", tmp_path / "out")
    with pytest.raises(InputError, match="two folders have the name"):
        track_runs([unfinished, unfinished], "tensorboard", tmp_path / "out")
    with pytest.raises(InputError, match="not a run folder"):
        track_runs([unfinished, tmp_path / "none"], "tensorboard", tmp_path / "out")
    with open(unfinished / "metrics.jsonl", "a") as handle:
        handle.write("{}\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl, row 3"):
        read_run(unfinished)
    (unfinished / "run.json").write_text("[]")
    with pytest.raises(InputError, match="describe a run"):
        read_run(unfinished)
    assert not (tmp_path / "out").exists()


def read_events(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import metadata

    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    settings = {key: getattr(value, value.WhichOneof("kind")) for key, value in session.hparams.items()}
    return scalars, settings


def test_tensorboard_reads_the_run_back(trained, tmp_path):
    (path,) = track_runs([trained], "tensorboard", tmp_path)
    assert path == str(tmp_path / trained.name / FILE)
    scalars, settings = read_events(tmp_path / trained.name)
    rows = rows_of(trained)
    for tag, key in (("loss", "loss"), ("lr", "lr"), ("validation/auroc", "validation_auroc")):
        assert [step for step, _ in scalars[tag]] == [1, 2, 3]
        assert [value for _, value in scalars[tag]] == pytest.approx([row[key] for row in rows], rel=1e-6)
    expected = rb.score(rb.read_predictions(trained / "predictions.parquet"), bootstrap=0)
    for name in ("in_domain", "shifted"):
        ((step, value),) = scalars[f"score/{name}/auroc"]
        assert step == 3
        assert value == pytest.approx(expected.value("auroc", name), rel=1e-6)
    assert settings["method.name"] == "dropout"
    assert settings["optimizer.lr"] == 0.05
    assert settings["seed"] == 0
    assert not {"data", "shifted"} & set(settings)


def test_an_export_can_be_repeated_and_continued(unfinished, trained, tmp_path):
    out = tmp_path / "tb"
    track_runs([unfinished], "tensorboard", out)
    first = (out / unfinished.name / FILE).read_bytes()
    track_runs([unfinished], "tensorboard", out)
    assert (out / unfinished.name / FILE).read_bytes() == first
    scalars, _ = read_events(out / unfinished.name)
    assert [step for step, _ in scalars["loss"]] == [1, 2]
    assert not any(tag.startswith("score/") for tag in scalars)

    # A page that is open follows the file by its end: the same file, longer. Here the last append was killed half-way.
    (out / unfinished.name / FILE).write_bytes(first[:-9])
    inode = (out / unfinished.name / FILE).stat().st_ino
    finish(unfinished, trained)
    track_runs([unfinished], "tensorboard", out)
    assert (out / unfinished.name / FILE).stat().st_ino == inode
    scalars, _ = read_events(out / unfinished.name)
    assert [step for step, _ in scalars["loss"]] == [1, 2, 3]
    assert len(scalars["score/in_domain/auroc"]) == 1
    assert [path.name for path in (out / unfinished.name).iterdir()] == [FILE]


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_training_is_seen_while_it_runs(tracker, easy, tmp_path, monkeypatch, server):
    """After every checkpoint the tracker holds the epochs so far, and at the end the scores, without a second command."""
    seen = []

    def look(checkpoint, state, save=Checkpoint.save):
        save(checkpoint, state)
        seen.append(epochs())

    def epochs():
        if tracker == "wandb":
            return [step for run in server.runs.values() for step, _ in run["points"]]
        (folder,) = (tmp_path / "tracking").iterdir()
        return [step for step, _ in read_events(folder)[0]["loss"]]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trackers, "PAUSE", 0)
    monkeypatch.setattr(Checkpoint, "save", look)
    monkeypatch.setattr(runs_on_images, "SAVED_EVERY", 0)
    assert command(["train", "--data", str(easy), "--track", tracker, "--device", "cpu", "-q", *TINY]) == 0
    assert seen == [[1], [1, 2], [1, 2, 3]]
    (folder,) = (tmp_path / "runs").iterdir()
    expected = read_run(folder).scores["score/in_domain/auroc"]
    if tracker == "wandb":
        (run,) = server.runs.values()
        assert run["summary"]["score/in_domain/auroc"] == expected
    else:
        ((_, value),) = read_events(tmp_path / "tracking" / folder.name)[0]["score/in_domain/auroc"]
        assert value == pytest.approx(expected, rel=1e-6)


def test_a_server_that_fails_does_not_end_the_training(easy, tmp_path, monkeypatch, server, capsys):
    monkeypatch.chdir(tmp_path)
    server.fail_after = 0
    train = ["train", "--data", str(easy), "--device", "cpu", *TINY, "optimizer.epochs=1", "--track"]
    assert command([*train, "wandb"]) == 0
    assert "the server is gone" in capsys.readouterr().err
    assert command([*train, "wanbd"]) == 2


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
    track_runs([unfinished], "wandb", out)
    finish(unfinished, trained)
    track_runs([unfinished], "wandb", out)
    assert track_runs([unfinished], "wandb", out) == []
    points, config, summary = {}, {}, {}
    (file,) = out.glob("wandb/offline-run-*/*.wandb")  # the second export holds the first
    for record in scan(file):
        if record.HasField("history"):
            values = {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}
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


def test_every_point_stands_once_and_later_epochs_are_added(unfinished, trained, tmp_path, monkeypatch):
    MlflowClient = pytest.importorskip("mlflow.tracking").MlflowClient
    # The database needs the whole of MLflow; its client alone writes files, which it wants to be asked for.
    out, address = tmp_path / "mlflow", (tmp_path / "files").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (line,) = track_runs([unfinished], "mlflow", out)
    assert "epochs 0 to 2" in line
    assert track_runs([unfinished], "mlflow", out) == []
    finish(unfinished, trained)
    assert len(track_runs([unfinished], "mlflow", out)) == 1
    assert track_runs([unfinished], "mlflow", out) == []
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("retinabench")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method.name"] == "dropout"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [one.step for one in history] == [row["epoch"] for row in rows_of(unfinished)]
    assert any(name.startswith("score/in_domain/") for name in run.data.metrics)
    assert run.info.status == "FINISHED"
