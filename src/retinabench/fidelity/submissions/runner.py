"""Running one entry on one target, from data to submission; idempotent, resumable, counted.

The folder of a run is named after entry, task, seed and the hash of what decides its numbers, and holds
- `run.json`: the run, the target, the data's hash; written first;
- `last.pt`, `best.pt`, `metrics.jsonl`: the training so far (`methods/checkpoint.py`), until it is done;
- `predicted.npz`: the posterior's predictions sample by sample (S, N, O), and what they cost;
- `submission.npz`: THE result (`submission.py`), in the folder of an entry, not in those of its members;
- `done`: written last.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.atomic_files import sweep, write_bytes, write_json
from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.core.version import __version__
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, is_composed
from retinabench.fidelity.submissions.budget import SECONDS, Meter, check_plan, planned
from retinabench.fidelity.submissions.entries import entry, entry_run
from retinabench.fidelity.submissions.gp_baseline import DIRECT, run_direct
from retinabench.fidelity.submissions.submission import Submission, submission_in, write_submission
from retinabench.fidelity.targets.data import Data, load, point_batches, standardised
from retinabench.fidelity.targets.networks import build_network, likelihood_of
from retinabench.fidelity.targets.target import Target
from retinabench.methods.base import FidelitySettings, Posterior
from retinabench.methods.mcmc.weight_samples import SAMPLES
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint

PREDICT_BATCH = 256
SAVED_EVERY = 20.0  # seconds between checkpoints
CPU = Resources("cpu")  # these networks are too small for anything else
KEPT_SAMPLES = 200  # in the submission of a classification
DRAWS = 1000  # y-samples per test point of a regression


@dataclass(frozen=True)
class Sitting:
    """What all runs of one entry share."""

    target: Target
    data: Data
    out: Path
    engine: Resources
    limited: bool = True

    @property
    def definition(self) -> str:
        """Of the target, whatever data are found: changed data meet the old folder and are refused."""
        return self.target.fingerprint(self.target.sha256)


@dataclass(frozen=True, eq=False)
class Predicted:
    """Class probabilities, or means and deviations, (S, N, O) of all test points, with their cost."""

    values: NDArray[np.float32]
    gradients: float  # per training example
    seconds: float


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
    engine: Resources = CPU,
) -> Path:
    """Train the entry `name` on `target`, predict its test points, and return the submission's path.

    budget: gradient evaluations per training example. over_budget: "refuse", or "mark" in the submission. overrides:
    `key=value` words, such as `optimizer.lr=0.01`. Where the same was done before, its file is returned; where it was
    killed, it goes on. Raises `InputError` where the plan exceeds the budget, or a folder was begun with other data.
    """
    data = load(target, source)
    if name in DIRECT:
        return run_direct(
            name,
            target,
            data,
            budget=budget,
            seed=seed,
            out=out,
            overrides=overrides,
            progress=engine.progress,
        )
    chosen = entry(name)
    run = entry_run(chosen, target, len(data.train), budget, seed, overrides)
    planned(run)  # refuses what cannot take part
    if over_budget == "refuse":
        check_plan(run, budget)
    sitting = Sitting(target, data, out, engine, over_budget == "refuse")
    identity = run.hash(f"{sitting.definition} {budget:g} {name}")
    folder = out / f"{name}-{target.name}-seed-{seed}-{identity}"
    _claim(folder, run, sitting)
    file = submission_in(folder)
    if not (folder / "done").is_file():
        predicted = _predicted(run, sitting, folder)
        write_submission(file, _submission(predicted, chosen, run, sitting, budget))
        write_bytes(folder / "done", b"")
    else:
        engine.progress.say(f"{chosen.title}, {target.name}, seed {seed}: done before")
    return file


def _predicted(run: Run, sitting: Sitting, folder: Path) -> Predicted:
    """Return the predictions of a run sample by sample: found, pooled from its members, or computed."""
    if (folder / "predicted.npz").is_file():
        return _read(folder / "predicted.npz")
    method = METHODS[run.method.name]
    if not is_composed(method):
        found = _fit_and_predict(run, sitting, folder)
        _write(folder / "predicted.npz", found)
        for leftover in folder.rglob("*.pt"):
            leftover.unlink()
        shutil.rmtree(folder / SAMPLES, ignore_errors=True)
        return found
    members = []
    for member in method.member_runs(run):
        identity = member.hash(sitting.definition)
        place = sitting.out / f"{member.method.name}-{sitting.target.name}-seed-{member.seed}-{identity}"
        _claim(place, member, sitting)
        members.append(_predicted(member, sitting, place))
    return Predicted(
        np.concatenate([m.values for m in members]),
        sum(m.gradients for m in members),
        sum(m.seconds for m in members),
    )


def _fit_and_predict(run: Run, sitting: Sitting, folder: Path) -> Predicted:
    device = sitting.engine.torch_device()
    batches = point_batches(sitting.data, run.optimizer.batch_size, run.seed, device)
    meter = Meter(len(sitting.data.train), planned(run) if sitting.limited else None)
    network = meter.watch(build_network(sitting.target, run.seed).to(device))
    title = f"{run.method.name}, {sitting.target.name}, seed {run.seed}"
    checkpoint = Checkpoint(folder, sitting.engine.progress, title, interval=SAVED_EVERY, counts=meter.counts)
    method, likelihood = METHODS[run.method.name], likelihood_of(sitting.target)
    posterior: Posterior = method.fit(network, batches, run, checkpoint, likelihood)
    values = predict(posterior, sitting.data, run, device)
    return Predicted(values, meter.used, meter.counts.get(SECONDS, 0.0))


def predict(posterior: Posterior, data: Data, run: Run, device: torch.device) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of a posterior for all test points: probabilities, or means and standard deviations."""
    generator = torch_generator(device, run.seed, "predict")
    points = torch.from_numpy(standardised(data)[1])
    with torch.no_grad():
        parts = [
            posterior.predict(some.to(device), run.method.samples, generator).float().cpu().numpy()
            for some in torch.split(points, PREDICT_BATCH)
        ]
    return np.concatenate(parts, axis=1)


