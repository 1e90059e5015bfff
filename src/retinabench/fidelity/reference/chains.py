"""Chains of Hamiltonian Monte Carlo on disk, which continue after a process is killed.

    settings.json    the manifest: what the chains depend on
    checkpoint.npz   where the chains stand, and the history of all transitions
    kept.f32         one row per kept transition: (K, N O) predictions, then (K, W) monitored weights; rows past the
                     checkpoint's count are written again

All randomness of a transition is a function of seed and its number, so a resumed chain repeats the rest bit for bit on
one machine. Letters: K chains, T kept transitions, N test points, O predicted quantities, P weights, W monitored ones.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.errors import QUIET, InputError, Progress, WorkError, check, kept_inside, open_in_place
from retinabench.core.files import atomic_write, explain
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.workspace import Workspace
from retinabench.fidelity.targets.density import Density
from retinabench.methods import hmc

MONITORED = 1000  # weights whose mixing is monitored; all where there are fewer
STUCK = 30  # transitions after which chains that accept nothing are stopped
LONGEST = 1000  # leapfrog steps of a transition in burn-in, where a step that is still too small would cost hours
INTERVAL = 20.0  # seconds between checkpoints


@dataclass(frozen=True)
class ChainPlan:
    """The settings of some chains."""

    chains: int
    burn_in: int
    keep: int
    seed: int
    first: float
    acceptance: float = 0.7


@dataclass(frozen=True, eq=False)
class Chains:
    """The kept transitions, predictions (T, K, N, O) and monitored weights (T, K, W), and the history of all, (T, 3, K)."""

    predictions: NDArray[np.float32]
    weights: NDArray[np.float32]
    history: NDArray[np.float64]
    burn_in: int
    step: float
    state: hmc.State
    seconds: float

    @property
    def kept_history(self) -> NDArray[np.float64]:
        """Acceptance probability, acceptance and energy error of the kept part, (T, 3, K)."""
        return self.history[self.burn_in :]


def initial_weights(plan: ChainPlan, density: Density) -> Tensor:
    """Return a draw of the prior for each chain, (K, P): farther apart in their predictions than the posterior is wide.

    Half of a draw is not: its predictions are .25 (`fundus`) and .14 (`fundus-small`) times as far apart, those of a draw 1.4 and 1.2.
    """
    shape, dtype = (plan.chains, density.target.parameters), density.train[0].dtype
    drawn = torch.randn(shape, generator=torch_generator("cpu", plan.seed, "start"), dtype=dtype)
    return (math.sqrt(density.target.prior_variance) * drawn).to(density.test.device)


def sample(
    density: Density,
    plan: ChainPlan,
    folder: Path,
    manifest: JsonObject,
    *,
    start: Tensor | None = None,
    progress: Progress = QUIET,
    label: str = "chains",
    interval: float = INTERVAL,
) -> Chains:
    """Run the chains to the end of the plan, from where they stand, or from weights (K, P).

    A larger `plan.keep` continues finished chains; a smaller one reads their beginning.
    """
    workspace = Workspace(folder, "set of chains", "settings.json")
    with workspace.lock():
        settings = {**manifest, **{key: value for key, value in vars(plan).items() if key != "keep"}}
        workspace.begin(settings, hint="Repeat the command that began them, or choose another --out.")
        run, total = _Run.resume(density, plan, folder, start), plan.burn_in + plan.keep
        try:
            rows = os.fdopen(open_in_place(folder / "kept.f32", os.O_RDWR), "r+b")
            with progress.track(label, total, "transitions") as advance, rows:
                _sample_rest(run, folder, rows, interval, advance)
        except OSError as error:
            raise explain(error, folder / "kept.f32") from error
        return run.result(folder)


def _sample_rest(run: _Run, folder: Path, rows: Any, interval: float, advance: Callable[[int], None]) -> None:
    clock, end = time.monotonic(), run.plan.burn_in + run.plan.keep
    advance(min(run.done, end))
    while run.done < end:
        try:
            run.move()
        except WorkError:
            run.save(folder, rows)
            raise
        if run.done > run.plan.burn_in:
            run.write_row(rows)
        advance(1)
        now = time.monotonic()
        if now - clock > interval or run.done == end:
            run.seconds, clock = run.seconds + now - clock, now
            run.save(folder, rows)


@dataclass
class _Run:
    density: Density
    plan: ChainPlan
    state: hmc.State
    size: hmc.StepSize
    history: list[NDArray[np.float64]]
    seconds: float
    checksum: int | None = 0  # CRC-32 of the rows so far; None in chains that an older version began

    @classmethod
    def resume(cls, density: Density, plan: ChainPlan, folder: Path, start: Tensor | None) -> _Run:
        file = folder / "checkpoint.npz"
        if not file.exists():
            state = hmc.start(density, initial_weights(plan, density) if start is None else start)
            run = cls(density, plan, state, hmc.StepSize(plan.first, plan.acceptance), [], 0.0)
            run.check(state)
            return run
        with np.load(check(file), allow_pickle=False) as saved:
            tensors = (torch.from_numpy(saved[name]).to(density.test.device) for name in ("w", "l", "g"))
            error, smoothed, count, seconds = saved["numbers"].tolist()
            checksum = int(saved["checksum"]) if "checksum" in saved else None
            size = hmc.StepSize(plan.first, plan.acceptance, error, smoothed, int(count))
            return cls(density, plan, hmc.State(*tensors), size, list(saved["history"]), seconds, checksum)

    @property
    def done(self) -> int:
        return len(self.history)

    def move(self) -> None:
        burning, variance = self.done < self.plan.burn_in, self.density.target.prior_variance
        step = self.size.step if burning else self.size.adapted
        steps = hmc.steps_for(step, variance)
        steps = min(steps, LONGEST) if burning else steps
        generator = torch_generator("cpu", self.plan.seed, "transition", self.done)
        state, info = hmc.transition(
            self.density, self.state, prior_variance=variance, step=step, steps=steps, generator=generator
        )
        self.check(state)
        self.state = state
        if burning:
            self.size.update(float(info.acceptance.mean()))
        self.history.append(np.stack([x.double().cpu().numpy() for x in vars(info).values()]))
        if self.done >= STUCK and not any(accepted.any() for _, accepted, _ in self.history[-STUCK:]):
            raise WorkError(
                f"no chain has moved in the last {STUCK} transitions, with step sizes down to {step:.2g}. "
                "Start with a smaller --step or a longer --burn-in"
            )

    def check(self, state: hmc.State) -> None:
        finite = torch.isfinite(state.value) & torch.isfinite(state.gradient).all(dim=1)
        if not finite.all():
            broken = int((~finite).nonzero()[0])
            raise WorkError(
                f"chain {broken} has a log-likelihood of {float(state.value[broken])} or a gradient that is not finite, at "
                f"transition {self.done}. Transitions before it stay in the folder; a smaller --step or another --seed "
                "may help"
            )

    def write_row(self, rows: Any) -> None:
        predicted = self.density.predict(self.state.weights).flatten(1)
        monitored = self.state.weights[:, _monitored(self.plan.seed, self.density.target.parameters)].float()
        row = torch.cat([predicted.reshape(-1), monitored.reshape(-1)]).cpu().numpy()
        rows.seek((self.done - self.plan.burn_in - 1) * row.nbytes)
        rows.write(row.tobytes())
        if self.checksum is not None:
            self.checksum = zlib.crc32(row.tobytes(), self.checksum)

    def save(self, folder: Path, rows: Any) -> None:
        """Write the checkpoint, after all rows that it counts have reached the disk."""
        rows.flush()
        os.fsync(rows.fileno())
        w, value, gradient = (x.cpu().numpy() for x in (self.state.weights, self.state.value, self.state.gradient))
        numbers = np.array([self.size.error, self.size.log_smoothed, self.size.count, self.seconds])
        history = np.array(self.history).reshape(-1, 3, self.plan.chains)
        with atomic_write(folder / "checkpoint.npz", checked=True) as sink:
            sums: dict[str, Any] = {} if self.checksum is None else {"checksum": np.array(self.checksum)}
            np.savez(sink, w=w, l=value, g=gradient, numbers=numbers, history=history, **sums)

    def result(self, folder: Path) -> Chains:
        chains, keep = self.plan.chains, self.plan.keep
        size = len(self.density.test) * self.density.target.outputs
        monitored = len(_monitored(self.plan.seed, self.density.target.parameters))
        shape = (keep, chains * (size + monitored))
        self._check_rows(folder / "kept.f32", 4 * shape[1] * (self.done - self.plan.burn_in))
        rows = np.memmap(folder / "kept.f32", np.float32, "r", shape=shape)
        return Chains(
            rows[:, : chains * size].reshape(keep, chains, -1, self.density.target.outputs),
            rows[:, chains * size :].reshape(keep, chains, -1),
            np.array(self.history[: self.plan.burn_in + keep]),
            self.plan.burn_in,
            self.size.adapted,
            self.state,
            self.seconds,
        )

    def _check_rows(self, path: Path, size: int) -> None:
        """Compare the first `size` bytes of the rows with their checksum; the file grows, so none is listed for it."""
        found, left = 0, size
        with open(kept_inside(path.parent, path), "rb") as rows:
            while left and (some := rows.read(min(left, 2**20))):
                found, left = zlib.crc32(some, found), left - len(some)
        if left or (self.checksum is not None and found != self.checksum):
            hint = "Delete the folder; the same command then starts again."
            raise InputError("is damaged: its content is not what was written", file=path, hint=hint)


def _monitored(seed: int, parameters: int) -> NDArray[np.intp]:
    generator = numpy_generator(seed, "watched weights")
    return np.sort(generator.choice(parameters, min(MONITORED, parameters), replace=False))
