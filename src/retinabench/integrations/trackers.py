"""Run folders in TensorBoard, Weights & Biases and MLflow, for `retinabench track` and `retinabench train --track`.

A run is its settings, one row of numbers per epoch, and final scores. Every export may be repeated to add what is new; a training
repeats it after its checkpoints:

- TensorBoard: one event file per run, `OUT/RUN/events.out.tfevents.retinabench`. Every export makes the content of the whole
  file; where the present file is its beginning, as for a run in training, the rest is appended, because an open TensorBoard
  reads on from the end. TensorBoard's own modules write events and summaries; TensorFlow and PyTorch are not needed.
- Weights & Biases: one W&B run per run folder, with an id that depends on the name of the folder alone. Points on a server
  cannot be withdrawn: `OUT/exported.json` lists the last epoch sent of every run, and later epochs alone are sent.
  `WANDB_MODE=offline` writes below OUT without network, for a later `wandb sync`; there the whole run is written each time and
  its earlier folder deleted, because a sync replaces the result of an earlier one.
- MLflow: one run per run folder, found again by a tag with the folder's name. Without `MLFLOW_TRACKING_URI`, the runs are
  written into the database OUT/mlflow.db, for `mlflow ui`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinabench.core.errors import QUIET, Advance, InputError, Progress, WorkError, check, disposable, nearest
from retinabench.core.files import explain, write_bytes, write_json
from retinabench.core.results import JsonObject
from retinabench.core.settings import flat, read_checked
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions

INSTALL = "Install it with: pip install 'retinabench[track]'"
PROJECT = "retinabench"  # Project of Weights & Biases, experiment of MLflow.
Setting = str | float | bool


@dataclass(frozen=True)
class TrackedRun:
    """One run."""

    name: str  # name of its folder
    settings: Mapping[str, Setting]  # value by dotted key
    # per epoch its number and the values by tag, such as `loss`, `lr` and `validation/auroc`
    rows: tuple[tuple[int, Mapping[str, float]], ...]
    scores: Mapping[str, float]  # value by `score/SET/NAME`, undefined ones left out
    began: float  # time at which the run was first started, in seconds since 1970


def read_run(folder: Path) -> TrackedRun:
    about = folder / "run.json"
    try:
        content = json.loads(check(about).read_text())
        # Paths of the data are not settings, and would tell a server about the machine.
        run = {key: value for key, value in content["run"].items() if key not in ("data", "shifted")}
        settings: dict[str, Setting] = {  # trackers take single values: lists become their JSON
            key: value if isinstance(value, str | bool | int | float) else json.dumps(value)
            for key, value in flat(run)
            if value is not None
        }
        settings["fingerprint"] = content["fingerprint"]
        began = about.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        hint = "Name run folders, such as runs/*."
        raise InputError("is not a run folder (run.json is missing)", file=folder, hint=hint) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError("does not describe a run", file=about, hint="Train the run again.") from None
    scores: dict[str, float] = {}
    if (predictions := folder / "predictions.parquet").is_file():
        for name, one in score(read_predictions(predictions), bootstrap=0).sets.items():
            known = {key: entry.value for key, entry in one.scores.items() if math.isfinite(entry.value)}
            scores |= {f"score/{name}/{key}": value for key, value in known.items()}
    return TrackedRun(folder.resolve().name, settings, tuple(_rows(folder / "metrics.jsonl")), scores, began)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, float]]]:
    if not file.is_file():
        return
    for number, line in enumerate(check(file).read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            epoch = int(row.pop("epoch"))
            # `validation/auroc` for `validation_auroc`: trackers group by the part before the slash.
            values = {re.sub("^(validation|loss)_(?=.)", r"\1/", key): float(value) for key, value in row.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError("is not an epoch of a training", file=file, row=number) from None
        yield epoch, values


# ------------------------------------------------------------------------------- TensorBoard

FILE = "events.out.tfevents.retinabench"


def to_tensorboard(runs: Iterable[TrackedRun], out: Path) -> list[str]:
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise InputError("--to tensorboard needs TensorBoard", hint=INSTALL) from None
    written = []
    for record in runs:
        path, sink = out / record.name / FILE, io.BytesIO()
        writer = RecordWriter(sink)
        for event in _events(record):
            writer.write(event.SerializeToString())
        _put(path, sink.getvalue())
        written.append(str(path))
    return written


def _put(path: Path, content: bytes) -> None:
    """Append new content, or write the whole file; the next export completes an interrupted append."""
    before = check(path).read_bytes() if path.is_file() else b""
    if not before or not content.startswith(before):
        write_bytes(path, content)
        return
    try:
        with open(path, "ab") as handle:
            handle.write(content[len(before) :])
        disposable(path)  # it is not the file that this command wrote at first
    except OSError as error:
        raise explain(error, path) from error


def _events(record: TrackedRun) -> Iterator[Any]:
    """Yield version, settings, curves, and the scores at the last epoch, with the times of the training."""
    from tensorboard.compat.proto.event_pb2 import Event

    now = record.began
    yield Event(wall_time=now, file_version="brain.Event:2")
    yield Event(wall_time=now, summary=_hparams(record))
    epoch = 0
    for epoch, values in record.rows:
        now += values.get("seconds", 0.0)
        yield Event(wall_time=now, step=epoch, summary=_scalars(values))
    if record.scores:
        yield Event(wall_time=now, step=epoch, summary=_scalars(record.scores))


def _scalars(values: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])


def _hparams(record: TrackedRun) -> Any:
    """Return the summary for TensorBoard's page of hyper-parameters: one session in a group named after the run."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    session = plugin_data_pb2.SessionStartInfo(group_name=record.name, start_time_secs=record.began)
    for key, value in record.settings.items():
        field = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(session.hparams[key], field, value)
    about = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_start_info=session))
    one = Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
    return Summary(value=[one])


