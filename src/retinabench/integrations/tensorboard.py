"""TensorBoard: one event file per run, `OUT/RUN/events.out.tfevents.retinabench`.

Every export makes the content of the whole file, so that no point is written twice. Where the present file is the beginning
of the new content, as for a run in training, only the rest is appended, because an open TensorBoard reads on from the end
of a file. TensorBoard's own modules write events and summaries; TensorFlow and PyTorch are not needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError
from retinabench.core.files import explain, write_bytes
from retinabench.integrations.tracked_run import TrackedRun

FILE = "events.out.tfevents.retinabench"


def export(runs: Iterable[TrackedRun], out: Path, project: str) -> list[str]:
    """Write the event files and return their paths."""
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        hint = "Install it with: pip install 'retinabench[track]'"
        raise InputError("--to tensorboard needs TensorBoard", hint=hint) from None
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
    before = path.read_bytes() if path.is_file() else b""
    if not before or not content.startswith(before):
        write_bytes(path, content)
        return
    try:
        with open(path, "ab") as handle:
            handle.write(content[len(before) :])
    except OSError as error:
        raise explain(error, path) from error


def _events(record: TrackedRun) -> Iterator[Any]:
    """Yield version, settings, curves, and the scores at the last epoch, with the times of the training."""
    from tensorboard.compat.proto.event_pb2 import Event

    now = record.began
    yield Event(wall_time=now, file_version="brain.Event:2")
    yield Event(wall_time=now, summary=_settings(record))
    epoch = 0
    for epoch, values in record.rows:
        now += values.get("seconds", 0.0)
        yield Event(wall_time=now, step=epoch, summary=_scalars(values))
    if record.scores:
        yield Event(wall_time=now, step=epoch, summary=_scalars(record.scores))


def _scalars(values: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])


def _settings(record: TrackedRun) -> Any:
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
