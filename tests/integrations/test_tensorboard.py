"""TensorBoard reads back what the run folder holds, once, however often it is exported."""

from __future__ import annotations

import shutil

import pytest

import retinabench as rb
from retinabench.integrations.export import track_runs
from retinabench.integrations.tensorboard import FILE
from retinabench.integrations.tracked_run import read_run
from support.tracked_runs import finish, rows_of


def read_events(folder):
    """Return TensorBoard's own reading of a folder: {tag: [(step, value)]}, and the settings."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import metadata

    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    scalars = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    settings = {key: getattr(value, value.WhichOneof("kind")) for key, value in session.hparams.items()}
    return scalars, settings


def test_tensorboard_reads_the_run_back(trained, tmp_path):
    (path,) = track_runs([trained], "tensorboard", tmp_path, project="")
    assert path == str(tmp_path / trained.name / FILE)
    scalars, settings = read_events(tmp_path / trained.name)
    rows = rows_of(trained)
    for tag, key in (("loss", "loss"), ("lr", "lr"), ("validation/auroc", "validation_auroc")):
        assert [step for step, _ in scalars[tag]] == [1, 2, 3]
        # Scalars of an event file are single precision.
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
    track_runs([unfinished], "tensorboard", out, project="")
    first = (out / unfinished.name / FILE).read_bytes()
    track_runs([unfinished], "tensorboard", out, project="")
    assert (out / unfinished.name / FILE).read_bytes() == first
    scalars, _ = read_events(out / unfinished.name)
    assert [step for step, _ in scalars["loss"]] == [1, 2]
    assert not any(tag.startswith("score/") for tag in scalars)

    # A page that is open follows the file by its end: the same file, longer. Here the last append was killed half-way.
    (out / unfinished.name / FILE).write_bytes(first[:-9])
    inode = (out / unfinished.name / FILE).stat().st_ino
    finish(unfinished, trained)
    track_runs([unfinished], "tensorboard", out, project="")
    assert (out / unfinished.name / FILE).stat().st_ino == inode
    scalars, _ = read_events(out / unfinished.name)
    assert [step for step, _ in scalars["loss"]] == [1, 2, 3]
    assert len(scalars["score/in_domain/auroc"]) == 1
    # Scores by other rules are other points: the file is replaced.
    track_runs([unfinished], "tensorboard", out, project="", rules="published")
    scalars, _ = read_events(out / unfinished.name)
    assert [step for step, _ in scalars["loss"]] == [1, 2, 3]
    assert len(scalars["score/in_domain/auroc"]) == 1
    assert [path.name for path in (out / unfinished.name).iterdir()] == [FILE]


def test_an_ensemble_has_scores_without_epochs(trained, tmp_path):
    folder = tmp_path / "ensemble"
    folder.mkdir()
    for name in ("run.json", "predictions.parquet"):
        shutil.copy(trained / name, folder)
    record = read_run(folder)
    assert record.rows == ()
    assert "score/joint/accuracy" in record.scores
    track_runs([folder], "tensorboard", tmp_path / "tb", project="")
    scalars, _ = read_events(tmp_path / "tb" / "ensemble")
    assert [step for step, _ in scalars["score/joint/accuracy"]] == [0]
