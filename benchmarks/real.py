"""The findings of docs/results.md on real images: every method on IDRiD with a pretrained trunk, under graded damage.

    python benchmarks/real.py heads --source ~/idrid --out results-real      # an hour of one core
    python benchmarks/real.py search --out results-real                      # settings of `TUNED`; after the first seed of heads
    python benchmarks/real.py finetuned --out results-real                   # two to six hours
    python benchmarks/real.py views --out results-real                       # their test-time augmentation: an hour
    python benchmarks/real.py scratch --source ~/idrid --out results-real    # 2 hours; 128 px
    python benchmarks/real.py curve --source ~/idrid --out results-real      # AUROC by the number of training images; minutes
    python benchmarks/real_findings.py --out results-real                    # scores what is there, and makes the tables

`--source` is the data set as `retinabench prepare idrid` reads it. A stopped command continues where it was. Every method is cross-validated:
five patient-disjoint folds, two divisions of the patients, each with several seeds. Every image, undamaged and under nine kinds of damage at
five strengths (the official test images at all strengths, the others at strength 3), is predicted by the run that did not see its patient.
Heads and searches are those of the preset `real/frozen`, networks from scratch those of `real/small`. `real/finetuned` trains the last
convolution and the head: what that convolution reads never changes, so it is computed once, and each training takes seconds.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from toolkit import parse, print_head, print_row
from torch import Tensor, nn

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import atomic_write
from retinabench.core.seeds import derive
from retinabench.data.loader import ArraySource, Batches
from retinabench.data.prepare import prepare
from retinabench.data.prepared import Prepared, open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS, Corruption, corrupt
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import POSTERIOR, Resources, Training, execute_run, member_runs
from retinabench.experiments.features import Extractor, trunk_features
from retinabench.experiments.run import FILE, ImageRuns, divided, predict
from retinabench.experiments.run_folder import load_posterior, read_inputs
from retinabench.methods.composed import best_temperature, scaled
from retinabench.methods.registry import METHODS as METHOD_CLASSES
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior
from retinabench.methods.tta import DIHEDRAL, make_views
from retinabench.metrics.classification import auroc, nll
from retinabench.metrics.image_sets import binary_entropy
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, cluster_codes, replicate_weight
from retinabench.models.build import build_model
from retinabench.models.networks.efficientnet_lite import EfficientNetLite
from retinabench.models.settings import SCALES, ModelConfig
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

CPU = torch.device("cpu")
SIZE, SCRATCH_SIZE, FOLDS, REPEATS, EVERYWHERE = 320, 128, 5, 2, 3
TRUNK = ModelConfig(name="efficientnet_lite0", weights="imagenet", pool="mean_max", trained="head")
MANY, PRIOR = "method.samples=64", "optimizer.l2_on=everything"
COLD = ["method.temperature=0.001", PRIOR]
ANCHORED = ["method=ensemble", "method.member=anchored", "method.members=5", PRIOR]
SEQUENTIAL = ["method=sequential_anchored", "method.samples=10", PRIOR]
TUNED = {  # by `search`, on the 413 training images
    "tuned SGLD": ["method=sgld", "method.samples=60", *COLD],
    "tuned SGHMC": ["method=sghmc", "method.samples=60", *COLD],
    "tuned cyclical SGHMC": ["method=csghmc", "method.samples=20", "method.temperature=0.01", PRIOR],
    "tuned anchored ensemble": [*ANCHORED, "optimizer.l2=0.5"],
    "tuned sequential anchored": [*SEQUENTIAL, "optimizer.l2=1.5"],
    "tuned FSVI": ["method=fsvi", MANY, "optimizer.lr=0.005"],
}
METHODS = {
    "MAP": ["method=map"], "tempered MAP": ["method=temperature"], "MC dropout": ["method=dropout", MANY],
    "MFVI": ["method=mfvi", MANY], "radial": ["method=radial", MANY], "rank-1": ["method=rank1", MANY],
    "FSVI": ["method=fsvi", MANY], "VBLL": ["method=vbll"],
    "Laplace (validation)": ["method=laplace", "method.prior_precision=validation", "method.samples=100"],
    "Laplace (evidence)": ["method=laplace", "method.prior_precision=evidence", "method.samples=100"],
    "SWAG": ["method=swag", MANY], "MultiSWAG": ["method=multiswag", "method.samples=60"], "IVON": ["method=ivon", MANY],
    "VOGN": ["method=vogn", MANY], "Gaussian VI": ["method=gaussian_vi", MANY], "SGLD": ["method=sgld", PRIOR],
    "SGHMC": ["method=sghmc", PRIOR], "cyclical SGHMC": ["method=csghmc", PRIOR],
    "anchored ensemble": ["method=ensemble", "method.member=anchored", "method.members=3", PRIOR],
    "sequential anchored": ["method=sequential_anchored", PRIOR], "SNGP": ["method=sngp"], "DDU": ["method=ddu"],
    "BatchEnsemble": ["method=batch_ensemble"], "head ensemble": ["method=head_ensemble"],
}  # fmt: skip
SAMPLERS = {name.upper(): [f"method={name}", PRIOR] for name in ("hmc", "nuts", "mclmc", "mile")}
SAMPLERS["MAMS"] = [*SAMPLERS["MCLMC"], "method.adjusted=true"]
METHODS |= TUNED | SAMPLERS
TTA = "test-time augmentation"  # of MAP
POOLED = ("MAP", "MC dropout", "MFVI", "rank-1", "VBLL", "IVON", "cyclical SGHMC")  # also as ensembles of their seeds
# Samples of the fine-tuned posteriors: each costs the last convolution of ten images for each test image.
SAMPLES = {f"method.samples={many}": f"method.samples={few}" for many, few in ((64, 8), (60, 12), (20, 8))}
OMITTED = {label.removeprefix("tuned ") for label in TUNED} | set(SAMPLERS)  # with a convolution's 400,000 weights
FINETUNED = {label: [SAMPLES.get(one, one) for one in METHODS[label]] for label in METHODS if label not in OMITTED}
FINETUNED["LoRA ensemble"] = ["method=lora_ensemble"]
SCRATCH = {label: [one.replace(MANY, "method.samples=16") for one in METHODS[label]] for label in ("MAP", "MC dropout")}

TEMPERATURES, RATES = {"method.temperature": (1, 0.1, 0.01, 0.001)}, {"optimizer.lr": (0.02, 0.005)}
GRIDS: dict[str, tuple[list[str], dict[str, tuple[float, ...]]]] = {  # settings of all points, and values of the others
    "SGLD": (["method=sgld", "method.samples=60", PRIOR], TEMPERATURES | RATES),
    "SGHMC": (["method=sghmc", "method.samples=60", PRIOR], TEMPERATURES | RATES),
    "cyclical SGHMC": (["method=csghmc", "method.samples=20", PRIOR], TEMPERATURES | RATES),
    "anchored ensemble": (ANCHORED, {"optimizer.l2": (0.15, 0.5, 1.5)}),
    "sequential anchored": (SEQUENTIAL, {"optimizer.l2": (0.15, 0.5, 1.5, 5.0)}),
    "FSVI": (["method=fsvi", MANY], {"method.prior_variance": (1, 10, 100)} | RATES),
}
Order = Iterable[tuple[str, int, Run]]  # label of a method, number of the cross-validation, run
Found = dict[str, NDArray[np.float64]]
Extract = Callable[[NDArray[np.uint8]], NDArray[np.generic]]  # images (B, H, W, 3) -> (B, …)


@dataclass(frozen=True, eq=False)
class Cell:
    """Some rows of the data under one kind of damage; the empty kind is none."""

    kind: str
    strength: int
    split: str
    rows: NDArray[np.intp]

    @property
    def damage(self) -> str:
        return self.kind and f"{self.kind}-{self.strength}"

    @property
    def file(self) -> str:
        return f"{self.damage or 'undamaged'}-{self.split}.npy"


def cells(split: NDArray[np.str_]) -> list[Cell]:
    test, others = np.flatnonzero(split == "test"), np.flatnonzero(split != "test")
    found = [Cell("", 0, "all", np.arange(len(split)))]
    found += [Cell(kind, EVERYWHERE, "train", others) for kind in KINDS]
    return found + [Cell(kind, strength, "test", test) for strength, kind in product(STRENGTHS, KINDS)]


def computed(data: Prepared, cell: Cell, extract: Extract) -> NDArray[np.generic]:
    made = []
    for start in range(0, len(cell.rows), 32):
        some = cell.rows[start : start + 32]
        images = data.images(some)
        if cell.kind:
            damage, ids = Corruption(cell.kind, cell.strength), data.records.image_id[some].tolist()
            images = np.stack([corrupt(one, damage, i) for one, i in zip(images, ids, strict=True)])
        made.append(extract(images))
    return np.concatenate(made)


def stored(file: Path, compute: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
    if not file.is_file():
        began, values = time.perf_counter(), compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as sink:
            np.save(sink, values, allow_pickle=False)
        print(f"{file.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return np.load(file, mmap_mode="c", allow_pickle=False)


def of_views(extract: Extract) -> Extract:
    views = make_views("dihedral", DIHEDRAL, torch.Generator())[1:]

    def viewed(images: NDArray[np.uint8]) -> NDArray[np.generic]:
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        turned = (view(pixels).permute(0, 2, 3, 1).contiguous().numpy() for view in views)
        return np.stack([extract(one) for one in turned], axis=1)

    return viewed


@dataclass(frozen=True, eq=False)
class Networks:
    """Runs of one kind of network, where their predictions are kept, and what they read of every image.

    `read`: what is computed of the images of a cell (M, …). `inputs`: that as the run of a fold reads it, whose folder is given.
    """

    folder: Path
    runs: ImageRuns
    read: Callable[[Cell], NDArray[np.generic]]
    inputs: Callable[[NDArray[np.generic], Path], Tensor]
    load: Callable[[Path, Run], Posterior] = lambda folder, _: load_posterior(folder)[1]
    batch: int = 64

    def file(self, label: str, number: int) -> Path:
        return self.folder / f"{label.replace(' ', '-')}-{number}.npz"

    def write(self, label: str, number: int, found: Found) -> None:
        with atomic_write(self.file(label, number)) as sink:
            np.savez(sink, **found)

    def predict(self, run: Run, rows: NDArray[np.intp], parts: Sequence[NDArray[np.generic]]) -> Found:
        """Return mean, expected entropy and own uncertainty (M,), each by the fold that did not see the image's patient.

        `rows` (M,) are the rows of the data; `parts`, of which there are M entries together, is what was read of them.
        """
        found = {name: np.full(len(rows), np.nan) for name in ("mean", "aleatoric", "own")}
        ends = np.cumsum([len(part) for part in parts])[:-1]
        for fold in member_runs(run):
            mine = np.isin(rows, divided(self.runs.task, fold).splits["test"])
            pieces = zip(parts, np.split(mine, ends), strict=True)
            images = self.inputs(np.concatenate([part[some] for part, some in pieces]), self._folder(fold))
            probs, own = [], []
            for one in member_runs(fold) or [fold]:
                posterior = self.load(self._folder(one), one)
                generator = torch.Generator().manual_seed(derive(one.seed, "damaged"))
                with torch.no_grad():
                    many, batches = one.method.samples, images.split(self.batch)
                    drawn = [posterior.predict(some, many, generator)[..., 1].double() for some in batches]
                    probs.append(torch.cat(drawn, dim=1).numpy())
                    if isinstance(posterior, UncertaintyPosterior):
                        parts_of = [posterior.uncertainty(some).double() for some in images.split(self.batch)]
                        own.append(torch.cat(parts_of).numpy())
            samples = np.concatenate(probs)
            if fold.method.name == "temperature":
                (member,) = member_runs(fold)
                held = read_predictions(self._folder(member) / FILE).select(split="validation")
                assert held is not None
                samples = scaled(samples, best_temperature(held.label, held.probs))
            found["mean"][mine] = samples.mean(axis=0)
            found["aleatoric"][mine] = binary_entropy(samples).mean(axis=0)
            if own:
                found["own"][mine] = np.mean(own, axis=0)
        return found

    def _folder(self, run: Run) -> Path:
        return self.folder / "runs" / self.runs.folder_name(run)


def compute(networks: Networks, order: Order, wanted: Callable[[Cell], bool] = lambda cell: True) -> None:
    """Cross-validate every method of an order and keep its predictions of the wanted cells; those of others are NaN."""
    every = cells(networks.runs.task.records.split)
    known = np.concatenate([np.full(len(cell.rows), wanted(cell)) for cell in every])
    parts = [networks.read(cell) for cell in every if wanted(cell)]
    rows = np.concatenate([cell.rows for cell in every])[known]
    for label, number, run in order:
        if networks.file(label, number).is_file():
            continue
        began = time.perf_counter()
        try:
            execute_run(networks.runs, run, networks.folder / "runs", Resources("cpu"))
            found = networks.predict(run, rows, parts)
        except (InputError, WorkError) as error:
            print(f"{label} {number}: {error}", flush=True)
            continue
        whole = {name: np.full(len(known), np.nan) for name in found}
        for name, values in found.items():
            whole[name][known] = values
        networks.write(label, number, whole)
        print(f"{label} {number}: {time.perf_counter() - began:.0f} s", flush=True)


def compute_views(networks: Networks, order: Order, read: Callable[[Cell], NDArray[np.generic]]) -> None:
    """Predict what is read of seven views (M, 7, …) by the finished networks of MAP, and keep the means over all eight."""
    trained = {n: run for label, n, run in order if label == "MAP" and networks.file(label, n).is_file()}
    parts = []
    for cell in cells(networks.runs.task.records.split):

        def probs(cell: Cell = cell) -> NDArray[np.float64]:
            views = np.moveaxis(read(cell), 1, 0)
            means = [networks.predict(run, cell.rows, [view])["mean"] for run, view in product(trained.values(), views)]
            return np.reshape(means, (len(trained), len(views), -1))

        parts.append(stored(networks.folder / "views" / f"{len(trained)}-{cell.file}", probs))
    for number, views in zip(trained, np.concatenate(parts, axis=2), strict=True):
        as_it_is = np.load(networks.file("MAP", number), allow_pickle=False)["mean"]
        probs = np.concatenate([as_it_is[None], views])
        found = {"mean": probs.mean(axis=0), "aleatoric": binary_entropy(probs).mean(axis=0)}
        networks.write(TTA, number, {**found, "own": np.full(probs.shape[1], np.nan)})


def division_of(number: int) -> int:
    return number % REPEATS


def cross_validations(preset: str, data: Path, methods: Mapping[str, list[str]], count: int, options) -> Order:
    """Yield the cross-validations: of all methods the first number, then the next one."""
    asked = {label: words for label, words in methods.items() if label in (options.only or methods)}
    for number, (label, words) in product(range(count), asked.items()):
        folds = [f"cross_validation.folds={FOLDS}", f"cross_validation.repeat={division_of(number)}"]
        settings = [*words, *options.words, *folds]
        yield label, number, load_run(preset, settings, data=str(data), task="in_domain", seed=number)


class Tail(nn.Module):
    """The last convolution of an EfficientNet-Lite, its norm, the pooling and the head: (B, D, H, W) -> logits (B, 1)."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.conv_head, self.bn2, self.act2 = network.conv_head, network.bn2, network.act2
        self.classifier = network.classifier

    def forward(self, x: Tensor) -> Tensor:
        x = self.act2(self.bn2(self.conv_head(x)))
        logits: Tensor = self.classifier(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return logits


class Maps:
    """Outputs of the frozen stages as the source of batches: unlike features, they have layers behind them that adapters can change."""

    def __init__(self, outputs: NDArray[np.generic], targets: NDArray[np.generic]) -> None:
        arrays = ArraySource(torch.from_numpy(outputs), torch.from_numpy(targets.astype(np.float32)))
        self.device, self.targets, self.load = arrays.device, arrays.targets, arrays.load


@dataclass(frozen=True, kw_only=True)
class TailRuns(ImageRuns):
    outputs: NDArray[np.generic]

    def training(self, run: Run, resources: Resources) -> Training[Predictions]:
        task, source = divided(self.task, run), Maps(self.outputs, self.task.data.label)
        splits, size = task.splits, run.optimizer.batch_size
        batches = Batches(source, splits["train"], splits["validation"], size, run.seed)
        network = Tail(build_model(run.model, run.seed))
        return Training(network, batches, lambda posterior: predict(run, task, posterior, batches), "Training")

    def load(self, folder: Path, run: Run) -> Posterior:
        network = Tail(build_model(run.model, run.seed))
        posterior: Posterior = METHOD_CLASSES[run.method.name].build(network, run, self.likelihood)
        posterior.restore(load_tensors(folder / POSTERIOR))
        return posterior


def frozen_stages(run: Run) -> Extract:
    network, read = build_model(run.model, 0).eval(), list[Tensor]()
    network.conv_head.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in SCALES[run.model.inputs])

    def extract(images: NDArray[np.uint8]) -> NDArray[np.generic]:
        with torch.inference_mode():
            network(torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std))
        return read.pop().contiguous().numpy()

    return extract


