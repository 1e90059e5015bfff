"""The folder of a finished run: its settings, and the data that it was trained on, or what it keeps of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.run_folder import folder_name, read_run
from retinabench.experiments.trained_inputs import TrainedInputs, describe_inputs, read_inputs


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and what its folder says of its data.

    Args:
        folder: Its folder.
        run: Its settings.
        fingerprint: Of its data, as they were.
        inputs: What it reads; None for a run of an earlier version.
        network: The function of a user's network.
    """

    folder: Path
    run: Run
    fingerprint: str
    inputs: TrainedInputs | None
    network: str | None

    def training_data(self) -> Task | None:
        """Return the data that it was trained on; None where they are gone, and its folder holds all that is needed.

        Raises:
            InputError: They are gone, and an earlier version trained it, or it is a cross-validation, whose folds
                are divisions of them.
        """
        try:
            task = load_task(self.run.data, self.run.task, self.run.shifted)
        except InputError:
            if self.inputs is None or self.run.cross_validation is not None:
                raise
            return None
        if task.data.fingerprint == self.fingerprint:
            return task
        if self.inputs is None or self.run.cross_validation is not None:
            raise InputError(
                f"was trained on other data than {self.run.data} holds now",
                file=self.folder,
                hint="Restore them.",
            )
        return None

    def described(self) -> TrainedInputs:
        """Return what it reads, from its folder or from the training data.

        Raises:
            InputError: The training data are gone, and an earlier version trained it.
        """
        if self.inputs is not None:
            return self.inputs
        task = self.training_data()
        assert task is not None
        return describe_inputs(self.run, task)

    def member(self, run: Run) -> Path:
        """Return the folder of a run that this one combines; it lies beside."""
        return self.folder.parent / folder_name(run, self.fingerprint)


def finished_run(folder: Path, network: str | None = None) -> FinishedRun:
    """Read the folder of a finished run.

    Args:
        folder: The folder.
        network: The function of a user's network; see `read_run`.

    Returns:
        What the folder says.

    Raises:
        InputError: The run is not finished, or its folder is damaged.
    """
    if not (folder / "done").is_file():
        raise InputError("holds no finished run", file=folder, hint="Finish it with: retinabench train …")
    run = read_run(folder, network)
    fingerprint = str(json.loads(check(folder / "run.json").read_text())["fingerprint"])
    return FinishedRun(folder, run, fingerprint, read_inputs(folder), network)
