"""The reference of a target: chains, a check at half their step, diagnostics and a verdict.

Letters: K chains, T kept transitions, N test points, O predicted quantities, C classes, S samples, m draws per chain.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, Progress
from retinabench.core.random_streams import derive, numpy_generator, torch_generator
from retinabench.core.results import vars_of
from retinabench.fidelity import distances
from retinabench.fidelity.reference import convergence
from retinabench.fidelity.reference.chains import ChainPlan, Chains, initial_weights, sample
from retinabench.fidelity.reference.convergence import rank_rhat, split_rhat
from retinabench.fidelity.reference.reference_file import QUALITIES, Reference, ReferenceAbout
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target
from retinabench.methods import hmc

STATE_BYTES = {"categorical": 2_000_000, "gaussian": 500_000}
"""For the states from which anyone computes the diagnostics again; draws of y take the space of a regression."""
SAMPLE_BYTES = 1_000_000  # for thinned samples, so that a file stays small
DRAWS = 1000  # of y, of each chain: as many as submissions have, so that distances have the same noise
ALL_DRAWS = 4000  # of y, of all chains: more than four chains have fewer each, so that a file stays small
GRAIN = 2**-10  # draws are rounded to it, which halves the file: a twentieth of the least std
BLOCK = 100  # test points worked on at once
Values = NDArray[np.float64]


def make_reference(
    target: Target,
    data: TargetData,
    folder: Path,
    *,
    chains: int,
    burn_in: int,
    keep: int,
    seed: int,
    step: float | None = None,
    acceptance: float = 0.7,
    device: str = "cpu",
    command: str = "",
    progress: Progress = QUIET,
) -> Reference:
    """Sample the posterior of a target, or continue the chains in `folder`, and judge the result."""
    torch.set_num_threads(1)  # the density has its own threads, and the numbers must not depend on how many
    density = Density.of(target, data, device)
    first = step or _first_step(density, ChainPlan(chains, 0, 0, seed, 1.0))
    plan = ChainPlan(chains, burn_in, keep, seed, first, acceptance)
    kept, half = _sample_twice(density, plan, folder, data, device, progress)
    found = convergence.diagnose(kept.predictions)
    arrays = (_classes if target.likelihood == "categorical" else _draws)(kept, seed)
    about = _assessment(target, data, kept, half, found, plan).changed(
        command=command,
        ceiling=ceiling(arrays, data.test.groups),
        dtype="float32",
        threads=1,
        machine=f"{platform.machine()}, {torch.device(device).type}, PyTorch {torch.__version__}",
    )
    arrays |= {name: getattr(found, name).astype(np.float32) for name in QUALITIES}
    return Reference(about, **arrays, **_evidence(kept, half, density, plan)).with_verdict()


def _evidence(kept: Chains, half: Chains, density: Density, plan: ChainPlan) -> dict[str, NDArray[Any]]:
    """Return the arrays that the verdict is computed from; states are thinned alike where they are too many."""
    stride = max(1, -(-2 * kept.predictions.size // STATE_BYTES[density.target.likelihood]))
    return {
        "states": kept.predictions[::stride].astype(np.float16),
        "half_states": half.predictions[::stride].astype(np.float16),
        "history": _finite(kept.kept_history),
        "half_history": _finite(half.kept_history),
        "start": density.predict(initial_weights(plan, density)).cpu().numpy().astype(np.float32),
    }


def _finite(history: Values) -> NDArray[np.float32]:
    """Return a history as float32, with a trajectory that left the finite numbers as an energy error of 1e9."""
    return np.clip(np.nan_to_num(history, nan=1e9), -1e9, 1e9).astype(np.float32)


def _sample_twice(
    density: Density, plan: ChainPlan, folder: Path, data: TargetData, device: str, progress: Progress
) -> tuple[Chains, Chains]:
    """Return the chains, and a stretch at half their step from where they ended."""
    target, kind = density.target, torch.device(device).type
    manifest = {"target": target.fingerprint(data.sha256), "data": data.sha256, "dtype": "float32", "device": kind}
    manifest["start"] = "prior"
    kept = sample(density, plan, folder, manifest, progress=progress, label=target.name)
    stretch = ChainPlan(plan.chains, 0, max(20, plan.keep // 4), derive(plan.seed, "half step"), kept.step / 2)
    half = sample(
        density, stretch, folder / "half-step", manifest,
        start=kept.state.weights, progress=progress, label="half the step",
    )  # fmt: skip
    return kept, half


def _assessment(
    target: Target, data: TargetData, kept: Chains, half: Chains, found: convergence.Diagnosis, plan: ChainPlan
) -> ReferenceAbout:
    errors = convergence.energy(kept.kept_history)
    halved = convergence.half_step(kept.predictions, kept.kept_history, half.predictions, half.kept_history, found.mcse)
    steps, weights = hmc.steps_for(kept.step, target.prior_variance), kept.weights.transpose(1, 0, 2)
    return ReferenceAbout(
        task=target.name,
        target=target.fingerprint(data.sha256),
        data=data.sha256,
        seed=plan.seed,
        chains=plan.chains,
        burn_in=plan.burn_in,
        kept=plan.keep,
        step=kept.step,
        steps=steps,
        prior_variance=target.prior_variance,
        start="a draw of the prior for each chain",
        acceptance=tuple(kept.kept_history[:, 0].mean(axis=0).tolist()),
        energy_error=errors,
        half_step=halved,
        thresholds=vars_of(convergence.THRESHOLDS),
        **{name: convergence.summary(values) for name, values in vars(found).items()},
        rhat_below={limit: convergence.share_below(found.rhat, float(limit)) for limit in ("1.01", "1.05", "1.1")},
        weight_rhat=convergence.summary(rank_rhat(weights)),
        weight_split_rhat=convergence.summary(split_rhat(weights)),
        gradients=len(kept.history) * steps * plan.chains,
        seconds=kept.seconds + half.seconds,
    )


def _first_step(density: Density, plan: ChainPlan) -> float:
    """Return a fourth of the step that is accepted half the time when applied once, since trajectories have many steps."""
    state = hmc.start(density, initial_weights(plan, density))
    generator = torch_generator("cpu", plan.seed, "first step")
    return hmc.first_step(density, state, density.target.prior_variance, generator) / 4


def _classes(kept: Chains, seed: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a classification; the information measures are those of all kept states."""
    transitions, chains, points, classes = kept.predictions.shape
    epistemic, disagreement = np.empty(points, np.float32), np.empty(points)
    for first in range(0, points, BLOCK):
        states = kept.predictions[:, :, first : first + BLOCK].reshape(transitions * chains, -1, classes)
        states = states.astype(np.float64)
        epistemic[first : first + BLOCK] = distances.epistemic(states)
        disagreement[first : first + BLOCK] = distances.pairwise_disagreement(states)
    each = max(1, min(transitions, SAMPLE_BYTES // (2 * chains * points * classes)))
    thinned = kept.predictions[_thinned(transitions, each)].swapaxes(0, 1)
    probs = kept.predictions.mean(axis=0, dtype=np.float64)
    return {
        "epistemic": epistemic,
        "chain_probs": probs / probs.sum(axis=-1, keepdims=True),
        "samples": thinned.reshape(-1, points, classes).astype(np.float16),
        "pairwise_disagreement": np.array(disagreement.mean()),
    }


def _draws(kept: Chains, seed: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a regression: every draw of y is that of one kept state."""
    transitions, chains = kept.predictions.shape[:2]
    states = kept.predictions[_thinned(transitions, min(DRAWS, ALL_DRAWS // chains))]
    noise = numpy_generator(seed, "draws of y").standard_normal(states.shape[:3])
    draws = np.round((states[..., 0] + states[..., 1] * noise) / GRAIN) * GRAIN
    return {
        "epistemic": kept.predictions[..., 0].std(axis=(0, 1), dtype=np.float64).astype(np.float32),
        "chain_draws": np.ascontiguousarray(draws.transpose(1, 2, 0).astype(np.float32)),
    }


def _thinned(transitions: int, wanted: int) -> NDArray[np.intp]:
    """Return evenly spaced transitions; some twice where there are fewer than wanted."""
    return np.linspace(0, transitions - 1, wanted).round().astype(np.intp)


def ceiling(arrays: Mapping[str, NDArray[Any]], group: NDArray[np.str_]) -> dict[str, dict[str, list[float]]]:
    """Return how close each chain comes to all others together, which limits what can be told from a perfect method."""
    kinds = np.char.partition(group, "-")[:, 0]
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds.tolist()}
    wanted, likelihood = ("chain_probs", "categorical") if "chain_probs" in arrays else ("chain_draws", "gaussian")
    if len(chains := arrays[wanted]) < 2:
        return found
    pairs = [(chain, distances.of_others(chains, k, likelihood)) for k, chain in enumerate(chains)]
    for name, distance in distances.RANKED[likelihood].items():
        each = [distance(*pair) for pair in pairs]
        for kind, means in found.items():
            means[name] = [float(terms[kinds == kind].mean()) for terms in each]
    return found