def standardised(values: NDArray[np.generic], folder: Path) -> Tensor:
    """Return features (M, D), or images (M, 3, H, W) of stored ones, with the mean and std of a run's training images."""
    about = read_inputs(folder)
    assert about is not None
    mean, std = about.scale
    if values.ndim == 2:
        return torch.from_numpy((values - mean) / std)
    return torch.from_numpy((values / np.float32(255) - mean) / std).permute(0, 3, 1, 2)


def heads(out: Path, options: argparse.Namespace) -> None:
    prepare("idrid", out / "data", recipe=Recipe(options.size or SIZE), source=options.source, workers=1)
    data, extract = open_prepared(out / "data"), Extractor(TRUNK, CPU)

    def features(cell: Cell) -> NDArray[np.generic]:
        if not cell.kind:
            return trunk_features(TRUNK, data, CPU)
        return stored(out / "damage" / cell.file, lambda: computed(data, cell, extract))

    def of_all_views(cell: Cell) -> NDArray[np.generic]:
        return stored(out / "damage" / f"dihedral-{cell.file}", lambda: computed(data, cell, of_views(extract)))

    task = load_task(str(out / "data"), "in_domain")
    networks = Networks(out / "heads", ImageRuns(task), features, standardised, batch=256)
    order = list(cross_validations("real/frozen", out / "data", METHODS, options.seeds * REPEATS, options))
    # Of the first seed all methods, one division after the other; of each further seed first the methods that are pooled.
    order.sort(key=lambda one: (one[1] // REPEATS, one[1] >= REPEATS and one[0] not in POOLED, one[1]))
    compute(networks, order, lambda cell: not (options.undamaged and cell.kind))
    if not options.only:
        compute_views(networks, order, of_all_views)


def search(out: Path, options: argparse.Namespace) -> None:
    task = load_task(str(out / "data"), "in_domain")
    training = np.flatnonzero(task.records.split != "test")
    none = np.empty(0, np.intp)
    task = replace(task, splits={"train": training, "validation": none, "test": none})
    for label, (fixed, free) in GRIDS.items():
        if label not in (options.only or GRIDS):
            continue
        for values in product(*free.values()):
            point = [f"{name}={value}" for name, value in zip(free, values, strict=True)]
            words = [*fixed, *point, *options.words, f"cross_validation.folds={FOLDS}"]
            run = load_run("real/frozen", words, data=str(out / "data"), task="in_domain", seed=0)
            try:
                found = read_predictions(execute_run(ImageRuns(task), run, out / "search", Resources("cpu")) / FILE)
            except WorkError as error:
                print(f"{label} {' '.join(point)}: {error}", flush=True)
                continue
            assert len(found) == len(training)
            scores = nll(found.label, found.prob), auroc(found.label, found.prob)
            print(f"{label} {' '.join(point)}: NLL {scores[0]:.4f}, AUROC {scores[1]:.4f}", flush=True)


def curve(out: Path, options: argparse.Namespace) -> None:
    """Print AUROC and NLL of MAP's head by the number of training images, with intervals over patients and runs."""
    prepare("idrid", out / "data", recipe=Recipe(options.size or SIZE), source=options.source, workers=1)
    task = load_task(str(out / "data"), "in_domain")
    codes, patients = cluster_codes(task.patient_id)
    plain, count = {"MAP": METHODS["MAP"]}, options.seeds * REPEATS
    runs = list(cross_validations("real/frozen", out / "data", plain, count, options))
    print_head("A head by its training images", "training images | AUROC | NLL")
    for count in (50, 100, 200, 400):
        cases = [Cases(task.data.label, cross_validated(task, run, count, out / "curve")) for _, _, run in runs]
        cells = []
        for name in ("auroc", "nll"):
            drawn = [np.mean([SCORES[name](one.weighted()) for one in cases])]
            for k in range(300):
                weight = replicate_weight(codes, patients, 0, k)
                some = np.random.default_rng(k).integers(len(cases), size=len(cases))
                drawn.append(np.mean([SCORES[name](cases[one].weighted(weight)) for one in some]))
            cells.append("{:.3f} [{:.3f}, {:.3f}]".format(drawn[0], *np.percentile(drawn[1:], [2.5, 97.5])))
        print_row(count, *cells)


def cross_validated(task: Task, run: Run, count: int, out: Path) -> NDArray[np.float64]:
    """Return P(referable) (N,) of every image by the fold that did not see its patient, trained on `count` of the other images."""
    prob = np.empty(len(task))
    for fold in member_runs(run):
        part = divided(task, fold)
        others = np.concatenate([part.splits["train"], part.splits["validation"]])  # validation chooses nothing here
        some = np.sort(np.random.default_rng([run.seed, count]).permutation(others)[:count])
        few = ImageRuns(replace(part, splits={**part.splits, "train": some}))
        one = fold.model_copy(update={"cross_validation": None})
        folder = execute_run(few, one, out / f"{count}-{fold.cross_validation.fold}", Resources("cpu"))
        prob[part.splits["test"]] = read_predictions(folder / FILE).select(split="test").prob
    return prob


def finetuned(out: Path, options: argparse.Namespace) -> None:
    networks, order, _ = fine_tuning(out, options)
    compute(networks, order)


def views(out: Path, options: argparse.Namespace) -> None:
    networks, order, extract = fine_tuning(out, options)
    compute_views(networks, order, lambda cell: computed(networks.runs.task.data, cell, of_views(extract)))


def fine_tuning(out: Path, options: argparse.Namespace) -> tuple[Networks, Order, Extract]:
    """Return the fine-tuned networks, their cross-validations, and what computes the outputs of the frozen stages."""
    order = list(cross_validations("real/finetuned", out / "data", FINETUNED, options.runs, options))
    task, extract = load_task(str(out / "data"), "in_domain"), frozen_stages(order[0][2])

    def outputs(cell: Cell) -> NDArray[np.generic]:
        return stored(out / "finetuned" / f"frozen-{cell.file}", lambda: computed(task.data, cell, extract))

    runs = TailRuns(task, outputs=outputs(cells(task.records.split)[0]))
    maps = Networks(out / "finetuned", runs, outputs, lambda values, _: torch.from_numpy(values), runs.load)
    return maps, order, extract


def scratch(out: Path, options: argparse.Namespace) -> None:
    """Train networks from scratch, of each division MAP before MC dropout; damage of other strengths is not predicted."""
    folder = out / "scratch"
    prepare("idrid", folder / "data", recipe=Recipe(options.size or SCRATCH_SIZE), source=options.source, workers=1)
    task = load_task(str(folder / "data"), "in_domain")

    def images(cell: Cell) -> NDArray[np.generic]:
        return stored(folder / "damage" / cell.file, lambda: computed(task.data, cell, lambda images: images))

    networks = Networks(folder, ImageRuns(task), images, standardised)
    order = cross_validations("real/small", folder / "data", SCRATCH, options.seeds * REPEATS, options)
    order = sorted(order, key=lambda one: (division_of(one[1]), one[0] != "MAP"))
    compute(networks, order, lambda cell: not cell.kind or cell.strength == EVERYWHERE)


STEPS = {one.__name__: one for one in (heads, search, finetuned, views, scratch, curve)}


def main(arguments: Sequence[str] | None = None) -> None:
    """`--runs`: fine-tuned cross-validations; `--size`: of the images, to try the script; `--words`: key=value for every run."""
    counts = {"seeds": 3, "runs": 5, "size": 0, "undamaged": False, "only": [str], "words": [str]}
    options = parse(__doc__, arguments, step=(), source=None, out=Path("results-real"), **counts)
    torch.set_num_threads(1)
    for step in options.step:
        STEPS[step](options.out, options)


if __name__ == "__main__":
    main()
