"""Export of a finished run as a model that predicts without the training data (`exported.py` reads it)."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from torch import Tensor

from retinabench.core.atomic_files import atomic_write, write_bytes, write_json
from retinabench.core.checksums import check
from retinabench.core.errors import InputError, printable
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.loader import ImageSource
from retinabench.data.prepared import recipe_of
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.exported import ABOUT, FORMAT, SCALE, TRUNK, leaf_runs, load_model
from retinabench.experiments.features import feature_scale, trunk_features
from retinabench.experiments.run import FILE, run_folder
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.metrics.score import score
from retinabench.models.build import build_trunk
from retinabench.models.settings import SCALES
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit.renderers import escape_markdown

CARD_SCORES = ("auroc", "accuracy", "sensitivity", "specificity", "nll", "brier")
CARD_REPLICATES = 500
TEMPLATE = Path(__file__).parent / "templates" / "model_card.md.j2"


def export_run(folder: Path, out: Path) -> Path:
    """Write a finished run as a model that travels.

    Args:
        folder: The run's folder; members of an ensemble lie beside it.
        out: The folder to write; it must be new or empty.

    Returns:
        `out`.

    Raises:
        InputError: The run is not finished, its training data are gone, or `out` holds something else.
    """
    if not (folder / "done").is_file():
        raise InputError("holds no finished run", file=folder, hint="Finish it with: retinabench train …")
    manifest = json.loads(check(folder / "run.json").read_text())
    run = Run(**manifest["run"])
    task = load_task(run.data, run.task, run.shifted)
    if task.data.fingerprint != manifest["fingerprint"]:
        raise InputError(
            f"was trained on other data than {run.data} holds now", file=folder, hint="Restore them."
        )
    recipe = _recipe(task)
    workspace = Workspace(out, "model", ABOUT)
    with workspace.lock():
        members = list(leaf_runs(run))
        files = [f"member-{number}.safetensors" for number in range(len(members))]
        workspace.check_empty((*files, SCALE, TRUNK, "README.md"))
        for number, member in enumerate(members):
            source = folder if member == run else run_folder(member, folder.parent, task)
            _write_tensors(
                out / f"member-{number}.safetensors", load_tensors(source / "posterior.pt", mapped=True)
            )
        mean, std = _scale(run, task)
        _write_tensors(out / SCALE, {"mean": mean, "std": std})
        if run.model.trained == "head":
            _write_tensors(out / TRUNK, build_trunk(run.model).trunk.state_dict())
        write_bytes(out / "README.md", _card(run, task, recipe, folder).encode(), checked=True)
        write_json(out / ABOUT, {  # last: it makes the folder a model
            "format": FORMAT, "version": __version__, "data": task.data.name, "fingerprint": manifest["fingerprint"],
            "run": _portable(run), "recipe": asdict(recipe), "referable_from": task.data.referable_from,
        }, checked=True)  # fmt: skip
    load_model(out)
    return out


def _recipe(task: Task) -> Recipe:
    settings = recipe_of(task.data.folder)
    if "preprocess" not in settings:
        raise InputError(
            "does not say how its images were made",
            file=task.data.folder,
            hint="Prepare it with: retinabench prepare …",
        )
    chosen = {
        key: settings[key] for key in ("preprocess", "blur", "published") if settings.get(key) is not None
    }
    return Recipe(size=task.data.size, **chosen)


def _portable(run: Run) -> dict[str, Any]:
    """The settings of a run without the paths of this machine."""
    content = run.model_dump(mode="json", exclude={"data", "shifted"})
    if run.model.weights_file is not None:
        content["model"]["weights"] = run.model.weights_file.name
    return content


def _scale(run: Run, task: Task) -> tuple[Tensor, Tensor]:
    """Mean and std of what the network reads: features, or the channels of the images."""
    train, cpu = task.splits["train"], torch.device("cpu")
    if run.model.trained == "head":
        mean, std = feature_scale(trunk_features(run.model, task.data, cpu)[train])
        return torch.from_numpy(mean), torch.from_numpy(std)
    over = train if run.model.inputs == "standardised" else None
    statistics = ImageSource(task.data, cpu, over, scale=SCALES.get(run.model.inputs)).statistics
    return (
        (torch.zeros(3), torch.ones(3))
        if statistics is None
        else (statistics[0].ravel(), statistics[1].ravel())
    )


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    content = importlib.import_module("safetensors.torch").save(
        {k: v.contiguous() for k, v in tensors.items()}
    )
    with atomic_write(path, checked=True) as handle:
        handle.write(content)


def _card(run: Run, task: Task, recipe: Recipe, folder: Path) -> str:
    predictions = read_predictions(folder / FILE)
    found = score(predictions, bootstrap=CARD_REPLICATES, seed=run.seed)
    # The card is Markdown, not HTML; names in it are escaped as such.
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(TEMPLATE.read_text())  # noqa: S701
    sets = {
        name: {
            "images": one.images,
            "patients": one.patients,
            "rows": [(k, one[k]) for k in CARD_SCORES if k in one.scores],
        }
        for name, one in found.sets.items()
    }
    return template.render(
        run=run, title=escape_markdown(run.method.describe()), weights=_code(_portable(run)["model"].get("weights")), recipe=recipe, version=__version__, data=_code(task.data.name), sets=sets,
        referable_from=task.data.referable_from, train=len(task.splits["train"]),
        patients=len(np.unique(task.patient_id[task.splits["train"]])),
    )  # fmt: skip


def _code(name: str | None) -> str | None:
    """Return a name that stands between backticks; that of a data set may come from a stranger's folder."""
    return name and printable(name).replace("`", "'")
