"""The run of one entry on one target, from its settings to its submission, by the run engine; its budget is counted.

The folder of a run (`experiments/execution.py`) is named after entry, target, seed and a hash of all that decides its
numbers, and holds in the end

- `run.json`: the run, the target and the hash of its data;
- `predicted.npz`: the predictions of the posterior sample by sample, (S, N, O), and what they cost;
- `submission.npz`: the result (`submission.py`), in the folder of an entry and not in those of its members;
- `done`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.errors import InputError, check
from retinabench.core.files import write_bytes
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject, number_text
from retinabench.core.version import __version__
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, Training, execute_run
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES, check_plan, entry, entry_run, planned
from retinabench.fidelity.submissions.infinite_width import run_untrained
from retinabench.fidelity.submissions.meter import SECONDS, GradientMeter, MeteredDensity
from retinabench.fidelity.submissions.submission import (
    About,
    Budget,
    Submission,
    Track,
    check_track,
    implied_by,
    submission_in,
    submission_of,
    write_submission,
)
from retinabench.fidelity.targets.data import TargetData, load, standardised
from retinabench.fidelity.targets.density import Density, build_network, likelihood_of, point_batches
from retinabench.fidelity.targets.target import Target
from retinabench.methods.base import FidelitySettings, is_composed
from retinabench.methods.posteriors import CollectedPosterior
from retinabench.methods.registry import METHODS
from retinabench.methods.samplers import ChainConfig
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import Posterior

PREDICT_BATCH = 256
SAVED_EVERY = 20.0  # seconds between checkpoints
CPU = Resources("cpu")  # these networks are too small for anything else


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions (S, N, O) of a posterior for all test points, with their cost."""

    values: NDArray[np.float32]
    gradients: float
    seconds: float


