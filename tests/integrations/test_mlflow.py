"""MLflow receives every point of a run once, in its own files."""

from __future__ import annotations

import pytest

from retinabench.integrations.export import track_runs
from support.tracked_runs import finish, rows_of

pytest.importorskip("mlflow")


def test_every_point_stands_once_and_later_epochs_are_added(unfinished, trained, tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    # The database needs the whole of MLflow; its client alone writes files, which it wants to be asked for.
    out, address = tmp_path / "mlflow", (tmp_path / "files").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (line,) = track_runs([unfinished], "mlflow", out, project="retina")
    assert "epochs 0 to 2" in line
    assert track_runs([unfinished], "mlflow", out, project="retina") == []
    finish(unfinished, trained)
    assert len(track_runs([unfinished], "mlflow", out, project="retina")) == 1
    assert track_runs([unfinished], "mlflow", out, project="retina") == []
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("retina")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method.name"] == "dropout"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "loss")] == [
        row["epoch"] for row in rows_of(unfinished)
    ]
    assert any(name.startswith("score/in_domain/") for name in run.data.metrics)
    assert run.info.status == "FINISHED"
