"""The sampling entries under a counted budget: one of `hmc`, `nuts`, `mclmc`, `smc` and `svgd` on one target.

Each full-batch gradient of a chain or particle is one evaluation per training example.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.progress import Progress
from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.submissions.untrained import approximate_samplers, exact_samplers
from retinabench.fidelity.submissions.untrained.counted import Counted, Sampler
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target

FEWEST_GRADIENTS = 20  # of a budget: one for each of the trajectories that a chain makes at least
MOST_STATES = 1000  # that are predicted with

SAMPLERS: dict[str, Sampler] = {**exact_samplers.SAMPLERS, **approximate_samplers.SAMPLERS}
HOW = {
    "hmc": "draws of one chain",
    "nuts": "draws of one chain",
    "mclmc": "draws of one chain, up to the error of its step",
    "smc": "particles from the prior through powers of the likelihood",
    "svgd": "particles that repel each other",
}


def sample(
    name: str, target: Target, data: TargetData, budget: int, seed: int, progress: Progress
) -> tuple[NDArray[np.float32], int]:
    """Return the predictions of the kept states (S, N, O), and the gradient evaluations that they took.

    Args:
        name: Of `SAMPLERS`.
        target: The target.
        data: Its data.
        budget: Gradient evaluations per training example, at least `FEWEST_GRADIENTS`.
        seed: Of all random streams.
        progress: Is told how far the sampler is.
    """
    torch.set_num_threads(1)
    density = Density.of(target, data)
    counted = Counted(density)
    stream = "exact sampler" if name in exact_samplers.SAMPLERS else "approximate sampler"
    generator = torch_generator("cpu", seed, stream, name, target.name)
    with progress.track(f"{name}, {target.name}", budget, unit="gradients") as advance:
        kept = SAMPLERS[name](target, counted, budget, generator, advance)
    return _predicted(density, kept), counted.used


def _predicted(density: Density, kept: Sequence[Tensor]) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of states (K, P) each, of at most `MOST_STATES` that are evenly spaced."""
    weights = torch.cat(list(kept))
    rows = np.linspace(0, len(weights) - 1, min(len(weights), MOST_STATES)).round().astype(int)
    parts = [density.predict(weights[some]) for some in np.array_split(rows, -(-len(rows) // 50))]
    return torch.cat(parts).numpy()