@dataclass(frozen=True)
class TargetRuns:
    """Runs on a fidelity target (see `RunTask`): that of an entry, and those of its members."""

    target: Target
    data: TargetData
    entry: FidelitySettings
    run: Run
    budget: float
    limited: bool = True
    decisive: tuple[str, ...] = ("data",)
    keeps_posterior: bool = False

    @property
    def likelihood(self) -> Likelihood:
        return likelihood_of(self.target)

    def folder_name(self, run: Run) -> str:
        name, content = run.method.name, self.target.fingerprint(self.data.sha256)
        if run == self.run:  # members of several entries share their folder
            name, content = self.entry.name, f"{content} {number_text(self.budget)} {self.entry.name}"
        return f"{name}-{self.target.name}-seed-{run.seed}-{run.hash(content)}"

    def manifest(self, run: Run) -> JsonObject:
        return {
            "run": run.model_dump(mode="json", exclude={"model"}),
            "target": self.target.model_dump(mode="json"),
            "data": self.data.sha256,
            "version": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }

    def training(self, run: Run, resources: Resources) -> Training[Predicted]:
        """Return network, batches and prediction of a run, its gradients counted."""
        device = resources.torch_device()
        meter = GradientMeter(len(self.data.train), planned(run) if self.limited else None)
        batches = meter.handed_out(point_batches(self.data, run.optimizer.batch_size, run.seed, device))

        density = partial(Density.of, self.target, self.data)

        def predicted(posterior: Posterior) -> Predicted:
            meter.stopped = True
            if isinstance(run.method, ChainConfig) and isinstance(posterior, CollectedPosterior):
                values = predict_at_once(density(), posterior)
            else:
                values = predict(posterior, self.data, run, device)
            return Predicted(values, meter.used, meter.counts.get(SECONDS, 0.0))

        return Training(
            model=meter.watch(build_network(self.target, run.seed).to(device)),
            batches=replace(batches, whole=lambda: (MeteredDensity(density(), meter), (self.target.name,))),
            predict=predicted,
            title=f"{run.method.name}, {self.target.name}, seed {run.seed}",
            counts=meter.counts,
            interval=SAVED_EVERY,
        )

    def combine(self, run: Run, members: Sequence[Predicted]) -> Predicted:
        values, gradients, seconds = zip(*((m.values, m.gradients, m.seconds) for m in members), strict=True)
        return Predicted(np.concatenate(values), sum(gradients), sum(seconds))

    def read(self, folder: Path) -> Predicted:
        with np.load(check(folder / "predicted.npz"), allow_pickle=False) as arrays:
            gradients, seconds = arrays["cost"].tolist()
            return Predicted(arrays["values"], gradients, seconds)

    def write(self, result: Predicted, run: Run, folder: Path) -> None:
        is_entry_run = run == self.run
        if not (is_entry_run and is_composed(METHODS[run.method.name])):
            sink = io.BytesIO()
            np.savez(sink, values=result.values, cost=np.array([result.gradients, result.seconds]))
            write_bytes(folder / "predicted.npz", sink.getvalue(), checked=True)
        if is_entry_run:
            write_submission(submission_in(folder), self.submission(result), checked=True)

    def submission(self, predicted: Predicted) -> Submission:
        """Return the submission of the entry's predictions; the hashes of manifest and predictions tie it to its run."""
        target, values = self.target, predicted.values
        manifest = json.dumps(self.manifest(self.run), sort_keys=True).encode()
        contents = {"manifest": manifest, "predicted": np.ascontiguousarray(values).tobytes()}
        about = About(
            task=target.name,
            target=target.fingerprint(self.data.sha256),
            data=self.data.sha256,
            method=self.entry.name,
            title=self.entry.title,
            seed=self.run.seed,
            run=self.run.model_dump(mode="json", exclude={"model"}),
            budget=Budget(limit=self.budget, used=predicted.gradients, over=predicted.gradients > self.budget),
            seconds=round(predicted.seconds, 1),
            version=__version__,
            implied=implied_by(self.run, len(self.data.train)),
            evidence={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        )
        return submission_of(values, target, about, self.run.seed)


def run_entry(
    name: str,
    target: Target,
    source: Path | None = None,
    *,
    budget: float = 1000,
    seed: int = 0,
    out: Path = Path("fidelity-runs"),
    overrides: Sequence[str] = (),
    over_budget: str = "refuse",
    track: Track = "stated",
    resources: Resources = CPU,
) -> Path:
    """Train an entry on a target and predict its test points; found if it is done, continued if it was killed."""
    data = load(target, source)
    if target.points:
        hint = f"Score a file: retinabench fidelity score FILE --task {target.name} --reference {target.name}.npz"
        raise InputError(f"'{target.name}' is scored on predictions alone: it has no data to train on", hint=hint)
    if name in UNTRAINED_TITLES:
        return run_untrained(name, target, data, seed=seed, out=out, overrides=overrides, progress=resources.progress)
    run = entry_run(entry(name), target, len(data.train), budget, seed, overrides)
    options: dict[str, Any] = {"over_budget": over_budget, "track": track, "resources": resources}
    return run_settings(entry(name), run, target, data, budget=budget, out=out, **options)


def run_settings(
    chosen: FidelitySettings,
    run: Run,
    target: Target,
    data: TargetData,
    *,
    budget: float,
    out: Path,
    over_budget: str = "refuse",
    track: Track = "stated",
    resources: Resources = CPU,
) -> Path:
    """Do what `run_entry` does, with the settings of a run instead of an entry's for that budget."""
    planned(run)  # refuses what cannot take part
    check_track(implied_by(run, len(data.train)), target, track)
    if over_budget == "refuse":
        check_plan(run, budget)
    runs = TargetRuns(target, data, chosen, run, budget, limited=over_budget == "refuse")
    return submission_in(execute_run(runs, run, out, resources))


def predict_at_once(density: Density, posterior: CollectedPosterior) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of collected networks for all test points, several networks in one pass."""
    names = [name for name, _ in density.network.named_parameters()]
    weights = torch.stack([torch.cat([sample[name].flatten() for name in names]) for sample in posterior.samples])
    return torch.cat([density.predict(some) for some in weights.tensor_split(-(-len(weights) // 50))]).numpy()


def predict(posterior: Posterior, data: TargetData, run: Run, device: torch.device) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of a posterior for all test points."""
    generator = torch_generator(device, run.seed, "predict")
    with torch.no_grad():
        parts = [
            posterior.predict(some.to(device), run.method.samples, generator).float().cpu().numpy()
            for some in torch.split(torch.from_numpy(standardised(data)[1]), PREDICT_BATCH)
        ]
    return np.concatenate(parts, axis=1)
