"""Hamiltonian Monte Carlo on a GPU: whether its numbers are right, how fast it is, and what a short reference takes.

    python benchmarks/gpu_hmc.py          needs a GPU; the data are drawn, none are to be brought
    python benchmarks/gpu_hmc.py --toy    the same lines on the processor, at a size that says nothing about speed

1. Values and gradients of both targets against the processor's in float64: in float64 (the formulas) and in float32 (as
   chains are run). Weights are evaluated twice, by the call that records the graph and by one that replays it with others.
2. Leapfrog steps per second, per chain and in total: every operation launched (eager), and the recorded graph.
3. A reference of `fundus`, 4 chains of 20 + 20 transitions, far too short to pass: its time.

Exits with 1 where the numbers are apart. On a processor nothing is recorded, and both ways are the same.
"""

import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from toolkit import parse, seconds
from torch import Tensor

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.reference.make_reference import make_reference
from retinabench.fidelity.targets.data import TargetData, load
from retinabench.fidelity.targets.density import Density, Recorded
from retinabench.fidelity.targets.target import TARGETS, Target
from retinabench.methods import hmc

CHAINS = {"energy-gap": (8, 64, 512), "fundus": (4, 16)}
STEPS = {"energy-gap": 200, "fundus": 20}
STEP = {"energy-gap": 0.0001, "fundus": 0.002}
# Relative to the largest; sums of up to 2,000 terms in another order. Convolutions in TF32 are 1e-3 apart: too much.
APART = {torch.float64: 1e-10, torch.float32: 1e-4}
ROUNDS = 5


def drawn_energy(count: int) -> TargetData:
    """Points of the shape of UCI energy, whose own files are the user's to bring."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(count, 8))
    points = ArrayDataset(inputs, inputs.sum(axis=1) + random.normal(size=count), np.full(count, "train"))
    return TargetData(points, replace(points, groups=np.full(count, "in_domain")))


def data_of(chosen: Target, *, toy: bool) -> TargetData:
    """Drawn retinas as the target has them; for `energy-gap`, whose files are the user's to bring, points of their shape."""
    if chosen.name == "fundus" and not toy:
        return load(chosen)
    count = 12 if toy else chosen.train
    if chosen.name == "energy-gap":
        return drawn_energy(count)
    random = np.random.default_rng(0)
    inputs, truth = random.integers(0, 255, (count, 28, 28, 3), dtype=np.uint8), random.integers(0, 5, count)
    train = ArrayDataset(inputs, truth, np.full(count, "train"))
    return TargetData(train, replace(train, groups=np.full(count, "in_domain")))


def draw(chosen: Target, chains: int, seed: int) -> Tensor:
    """Weights of half the prior's deviation, where chains start, (K, P)."""
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * math.sqrt(chosen.prior_variance) * torch.randn(chains, chosen.parameters, generator=generator)


def check(chosen: Target, data: TargetData, device: str) -> bool:
    """Print how far the device's values and gradients are from the processor's; return whether that is near enough."""
    truth, right = Density.of(chosen, data, dtype=torch.float64), True
    for dtype, limit in APART.items():
        density = Density.of(chosen, data, device, dtype)
        for call, seed in (("first call", 1), ("second call", 2)):
            weights = draw(chosen, 3, seed)
            pairs = zip(density(weights.to(device, dtype)), truth(weights.double()), strict=True)
            apart = [float((found.cpu() - true).abs().max() / true.abs().max()) for found, true in pairs]
            near = all(x < limit for x in apart)  # no number is not near
            right = right and near
            said = f"values apart by {apart[0]:.1e}, gradients by {apart[1]:.1e}, relative to the largest"
            verdict = "right" if near else f"WRONG, the limit is {limit:.0e}"
            print(f"{chosen.name}, {dtype}, {call}: {said}: {verdict}", flush=True)
    return right


def speed(log_likelihood: hmc.LogLikelihood, weights: Tensor, chosen: Target, steps: int, rounds: int) -> float:
    state = hmc.start(log_likelihood, weights)

    def walk() -> None:
        hmc.leapfrog(log_likelihood, state, torch.zeros_like(weights), chosen.prior_variance, STEP[chosen.name], steps)
        if weights.is_cuda:
            torch.cuda.synchronize()

    times = [seconds(walk) for _ in range(rounds + 1)]
    return steps / statistics.median(times[1:])  # the first one warms up


def speeds(chosen: Target, data: TargetData, device: str, *, toy: bool) -> None:
    density = Density.of(chosen, data, device)
    steps, rounds = (2, 1) if toy else (STEPS[chosen.name], ROUNDS)
    for chains in CHAINS[chosen.name][: 1 if toy else None]:
        weights = draw(chosen, chains, 1).to(device)
        recorded = Recorded(density.compute) if weights.is_cuda else density.compute
        eager, graph = (speed(way, weights, chosen, steps, rounds) for way in (density.compute, recorded))
        numbers = f"{eager:12,.1f} {chains * eager:12,.0f} {graph:12,.1f} {chains * graph:12,.0f} {graph / eager:8.2f}"
        print(f"{chosen.name:12s} {chains:6d} {numbers}", flush=True)


def short_reference(chosen: Target, data: TargetData, device: str, *, toy: bool) -> None:
    length, step = (10, 0.05) if toy else (20, None)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        options = {"chains": 4, "burn_in": length, "keep": length, "seed": 0, "step": step, "device": device}
        took = seconds(lambda: made.append(make_reference(chosen, data, Path(folder), **options)))
    about = made[0].about
    acceptance = ", ".join(f"{rate:.2f}" for rate in about.acceptance)
    print(
        f"reference of {chosen.name}, 4 chains of {length} + {length} transitions of {about.steps} steps, and as "
        f"many of half the step as its check asks: {took:.1f} s; acceptance {acceptance}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    toy = parse(__doc__, arguments, toy=False).toy
    if not toy and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU; --toy runs the same lines without one")
    device = "cpu" if toy else "cuda"
    print(f"{'CPU' if toy else torch.cuda.get_device_name()}, torch {torch.__version__}")
    data = {name: data_of(TARGETS[name], toy=toy) for name in CHAINS}
    right = [check(TARGETS[name], data[name], device) for name in CHAINS]
    print(f"{'leapfrog steps/s':12s} chains   eager/chain        total  graph/chain        total graph/eager")
    for name in CHAINS:
        speeds(TARGETS[name], data[name], device, toy=toy)
    name = "energy-gap" if toy else "fundus"  # whose trajectories are short enough for a test
    short_reference(TARGETS[name], data[name], device, toy=toy)
    return 0 if all(right) else 1


if __name__ == "__main__":
    raise SystemExit(main())
