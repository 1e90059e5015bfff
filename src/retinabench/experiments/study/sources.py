"""The data of a study: prepared folders by name, or data sets that it draws itself."""

from __future__ import annotations

from pathlib import Path

from retinabench.core.progress import QUIET, Progress
from retinabench.data.ingest.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.study.definition import Drawn, Study


def data_folder(study: Study, label: str, out: Path) -> Path:
    """Return where the prepared data of a task lie, or will lie; tasks that draw alike share them."""
    task = study.tasks[label]
    if task.draw is not None:
        return out / "data" / f"synthetic-{task.draw.images}-{task.draw.size}-{task.draw.seed}"
    assert task.data is not None
    return Path(task.data)


def open_tasks(study: Study, out: Path, progress: Progress = QUIET) -> dict[str, Task]:
    """Draw what is to be drawn, and open every task by its label.

    Raises `InputError` where a folder, or a task on it, is not usable.
    """
    for label, task in study.tasks.items():
        if task.draw is not None:
            draw(task.draw, data_folder(study, label, out), progress)
    return {label: open_task(study, label, out) for label in study.tasks}


def open_task(study: Study, label: str, out: Path) -> Task:
    """Open one task whose data are there."""
    task = study.tasks[label]
    return load_task(data_folder(study, label, out), task.task or label, task.shifted)


def is_drawn(study: Study, label: str, out: Path) -> bool:
    """Tell whether a task's data are there, or need no drawing."""
    return study.tasks[label].draw is None or (data_folder(study, label, out) / "dataset.json").is_file()


def draw(drawn: Drawn, folder: Path, progress: Progress = QUIET) -> None:
    """Draw and prepare a data set, or find it done."""
    prepare(
        "synthetic",
        folder,
        recipe=Recipe(drawn.size),
        images=drawn.images,
        seed=drawn.seed,
        progress=progress,
    )