# ------------------------------------------------------------------------------- Weights & Biases

EXPORTED = "exported.json"


def to_wandb(runs: Iterable[TrackedRun], out: Path) -> list[str]:
    """Send new epochs and scores of every run to the project; return a line per run with new content."""
    try:
        import wandb
    except ImportError:
        raise InputError("--to wandb needs Weights & Biases", hint=INSTALL) from None
    exported: JsonObject = read_checked(out / EXPORTED, dict, "Choose another --out.") or {}
    lines = []
    out.mkdir(parents=True, exist_ok=True)
    for record in runs:
        key = f"{os.environ.get('WANDB_MODE', 'online')}/{PROJECT}/{run_id(record)}"
        before = exported.get(key, {"epoch": -1, "scores": ""})
        digest = hashlib.sha256(json.dumps(dict(record.scores), sort_keys=True).encode()).hexdigest()
        after = {"epoch": max((epoch for epoch, _ in record.rows), default=0), "scores": digest[:12]}
        if after == before:
            continue
        try:
            _send_to_wandb(wandb, record, out, before["epoch"])
        except wandb.errors.UsageError as error:
            hint = "Run `wandb login`, or set WANDB_MODE=offline and `wandb sync` later."
            raise InputError(f"Weights & Biases refuses: {error}", hint=hint) from None
        except wandb.errors.Error as error:
            raise WorkError(f"Weights & Biases: {error}. The same command sends the rest.") from None
        exported[key] = after
        write_json(out / EXPORTED, exported)  # after every run, so that an interrupted export continues
        lines.append(f"{record.name}: epochs {max(before['epoch'], 0)} to {after['epoch']}")
    return lines


def run_id(record: TrackedRun) -> str:
    """Return the id of a run: 16 digits of the hash of its folder's name, which ends in the hash of the run."""
    return hashlib.sha256(record.name.encode()).hexdigest()[:16]


def _send_to_wandb(wandb: Any, record: TrackedRun, out: Path, sent: int) -> None:
    """Log the scores and the epochs after `sent`; offline, all epochs."""
    # The machine that exports may not be the one that trained: its code, console and load are left out.
    settings = wandb.Settings(
        console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
    )
    run = wandb.init(
        project=PROJECT, id=run_id(record), name=record.name, config=dict(record.settings), dir=str(out), resume="allow",
        settings=settings,
    )  # fmt: skip
    try:
        for epoch, values in record.rows:
            if epoch > sent or run.offline:
                run.log(dict(values), step=epoch)
        run.summary.update(dict(record.scores))
    finally:
        run.finish()
    if run.offline:
        for folder in (out / "wandb").glob(f"offline-run-*-{run_id(record)}"):
            if folder.resolve() != Path(run.dir).resolve().parent:
                shutil.rmtree(folder)


