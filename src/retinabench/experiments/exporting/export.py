"""Export of a finished run as a model that predicts without the training data (`exported.py` reads it)."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from retinabench.core.atomic_files import atomic_write, remove, write_bytes, write_json
from retinabench.core.errors import InputError, printable
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.prepared.manifest import PIXEL_SETTINGS
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run
from retinabench.experiments.execution import POSTERIOR
from retinabench.experiments.exporting.about import ABOUT, CARD, FORMAT
from retinabench.experiments.exporting.exported import SCALE, TRUNK, load_model
from retinabench.experiments.exporting.frozen_rule import THRESHOLD
from retinabench.experiments.exporting.member_files import leaf_runs, member_file
from retinabench.experiments.run import FILE
from retinabench.experiments.run_folder import finished_run
from retinabench.experiments.trained_inputs import TrainedInputs
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.metrics.score import score
from retinabench.models.build import build_trunk
from retinabench.models.own_network import source_of
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.renderers import escape_markdown

CARD_SCORES = ("auroc", "accuracy", "sensitivity", "specificity", "nll", "brier")
CARD_REPLICATES = 500
PACKAGE = "retinabench.experiments.exporting"


def export_run(folder: Path, out: Path, network: str | None = None, *, scores: bool = True) -> Path:
    """Write a finished run as a model that travels.

    Args:
        folder: The run's folder; members of an ensemble lie beside it.
        out: The folder to write; it must be new or empty.
        network: The function of a user's network, which the model will name; see `read_run`.
        scores: Whether the card states the scores of the run.

    Returns:
        `out`.

    Raises:
        InputError: The run is not finished, an earlier version trained it on data that are gone, or `out` holds something else.
    """
    finished = finished_run(folder, network)
    run, inputs = finished.run, finished.described()
    recipe = _recipe(inputs, folder)
    how = {
        key: value for key, value in asdict(recipe).items() if key != "corrupt"
    }  # new images are not to be damaged
    with _nothing_left_of_a_failure(out):
        workspace = Workspace(out, "model", ABOUT)
        with workspace.lock():
            members = list(leaf_runs(run))
            files = [member_file(number) for number in range(len(members))]
            workspace.check_empty((*files, SCALE, TRUNK, CARD))
            remove(out / THRESHOLD)  # of the model that was here before
            for number, member in enumerate(members):
                source = folder if member == run else finished.member(member)
                _write_tensors(out / member_file(number), load_tensors(source / POSTERIOR, mapped=True))
            mean, std = inputs.scale
            _write_tensors(out / SCALE, {"mean": torch.from_numpy(mean), "std": torch.from_numpy(std)})
            if run.model.trained == "head":
                _write_tensors(out / TRUNK, build_trunk(run.model).trunk.state_dict())
            write_bytes(
                out / CARD, _card(run, inputs, recipe, folder if scores else None).encode(), checked=True
            )
            write_json(out / ABOUT, {  # last: it makes the folder a model
                "format": FORMAT, "version": __version__, "data": inputs.data, "fingerprint": finished.fingerprint,
                "run": _portable(run), "recipe": how, "referable_from": inputs.referable_from,
                **({"network_sha256": source_of(run.model.name).sha256} if run.model.own else {}),
            }, checked=True)  # fmt: skip
        load_model(out, model=run.model.name if run.model.own else None)
    return out


@contextmanager
def _nothing_left_of_a_failure(out: Path) -> Iterator[None]:
    """Remove a folder that did not exist before, where the model in it turns out not to be usable."""
    new = not out.exists()
    try:
        yield
    except BaseException:
        if new:
            shutil.rmtree(out, ignore_errors=True)
        raise


def _recipe(inputs: TrainedInputs, folder: Path) -> Recipe:
    known = inputs.settings
    if known.preprocess is None:
        raise InputError(
            "was trained on images of which it is not known how they were made",
            file=folder,
            hint="Prepare them with: retinabench prepare …",
        )
    return Recipe(
        size=inputs.size,
        **{key: value for key in PIXEL_SETTINGS if (value := getattr(known, key)) is not None},
    )


def _portable(run: Run) -> JsonObject:
    """The settings of a run without the paths of this machine."""
    content = run.model_dump(mode="json", exclude={"data", "shifted"})
    if run.model.weights_file is not None:
        content["model"]["weights"] = run.model.weights_file.name
    return content


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    content = importlib.import_module("safetensors.torch").save(
        {k: v.contiguous() for k, v in tensors.items()}
    )
    with atomic_write(path, checked=True) as handle:
        handle.write(content)


def _card(run: Run, inputs: TrainedInputs, recipe: Recipe, folder: Path | None) -> str:
    """The model card, with the scores of the run in `folder`."""
    found = (
        {}
        if folder is None
        else score(read_predictions(folder / FILE), bootstrap=CARD_REPLICATES, seed=run.seed).sets
    )
    sets = {
        name: {
            "images": one.images,
            "patients": one.patients,
            "rows": [(k, one[k].to_dict()) for k in CARD_SCORES if k in one.scores],
        }
        for name, one in found.items()
    }
    context = {
        "run": run, "title": escape_markdown(run.method.describe()),
        "weights": _code(_portable(run)["model"].get("weights")), "recipe": recipe, "sets": sets, "inputs": inputs,
        "data": _code(inputs.data),
    }  # fmt: skip
    return pages.render("model_card.md.j2", context, package=PACKAGE)


def _code(name: str | None) -> str | None:
    """Return a name that stands between backticks; that of a data set may come from an untrusted folder."""
    return name and printable(name).replace("`", "'")
