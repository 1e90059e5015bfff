"""MLflow: one run per run folder, found again by a tag with the folder's name.

Without `MLFLOW_TRACKING_URI`, the runs are written into the database OUT/mlflow.db, for `mlflow ui`. Epochs that a run holds already are not sent again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError, WorkError
from retinabench.integrations.tracked_run import TrackedRun

TAG, LAST = "retinabench.run", "retinabench.last_epoch"
MOST = 100  # parameters and metrics of one request; MLflow's own limits are 100 and 1,000


def export(runs: Iterable[TrackedRun], out: Path, project: str) -> list[str]:
    """Send new epochs and scores of every run to the experiment `project`; return a line per run with new content."""
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        hint = "Install it with: pip install 'retinabench[track]'"
        raise InputError("--to mlflow needs MLflow", hint=hint) from None
    out.mkdir(parents=True, exist_ok=True)
    address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{out.resolve()}/mlflow.db"
    try:
        client = MlflowClient(tracking_uri=address)
        found = client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else client.create_experiment(project)
        lines = [_send(client, record, experiment) for record in runs]
    except MlflowException as error:
        raise WorkError(f"MLflow: {error}. The same command sends the rest.") from None
    return [line for line in lines if line]


def _send(client: Any, record: TrackedRun, experiment: str) -> str:
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
        Metric(key, value, time, epoch)
        for epoch, row in record.rows
        if epoch > sent
        for key, value in row.items()
    ]
    metrics += [Metric(key, value, time, max(last, 0)) for key, value in scores.items()]
    for start in range(0, len(metrics), MOST):
        client.log_batch(run, metrics=metrics[start : start + MOST])
    client.set_tag(run, LAST, str(last))
    if record.scores:
        client.set_terminated(run)
    return f"{record.name}: epochs {max(sent, 0)} to {max(last, 0)}"