# ------------------------------------------------------------------------------- MLflow

TAG, LAST = "retinabench.run", "retinabench.last_epoch"
MOST = 100  # parameters and metrics of one request; MLflow's own limits are 100 and 1,000


def to_mlflow(runs: Iterable[TrackedRun], out: Path) -> list[str]:
    """Send new epochs and scores of every run to the experiment; return a line per run with new content."""
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise InputError("--to mlflow needs MLflow", hint=INSTALL) from None
    out.mkdir(parents=True, exist_ok=True)
    address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{out.resolve()}/mlflow.db"
    try:
        client = MlflowClient(tracking_uri=address)
        found = client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else client.create_experiment(PROJECT)
        lines = [_send_to_mlflow(client, record, experiment) for record in runs]
    except MlflowException as error:
        raise WorkError(f"MLflow: {error}. The same command sends the rest.") from None
    return [line for line in lines if line]


def _send_to_mlflow(client: Any, record: TrackedRun, experiment: str) -> str:
    from mlflow.entities import Metric, Param

    name = record.name.replace("'", "")
    known = client.search_runs([experiment], f"tags.`{TAG}` = '{name}'", max_results=1)
    if known:
        run, sent = known[0].info.run_id, int(known[0].data.tags.get(LAST, -1))
    else:
        tags = {TAG: name, LAST: "-1"}
        run, sent = client.create_run(experiment, run_name=record.name, tags=tags).info.run_id, -1
        parameters = [Param(key, str(value)) for key, value in record.settings.items()]
        for start in range(0, len(parameters), MOST):
            client.log_batch(run, params=parameters[start : start + MOST])
    last = max((epoch for epoch, _ in record.rows), default=-1)
    held = known[0].data.metrics if known else {}
    scores = {key: value for key, value in record.scores.items() if held.get(key) != value}
    if last <= sent and not scores:
        return ""
    time = int(record.began * 1000)
    metrics = [
        Metric(key, value, time, epoch) for epoch, row in record.rows if epoch > sent for key, value in row.items()
    ]
    metrics += [Metric(key, value, time, max(last, 0)) for key, value in scores.items()]
    for start in range(0, len(metrics), MOST):
        client.log_batch(run, metrics=metrics[start : start + MOST])
    client.set_tag(run, LAST, str(last))
    if record.scores:
        client.set_terminated(run)
    return f"{record.name}: epochs {max(sent, 0)} to {max(last, 0)}"


TRACKERS = {"tensorboard": to_tensorboard, "wandb": to_wandb, "mlflow": to_mlflow}
"""Name -> what writes runs below a folder or to a server, and returns lines about what it wrote."""


def track_runs(folders: Sequence[Path], to: str, out: Path, progress: Progress = QUIET) -> list[str]:
    """Export run folders, finished or still in training, one after the other; return a line for each that was written."""
    if to not in TRACKERS:
        raise InputError(f"unknown tracker '{to}'", hint=nearest(to, TRACKERS))
    names = Counter(folder.resolve().name for folder in folders)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise InputError(f"two folders have the name '{twice[0]}'", hint="Export them to different --out folders.")
    for folder in folders:  # before anything is written
        if not (folder / "run.json").is_file():
            read_run(folder)
    with progress.track("Exporting", len(folders), unit="runs") as advance:
        return TRACKERS[to](_each_run(folders, advance), out)


PAUSE = 60.0  # seconds between exports of one run in training to a server


def live(to: str, out: Path, progress: Progress) -> Callable[[Path], None]:
    """Return what exports the folder of a run in training: to TensorBoard at every call, to a server once a minute and when it is done.

    A server that fails does not end the training.
    """
    track_runs([], to, out)  # names an unknown tracker, or a missing library, before the training
    sent: dict[Path, float] = {}

    def export(folder: Path) -> None:
        waits = to != "tensorboard" and time.monotonic() < sent.get(folder, -math.inf) + PAUSE
        if waits and not (folder / "done").is_file():
            return
        try:
            track_runs([folder], to, out)
        except WorkError as error:
            progress.say(f"note: {error} (retinabench track {folder} --to {to} --out {out})")
        sent[folder] = time.monotonic()

    return export


def _each_run(folders: Sequence[Path], advance: Advance) -> Iterator[TrackedRun]:
    for folder in folders:
        yield read_run(folder)
        advance(1)
