"""TensorBoard: one event file per run, `OUT/RUN/events.out.tfevents.retinabench`.

The whole file is made anew at every export, so that no point is ever doubled. Where what lies there is its beginning, as
of a run still in training, only the rest is appended: a TensorBoard that is open follows a file by its end. Records
are framed and summaries are made by TensorBoard's own modules; TensorFlow and PyTorch are not needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import explain, write_bytes
from retinabench.core.errors import InputError
from retinabench.integrations.record import Record

FILE = "events.out.tfevents.retinabench"


def export(records: Sequence[Record], out: Path, project: str) -> list[str]:
    """Write the event files; return their paths. TensorBoard has no projects.

    Raises `InputError` where TensorBoard is not installed.
    """
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        hint = "Install it with: pip install 'retinabench[track]'"
        raise InputError("--to tensorboard needs TensorBoard", hint=hint) from None
    written = []
    for record in records:
        path, sink = out / record.name / FILE, io.BytesIO()
        writer = RecordWriter(sink)
        for event in _events(record):
            writer.write(event.SerializeToString())
        _put(path, sink.getvalue())
        written.append(str(path))
    return written


def _put(path: Path, content: bytes) -> None:
    """Append what is new, or write the file whole; an append that is killed is completed by the next export."""
    before = path.read_bytes() if path.is_file() else b""
    if not before or not content.startswith(before):
        write_bytes(path, content)
        return
    try:
        with open(path, "ab") as handle:
            handle.write(content[len(before) :])
    except OSError as error:
        raise explain(error, path) from error


def _events(record: Record) -> Iterator[Any]:
    """Yield version, settings, the curves, and the scores at the last epoch; the clock is that of the training."""
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


def _settings(record: Record) -> Any:
    """Return what TensorBoard's page of hyper-parameters shows: one session, named after its group, the run."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    session = plugin_data_pb2.SessionStartInfo(group_name=record.name, start_time_secs=record.began)
    for key, value in record.settings.items():
        field = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(session.hparams[key], field, value)
    about = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_start_info=session))
    one = Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
    return Summary(value=[one])
