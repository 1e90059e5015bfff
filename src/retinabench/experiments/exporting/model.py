"""A model that travels: a folder that predicts raw images, or rows of a table, anywhere, without the data that it was trained on.

The folder holds

- `model.json`: the run without its paths, the preprocessing of the images or the encoding of the columns, the definition of the label;
- `scale.safetensors`: mean and std of the channels, or of the features, over the training images;
- `member-0.safetensors` ...: the posterior of each trained member;
- `trunk.safetensors`: the trunk, where the head was trained alone;
- `README.md`: the model card.

It holds tensors and JSON only, so that no code of an untrusted folder runs.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.errors import InputError, printable
from retinabench.core.files import atomic_write, remove, write_bytes, write_json
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.loader import BatchLimits, with_less
from retinabench.data.prepared import PIXEL_SETTINGS
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tables import Feature, columns_of, fit_features
from retinabench.experiments.config import Run
from retinabench.experiments.execution import POSTERIOR, Resources
from retinabench.experiments.exporting.frozen_rule import THRESHOLD, AttachedRule, read_rule
from retinabench.experiments.exporting.model_files import (
    ABOUT,
    CARD,
    FORMAT,
    leaf_runs,
    member_file,
    one_line,
    read_about,
    read_extractor,
    read_posterior,
    read_scale,
    read_tensors,
)
from retinabench.experiments.features import Extractor
from retinabench.experiments.run import FILE, PREDICT_BATCH
from retinabench.experiments.run_folder import FinishedRun, TrainedInputs, finished_run
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior, fingerprint, precision
from retinabench.metrics.scoring import score
from retinabench.models.build import build_trunk, set_arithmetic
from retinabench.models.foreign import source_of
from retinabench.models.settings import TIMM
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.tables import escape_markdown

Result = TypeVar("Result")
Inputs: TypeAlias = NDArray[Any]  # images (N, size, size, 3) uint8, or of a table (N, D) float32
SCALE, TRUNK = "scale.safetensors", "trunk.safetensors"
TRIED_SIZE = 64  # of the image that a network of any size is tried with


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A trained model, ready to predict; `load_model` reads one.

    Args:
        folder: Where it was read from.
        run: The run that it was trained by; `run.data` is the name of the data set.
        recipe: How an image is made from a file.
        referable_from: The lowest grade with label 1.
        members: Each member's run and posterior.
        mean: Of the channels (3,) or of the features (D,), over the training images.
        std: Likewise.
        extract: Images (B, size, size, 3) -> features (B, D), where the head was trained alone; otherwise None.
        device: Where it computes.
        config_hash: Of the run.
        weights: Fingerprint of the tensors, as in the metadata of predictions.
        notes: What a user must know of it.
        rule: The threshold or zones that are attached to it.
        limits: The most images at a time, once memory ran out.
        features: How the columns of a table become inputs; empty for a model of images.

    Examples:
        >>> import retinabench as rb
        >>> [name for name in ("predict", "run") if name in dir(rb.ExportedModel)]
        ['predict']
    """

    folder: Path
    run: Run
    recipe: Recipe
    referable_from: int
    members: tuple[tuple[Run, Posterior], ...]
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    extract: Extractor | None
    device: torch.device
    config_hash: str
    weights: str
    notes: tuple[str, ...] = ()
    rule: AttachedRule | None = None
    limits: BatchLimits = field(default_factory=BatchLimits)
    features: tuple[Feature, ...] = ()

    def predict(self, images: Inputs) -> NDArray[np.float64]:
        """Return P(referable) of every posterior sample, member by member.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`; of a table (N, D) float32, made by `encoded(columns, features)`.

        Returns:
            (N, S) probabilities.

        Raises:
            InputError: The images have another shape, or the model predicts values that are not finite.
        """
        return self._within_memory(images, self._probs)

    def uncertainty(self, images: Inputs) -> NDArray[np.float64] | None:
        """Return the model's own uncertainty (N,), the mean over its members; None where a member has none.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`.

        Raises:
            InputError: The images have another shape.
        """
        return self._within_memory(images, self._own)

    def predict_both(self, images: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return what `predict` and `uncertainty` return; the features of the trunk are computed once."""
        return self._within_memory(images, lambda inputs: (self._probs(inputs), self._own(inputs)))

    def _within_memory(self, images: Inputs, compute: Callable[[Sequence[Tensor]], Result]) -> Result:
        """`compute` of the batches, smaller ones where memory runs out; each batch draws noise of its own."""
        return with_less(
            lambda most: compute(self._batches(images, most)), lambda: None, self.limits, "prediction", PREDICT_BATCH,
            self.device,
        )  # fmt: skip

    def _probs(self, inputs: Sequence[Tensor]) -> NDArray[np.float64]:
        probs = np.concatenate([self._samples(*member, inputs) for member in self.members], axis=1)
        if not np.isfinite(probs).all():
            raise InputError("predicts values that are not finite", file=self.folder)
        return probs

    def _own(self, inputs: Sequence[Tensor]) -> NDArray[np.float64] | None:
        posteriors = [posterior for _, posterior in self.members]
        scoring = [posterior for posterior in posteriors if isinstance(posterior, UncertaintyPosterior)]
        if len(scoring) < len(posteriors):
            return None
        with precision(self.run, self.device), torch.no_grad():
            found = [torch.cat([posterior.uncertainty(some) for some in inputs]) for posterior in scoring]
        return np.asarray(np.mean([one.cpu().double().numpy() for one in found], axis=0))

    def _batches(self, images: Inputs, most: int) -> list[Tensor]:
        size = self.recipe.size
        fits = len(images) and images.shape[1:] == (size, size, 3) and images.dtype == np.uint8
        if not self.features and not fits:
            needed = f"Needed are (N, {size}, {size}, 3) uint8: preprocess_bytes(data, model.recipe, name) makes one."
            raise InputError(f"images have shape {images.shape} and type {images.dtype}", hint=needed)
        return [self.inputs(images[k : k + most]) for k in range(0, len(images), most)]

    def _samples(self, run: Run, posterior: Posterior, inputs: Sequence[Tensor]) -> NDArray[np.float64]:
        generator, probs = torch_generator(self.device, run.seed, "predict"), []
        for some in inputs:
            with precision(run, self.device), torch.no_grad():
                drawn = posterior.predict(some, run.method.samples, generator)
            probs.append(drawn[..., 1].T.cpu().double().numpy())
        return np.concatenate(probs)

    def inputs(self, images: Inputs) -> Tensor:
        """Return what the networks read of images (B, H, W, 3)."""
        mean, std = (torch.from_numpy(values).to(self.device) for values in (self.mean, self.std))
        if self.features:
            return torch.from_numpy(images).to(self.device)
        if self.extract is not None:
            return (torch.from_numpy(self.extract(images)).to(self.device) - mean) / std
        stored = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).to(torch.float32).div_(255)
        return stored.sub_(mean.reshape(1, 3, 1, 1)).div_(std.reshape(1, 3, 1, 1))


def load_model(folder: str | Path, device: str = "cpu", *, model: str | None = None) -> ExportedModel:
    """Read a model that `retinabench export` wrote.

    Args:
        folder: The folder.
        device: Where it computes: `auto`, `cpu`, `cuda` or `cuda:N`.
        model: Where the network is a user's own function, that function, `package.module:function`; no other code runs.

    Returns:
        The model.

    Raises:
        InputError: The folder holds no model, a file of it is missing, damaged, not finite or of another network, a user's
            function is not named, or the device is absent.

    Examples:
        >>> import retinabench as rb
        >>> try:
        ...     rb.load_model("no/such/folder")
        ... except ValueError as error:
        ...     print(str(error).partition(".")[0])
        no/such/folder: holds no exported model
    """
    folder = Path(folder)
    about = read_about(folder, model)
    run, where = about.run, Resources(device).torch_device()
    members, weights, rule = [], [], read_rule(folder)
    columns = sum(one.width for one in about.features) or None
    set_arithmetic(run.optimizer.precision, where)
    for number, member in enumerate(leaf_runs(run)):
        path = folder / member_file(number)
        tensors = read_tensors(path)
        members.append((member, read_posterior(member, tensors, where, path, columns)))
        weights.append(fingerprint(tensors))
    joined = "+".join(weights)
    if rule is not None and (rule.config_hash, rule.weights) != (about.config_hash, joined):
        raise InputError("was chosen for other weights than these", file=folder / THRESHOLD)
    mean, std = read_scale(folder / SCALE, run, columns)
    found = ExportedModel(
        folder, run, about.recipe, about.referable_from, tuple(members), mean, std,
        read_extractor(run, where, folder / TRUNK), where, about.config_hash, joined, about.notes, rule,
        features=about.features,
    )  # fmt: skip
    _try(found)
    return found


def _try(model: ExportedModel) -> None:
    """Predict a black image, or zeros: tensors of other shapes than the posterior's would fail only when a network computes."""
    whole = model.run.model.own or model.run.model.name.startswith(TIMM)
    size = model.recipe.size if whole else min(model.recipe.size, TRIED_SIZE)
    black = np.zeros((1, size, size, 3), np.uint8)
    inputs = model.inputs(np.zeros((1, len(model.mean)), np.float32) if model.features else black)
    for number, (run, posterior) in enumerate(model.members):
        try:
            with precision(run, model.device), torch.no_grad():
                posterior.predict(inputs, 1, torch_generator(model.device, run.seed, "predict"))
        except Exception as error:  # a network that computes with tensors of wrong shapes may raise anything
            problem = f"holds the tensors of another network ({one_line(error)})"
            raise InputError(problem, file=model.folder / member_file(number)) from None


CARD_SCORES = ("auroc", "accuracy", "sensitivity", "specificity", "nll", "brier")
CARD_REPLICATES = 500
PACKAGE = "retinabench.experiments.exporting"


def export_run(folder: Path, out: Path, network: str | None = None, *, scores: bool = True) -> Path:
    finished = finished_run(folder, network)
    run, inputs = finished.run, finished.described()
    how = _how_read(finished, inputs)
    with ExitStack() as undo:
        if not out.exists():  # a new folder does not stay where the model in it turns out not to be usable
            undo.callback(shutil.rmtree, out, ignore_errors=True)
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
            write_bytes(out / CARD, _card(run, inputs, how, folder if scores else None).encode(), checked=True)
            write_json(out / ABOUT, {  # last: it makes the folder a model
                "format": FORMAT, "version": __version__, "data": inputs.data, "fingerprint": finished.fingerprint,
                "run": _portable(run), **how, "referable_from": inputs.referable_from,
                **({"network_sha256": source_of(run.model.name).sha256} if run.model.own else {}),
            }, checked=True)  # fmt: skip
        load_model(out, model=run.model.name if run.model.own else None)
        undo.pop_all()
    return out


def _how_read(finished: FinishedRun, inputs: TrainedInputs) -> JsonObject:
    """What `model.json` says of the inputs: how images are made, or how the columns of a table are encoded."""
    if not inputs.of_table:
        known = inputs.settings
        if known.preprocess is None:
            problem = "was trained on images of which it is not known how they were made"
            raise InputError(problem, file=finished.folder, hint="Prepare them with: retinabench prepare …")
        stated = {key: value for key in PIXEL_SETTINGS if (value := getattr(known, key)) is not None}
        recipe = asdict(Recipe(inputs.size, **stated))
        del recipe["corrupt"]  # new images are not to be damaged
        return {"recipe": recipe}
    task = finished.training_data()
    assert task is not None  # training data that are gone were refused
    assert task.data.table is not None
    features = fit_features(columns_of(task.data.table), task.splits["train"])
    return {"features": [one.model_dump(mode="json") for one in features]}


def _portable(run: Run) -> JsonObject:
    """The settings of a run without the paths of this machine."""
    content = run.model_dump(mode="json", exclude={"data", "shifted"})
    if run.model.weights_file is not None:
        content["model"]["weights"] = run.model.weights_file.name
    return content


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    dense = {name: tensor.contiguous() for name, tensor in tensors.items()}
    content = importlib.import_module("safetensors.torch").save(dense)
    with atomic_write(path, checked=True) as handle:
        handle.write(content)


def _card(run: Run, inputs: TrainedInputs, how: JsonObject, folder: Path | None) -> str:
    sets = {}
    if folder is not None:
        for name, one in score(read_predictions(folder / FILE), bootstrap=CARD_REPLICATES, seed=run.seed).sets.items():
            rows = [(k, one[k].to_dict()) for k in CARD_SCORES if k in one.scores]
            sets[name] = {"images": one.images, "patients": one.patients, "rows": rows}
    context = {
        "run": run, "title": escape_markdown(run.method.describe()),
        "weights": _code(_portable(run)["model"].get("weights")), "sets": sets, "inputs": inputs, "recipe": how.get("recipe"),
        "columns": [_code(one["column"]) for one in how.get("features", ())],
        "data": _code(inputs.data),
    }  # fmt: skip
    return pages.render("model_card.md.j2", context, package=PACKAGE)


def _code(name: str | None) -> str | None:
    """Return a name that stands between backticks; that of a data set may come from an untrusted folder."""
    return name and printable(name).replace("`", "'")