def _submission(
    predicted: Predicted, chosen: FidelitySettings, run: Run, sitting: Sitting, budget: float
) -> Submission:
    target, values = sitting.target, predicted.values
    meta = {
        "task": target.name,
        "target": target.fingerprint(sitting.data.sha256),
        "data": sitting.data.sha256,
        "method": chosen.name,
        "title": chosen.title,
        "seed": run.seed,
        "run": run.model_dump(mode="json", exclude={"model"}),
        "budget": {"limit": budget, "used": predicted.gradients, "over": predicted.gradients > budget},
        "seconds": round(predicted.seconds, 1),
        "version": __version__,
    }
    if target.likelihood == "gaussian":
        draws = y_draws(values, numpy_generator(run.seed, "exam", target.name))
        return Submission(draws=draws.astype(np.float32), meta=meta)
    kept = np.linspace(0, len(values) - 1, min(len(values), KEPT_SAMPLES)).round().astype(int)
    return Submission(probs=values.mean(axis=0, dtype=np.float64), samples=values[kept], meta=meta)


def y_draws(
    predicted: NDArray[np.float32], generator: np.random.Generator, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Draw y from a mixture of Gaussians, noise included: means and deviations (S, N, 2) -> (N, draws).

    Every sample of the posterior gives equally many draws, as far as their number allows.
    """
    samples = np.arange(draws) * len(predicted) // draws
    mean, deviation = predicted[samples, :, 0].T, predicted[samples, :, 1].T
    return np.asarray(mean + deviation * generator.standard_normal(mean.shape), np.float64)


def _claim(folder: Path, run: Run, sitting: Sitting) -> None:
    """Write `run.json`, or check that the folder was begun with the same data."""
    sweep(folder)
    file = folder / "run.json"
    if file.is_file():
        begun = json.loads(file.read_text())["data"]
        if begun != sitting.data.sha256:
            raise InputError(
                f"was begun with other data (SHA-256 {begun[:12]}…, now {sitting.data.sha256[:12]}…)",
                file=folder,
                hint="Restore the data, or choose another --out.",
            )
        return
    content = {
        "run": run.model_dump(mode="json", exclude={"model"}),
        "target": sitting.target.model_dump(mode="json"),
        "data": sitting.data.sha256,
        "version": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    write_json(file, content)


def _write(path: Path, predicted: Predicted) -> None:
    sink = io.BytesIO()
    cost = np.array([predicted.gradients, predicted.seconds])
    np.savez(sink, values=predicted.values, cost=cost)
    write_bytes(path, sink.getvalue())


def _read(path: Path) -> Predicted:
    with np.load(path, allow_pickle=False) as arrays:
        gradients, seconds = arrays["cost"].tolist()
        return Predicted(arrays["values"], gradients, seconds)
