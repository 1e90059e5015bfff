"""`rb.train`: runs on a PyTorch data set, with a network of the user or of `MODELS`, by the same execution as `retinabench train`."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import Dataset as TorchDataset

from retinabench.core.errors import QUIET, Bars, InputError, check
from retinabench.core.results import JsonObject
from retinabench.data.dataset import MODERATE, SPLITS, Records, Rows, make_records, referable
from retinabench.data.loader import Augment, Batches, unchanged
from retinabench.data.prepared import Prepared
from retinabench.data.tasks import Task, divide
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import POSTERIOR, Resources, check_inputs, execute_run, member_runs
from retinabench.experiments.run import FILE, ImageRuns, batches_of
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.integrations.pytorch import parts_of
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.posterior import Posterior, fingerprint
from retinabench.models.build import build_model
from retinabench.models.foreign import check_outputs, made_by
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions

NAME = "dataset"
READ_AT_ONCE = 64
Data = TorchDataset[Any] | DataLoader[Any]


@dataclass(frozen=True)
class Trained:
    """What `train` returns.

    Attributes:
        run: All settings.
        posterior: What the method learnt, in evaluation mode: `posterior.predict(inputs, samples, generator)` returns
            probabilities (S, B, 2). None where the run combines others.
        predictions: The images of the validation and test splits, for `score`, `report` and `write_predictions`.
        history: A dictionary of losses and validation scores for each epoch.
        members: The runs that an ensemble or a cross-validation combines.
        notes: What should be known about the data.

    Examples:
        >>> import torch
        >>> import retinabench as rb
        >>> inputs = torch.arange(100.0)[:, None] / 100
        >>> dataset = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0.5).long())
        >>> trained = rb.train("map", dataset, model="linear", settings={"optimizer.epochs": 2})
        >>> sorted(set(trained.predictions.split.tolist())), len(trained.history)
        (['test', 'validation'], 2)
    """

    run: Run
    posterior: Posterior | None
    predictions: Predictions
    history: list[dict[str, float]] = field(repr=False)
    members: tuple[Trained, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()


def train(
    method: str,
    dataset: Data,
    *,
    model: str | nn.Module | Callable[..., nn.Module] = "resnet18",
    validation: Data | None = None,
    test: Data | None = None,
    referable_from: int = 2,
    config: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    quiet: bool = True,
) -> Trained:
    """Train a method on a PyTorch data set, as `retinabench train` does on a prepared folder.

    Args:
        method: A name of `retinabench list methods`, or of an installed plug-in.
        dataset: A map-style `Dataset`, or a `DataLoader`, whose data set, `collate_fn` and `num_workers` are used. An item is
            (input, label), (input, label, columns) or a dictionary, as in `predict_torch`: the label 0 or 1, or the grade 0
            to 4. The columns `patient_id`, `image_id`, `grade`, `split` (train, validation, test) and `domain` (in_domain,
            shifted) are used where the items have them. Without a split, a fifth of the patients tests, and a fifth of the
            others validates. Inputs are float tensors as the network takes them; every item is read once more, before the
            training, for its label.
        model: A name of `retinabench list models`, a function that makes a network, or a network, of which every run trains a
            copy. The network returns one logit per image, (B, 1).
        validation: Data that select the epoch; else a fifth of the patients does.
        test: Test data; else a fifth of the patients is held out.
        referable_from: The lowest grade that is referable.
        config: A preset or a TOML file, as `retinabench train --config`.
        settings: Value by dotted key, such as ``{"optimizer.epochs": 20, "method.rate": 0.2}``. `optimizer.augment` is `flip`
            for images (B, 3, H, W) and `none` for other inputs; set `none` where the data set augments images itself.
        seed: Of weights, order and noise.
        device: Where to compute; `auto` takes a GPU if there is one.
        out: A folder that keeps the run. The same call continues a killed training, and returns a finished one, as long as the data
            set returns the same items. None: nothing is kept.
        quiet: Show no progress.

    Returns:
        The posterior and the predictions.

    Raises:
        InputError: The data set, the network or a setting cannot be used.

    Examples:
        >>> import torch
        >>> import retinabench as rb
        >>> inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> dataset = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        >>> trained = rb.train("dropout", dataset, model=network, settings={"optimizer.epochs": 20, "optimizer.lr": 0.1})
        >>> rb.score(trained.predictions, bootstrap=0)["in_domain"].auroc.value > 0.9
        True
        >>> trained.posterior.predict(inputs[:3], samples=8, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([8, 3, 2])
    """
    progress = QUIET if quiet else Bars()
    resources = Resources(device, progress=progress)
    given = {name: data for name, data in zip(SPLITS, (dataset, validation, test), strict=True) if data is not None}
    place = resources.torch_device()
    forked = torch.random.fork_rng([place] if place.type == "cuda" else [])
    with forked, tempfile.TemporaryDirectory() as temporary:
        torch.manual_seed(seed)  # of the random numbers of the data set
        source, records, digest, graded = _read(given, referable_from, place)
        words = [f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()]
        words += [f'method.name="{method}"', *([f'model.name="{model}"'] if isinstance(model, str) else ())]
        if source.sample.ndim != 4 and not any(word.startswith("optimizer.augment=") for word in words):
            words.append("optimizer.augment=none")
        task_name = "country_shift" if (records.domain == "shifted").any() else "in_domain"
        run = load_run(config, words, resources.precision(), data=NAME, task=task_name, seed=seed)
        name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
        run = run.model_copy(update={"model": run.model.model_copy(update={"name": name})})
        network = _network(run, model, source)
        check_outputs(network(seed), run.model.name, source.sample, "Its inputs are what the data set returns.")
        identity = f"{digest} {fingerprint(network(0).state_dict())}"
        data = Prepared(
            Path(NAME), NAME, source.sample.shape[-1], hashlib.sha256(identity.encode()).hexdigest(), records, (),
            graded=graded, referable_from=_lowest(graded, referable_from),
        )  # fmt: skip
        runs = DatasetRuns(divide(data, run.task), source=source, network=network)
        execute_run(runs, run, Path(out or temporary), resources)
        return _trained(runs, run, Path(out or temporary), place)


@dataclass(frozen=True, eq=False)
class DatasetSource:
    """Items of a PyTorch data set, as batches of inputs and labels; `sample` holds the first two inputs, `targets` (N,)."""

    dataset: TorchDataset[Any]
    collate: Callable[[list[Any]], Any] | None
    workers: int
    device: torch.device
    sample: Tensor
    targets: NDArray[np.float32]

    def load(self, chunks: Sequence[Rows], stored_view: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
        batches = _batches(self.dataset, self.collate, self.workers, chunks)
        for rows, (inputs, _) in zip(chunks, batches, strict=True):
            yield stored_view(inputs.to(self.device)), torch.from_numpy(self.targets[rows]).to(self.device)


@dataclass(frozen=True, kw_only=True)
class DatasetRuns(ImageRuns):
    """Runs on a PyTorch data set; `network` makes the untrained network of a seed."""

    source: DatasetSource
    network: Callable[[int], nn.Module]

    def inputs(self, run: Run, task: Task, resources: Resources) -> tuple[Batches, nn.Module]:
        if self.source.sample.ndim != 4:
            check_inputs(run)
        return batches_of(run, task, self.source), self.network(run.seed).to(self.source.device)

    def write(self, result: Predictions, run: Run, folder: Path) -> None:
        write_predictions(result, folder / FILE, checked=True)


def _trained(runs: DatasetRuns, run: Run, out: Path, device: torch.device) -> Trained:
    folder = out / runs.folder_name(run)
    predictions = runs.read(folder)
    if wanted := member_runs(run):
        members = tuple(_trained(runs, one, out, device) for one in wanted)
        return Trained(run, None, predictions, [], members, runs.task.notes)
    posterior: Posterior = METHODS[run.method.name].build(runs.network(run.seed).to(device), run, LIKELIHOOD)
    posterior.restore(load_tensors(folder / POSTERIOR))
    lines = folder / "metrics.jsonl"
    history = [json.loads(line) for line in check(lines).read_text().splitlines()] if lines.is_file() else []
    return Trained(run, posterior, predictions, history, (), runs.task.notes)


def _network(
    run: Run, model: str | nn.Module | Callable[..., nn.Module], source: DatasetSource
) -> Callable[[int], nn.Module]:
    if isinstance(model, str):
        if run.model.trained == "head":
            hint = "Prepare the images and use `retinabench train`, or pass the features with model='linear'."
            raise InputError("model.trained=head reads the images of a prepared folder", hint=hint)
        columns = source.sample.shape[1] if source.sample.ndim == 2 else None
        return partial(build_model, run.model, columns=columns)
    function: Callable[..., Any] = (lambda: copy.deepcopy(model)) if isinstance(model, nn.Module) else model
    if isinstance(model, nn.Module) and len(set(_seeds(run))) > 1:
        problem = f"the members of '{run.method.name}' begin with weights of their own, and model is one network"
        raise InputError(problem, hint="Pass a function that makes a network, such as model=lambda: Network().")
    return lambda seed: made_by(function, run.model.name, seed, outputs=1)


def _seeds(run: Run) -> list[int]:
    members = member_runs(run)
    return [seed for one in members for seed in _seeds(one)] if members else [run.seed]


def _batches(
    dataset: TorchDataset[Any], collate: Callable[[list[Any]], Any] | None, workers: int, chunks: Sequence[Rows]
) -> Iterator[tuple[Tensor, JsonObject]]:
    batches = [rows.tolist() for rows in chunks]
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers)
    for number, batch in enumerate(loader, start=1):
        yield parts_of(batch, number)


def _read(
    given: Mapping[str, Data], referable_from: int, device: torch.device
) -> tuple[DatasetSource, Records, str, bool]:
    """Read every item once: its label, its columns, and the SHA-256 of all inputs. Also tells whether labels are grades."""
    loaders = [data for data in given.values() if isinstance(data, DataLoader)]
    datasets = {name: data.dataset if isinstance(data, DataLoader) else data for name, data in given.items()}
    for loader in loaders:
        _check_order(loader)
    if any(isinstance(one, IterableDataset) or not hasattr(one, "__len__") for one in datasets.values()):
        hint = "Give a Dataset with __len__ and __getitem__."
        raise InputError("the data set is iterable, so that no epoch can have an order of its own", hint=hint)
    whole: TorchDataset[Any] = ConcatDataset(datasets.values())
    sizes = [len(one) for one in datasets.values()]  # type: ignore[arg-type]
    collate, workers = (loaders[0].collate_fn, loaders[0].num_workers) if loaders else (None, 0)
    chunks = np.split(np.arange(sum(sizes)), np.arange(READ_AT_ONCE, sum(sizes), READ_AT_ONCE))
    sample, digest, columns = None, hashlib.sha256(), dict[str, list[Any]]()
    for number, (inputs, further) in enumerate(_batches(whole, collate, workers, chunks)):
        if not inputs.is_floating_point():
            raise InputError(f"inputs are {inputs.dtype}", hint="Return float tensors as the network takes them.")
        sample = inputs[:2].clone() if sample is None else sample
        digest.update(inputs.contiguous().numpy().data)
        for name, values in further.items():
            columns.setdefault(name, []).extend(np.asarray(values).tolist())
        if any(len(values) != min((number + 1) * READ_AT_ONCE, sum(sizes)) for values in columns.values()):
            raise InputError("some items have columns that others lack")
    assert sample is not None
    grade, graded = _grades(columns)
    own = columns.get("split")
    split = np.repeat(list(datasets), sizes) if own is None or len(datasets) > 1 else np.array(own)
    text = {name: [str(value) for value in columns[name]] for name in ("image_id", "patient_id") if name in columns}
    ids = text.pop("image_id", None) or [f"{number:0{len(str(sum(sizes)))}}" for number in range(sum(sizes))]
    records = make_records(ids, grade, split=split, domain=columns.get("domain", "in_domain"), **text)
    digest.update(records.to_parquet())
    labels = referable(records.grade, _lowest(graded, referable_from)).astype(np.float32)
    return DatasetSource(whole, collate, workers, device, sample, labels), records, digest.hexdigest(), graded


def _grades(columns: Mapping[str, list[Any]]) -> tuple[NDArray[np.int64], bool]:
    """Return the grades (N,), and whether they were given; labels 0 and 1 stand for grades 0 and 2."""
    values = columns.get("grade", columns.get("label"))
    if values is None:
        raise InputError("items have no label", hint="An item is (input, label), or a dictionary with the label.")
    given = np.asarray(values, np.float64).reshape(len(values), -1)
    if given.shape[1] != 1 or not np.isin(given, np.arange(5)).all():
        raise InputError("labels are not 0 or 1, nor grades 0 to 4", column="label")
    whole = given[:, 0].astype(np.int64)
    graded = "grade" in columns or bool(whole.max() > 1)
    return (whole if graded else MODERATE * whole), graded


def _lowest(graded: bool, referable_from: int) -> int:
    return referable_from if graded else MODERATE


def _check_order(loader: DataLoader[Any]) -> None:
    """Refuse a loader that draws other images than its data set: the training draws its own order of all of them."""
    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    if not plain or type(loader.batch_sampler) is not BatchSampler:
        kind, hint = type(sampler).__name__, "Pass a Subset of the images, and weigh classes with optimizer.reweight."
        problem = f"the loader draws by its own {kind}, and the training draws every image once an epoch"
        raise InputError(problem, hint=hint)
