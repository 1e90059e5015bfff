"""Samples per second of SGLD, SGHMC and SWAG beside other libraries', and what one member of a sequential ensemble costs.

`python benchmarks/sgmcmc.py [--rounds 5] [--epochs 20]`. Opponents: `posteriors` (SGLD, SGHMC) and torch-uncertainty (SWAG).

A sample is a step. Ours are those of the real training loop: order, loading, checks and schedule included. Theirs are the
library's update, in place, in a bare loop over the same batches. A draw of SWAG is one set of weights from 20 deviations. A
sequential member takes 2 epochs, a fresh one 50. Same network, one thread, paired in one run: a ratio of a round is ours
over theirs, the figure the median over rounds. torch-uncertainty's SWAG is loaded on its own: the whole package imports
torchvision. Needs an idle machine: it prints the load.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib
import statistics
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from toolkit import parse, ratio, seconds
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.data.dataset import ArrayDataset
from retinabench.experiments.config import Run, load_run
from retinabench.fidelity.targets.data import TargetData, load
from retinabench.fidelity.targets.density import build_network, likelihood_of, point_batches
from retinabench.fidelity.targets.target import TARGETS, Target
from retinabench.methods import swag
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint

CPU = torch.device("cpu")
FIRST, EACH, MEMBERS = 50, 2, 11  # epochs of the first member and of the others; members


def drawn_energy(count: int) -> TargetData:
    """Points of the shape of UCI energy, whose own files are the user's to bring."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(count, 8))
    points = ArrayDataset(inputs, inputs.sum(axis=1) + random.normal(size=count), np.full(count, "train"))
    return TargetData(points, replace(points, groups=np.full(count, "in_domain")))


def settings(of: Target, method: str, epochs: int, *words: str) -> Run:
    """A run on the target's posterior."""
    prior = [f"optimizer.l2={1 / (2 * of.train * of.prior_variance)}", "optimizer.l2_on=everything"]
    plain = ["optimizer.reweight=none", "optimizer.augment=none", "optimizer.select=last", "optimizer.batch_size=50"]
    rest = ["optimizer.lr=1e-3", f"optimizer.epochs={epochs}", f"method.name={method}"]
    return load_run(None, [*prior, *plain, *rest, *words], data="d")


def ours(of: Target, data: TargetData, run: Run) -> float:
    """Seconds of a whole fit, written to a folder."""
    batches = point_batches(data, run.optimizer.batch_size, 0, CPU)
    network = build_network(of, 0)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, method = Checkpoint(Path(folder), interval=20), METHODS[run.method.name]
        return seconds(lambda: method.fit(network, batches, run, checkpoint, likelihood_of(of)))


def theirs(of: Target, data: TargetData, run: Run, kind: str) -> float:
    """Seconds of as many steps of `posteriors`, over the same batches."""
    import posteriors

    batches = point_batches(data, run.optimizer.batch_size, 0, CPU)
    network, images, l2 = build_network(of, 0), len(batches.train), run.optimizer.l2
    likelihood = likelihood_of(of)

    def log_posterior(weights: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = functional_call(network, weights, (batch[0],))
        prior = sum(w.square().sum() for w in weights.values())
        return -likelihood.negative_log_likelihood(outputs, batch[1]).mean() - l2 * prior, torch.tensor([])

    build = {"sgld": posteriors.sgmcmc.sgld.build, "sghmc": posteriors.sgmcmc.sghmc.build}[kind]
    sampler = build(log_posterior, lr=1e-4, temperature=1 / images)
    state = sampler.init({name: p.detach().clone() for name, p in network.named_parameters()})

    def steps() -> None:
        for epoch in range(run.optimizer.epochs):
            for batch in batches.epoch(epoch):
                sampler.update(state, batch, inplace=True)

    return seconds(steps)


@cache
def foreign_swag() -> type[nn.Module]:
    """Return torch-uncertainty's SWAG without the rest of its package. Raises `ImportError` where it is not installed."""
    found = find_spec("torch_uncertainty")
    if found is None or found.origin is None:
        raise ImportError("torch-uncertainty is not installed")
    for name, part in (("torch_uncertainty", ""), ("torch_uncertainty.methods", "methods")):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(found.origin).parent / part)]
        sys.modules[name] = package
    return importlib.import_module("torch_uncertainty.methods.swag").SWAG  # type: ignore[no-any-return]


def walk_of(network: nn.Module) -> Iterator[None]:
    """Move the weights a little, 20 times."""
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        with torch.no_grad():
            for p in network.parameters():
                p.add_(0.01 * torch.randn(p.shape, generator=random))
        yield


def swag_clocks(of: Target, draws: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return clocks of `draws` sets of weights by our SWAG and by torch-uncertainty's, fitted to the same path."""
    network = build_network(of, 0)
    moments = swag.Moments(of.parameters, 20, CPU)
    other = foreign_swag()(network, cycle_start=0, cycle_length=1, num_estimators=1)
    for epoch, _ in enumerate(walk_of(network), 1):
        moments.collect(swag.flat_weights(network))
        other.update_wrapper(epoch)
    generator = torch.Generator().manual_seed(1)

    def own() -> None:
        for _ in range(draws):
            vector = swag.draw(moments.mean, moments.variance, moments.deviations, 0.5, generator)
            swag.named_weights(network, vector)

    def foreign() -> None:
        for _ in range(draws):
            other.sample(0.5)

    return lambda: seconds(own), lambda: seconds(foreign)


def paired(name: str, own: Callable[[], float], other: Callable[[], float], samples: int, rounds: int) -> None:
    """Print samples per second of both, and the median ratio with its largest deviation."""
    own(), other()
    middle, spread, pairs = ratio(own, other, rounds)
    first, second = (statistics.median(samples / pair[k] for pair in pairs) for k in (0, 1))
    print(f"{name:34s} {first:9.0f} {second:9.0f} {middle:7.2f} ± {spread:.2f}", flush=True)


def compare(of: Target, data: TargetData, epochs: int, rounds: int) -> None:
    """Print all comparisons on one target."""
    steps = epochs * point_batches(data, 50, 0, CPU).steps
    for kind in ("sgld", "sghmc"):
        run = settings(of, kind, epochs)
        try:
            clocks = partial(ours, of, data, run), partial(theirs, of, data, run, kind)
            paired(f"{of.network}, {kind} / posteriors", *clocks, steps, rounds)
        except ImportError as error:
            print(f"posteriors is not compared: {error}")
    try:
        paired(f"{of.network}, SWAG draws / t.-u.", *swag_clocks(of, 200), 200, rounds)
    except ImportError as error:
        print(f"torch-uncertainty is not compared: {error}")
    fresh, total = settings(of, "anchored", FIRST), FIRST + EACH * (MEMBERS - 1)
    chain = settings(of, "sequential_anchored", total, f"method.samples={MEMBERS}", f"method.first={FIRST / total}")
    costs = []
    for _ in range(rounds):
        alone = ours(of, data, fresh)
        costs.append((ours(of, data, chain) - alone) / (MEMBERS - 1) / alone)
    cost = statistics.median(costs)
    print(f"{of.network}, a sequential member: {cost:.3f} of a fresh one (epochs: {EACH / FIRST:.3f})")


def main() -> None:
    """Compare on the regression network and on the smooth LeNet."""
    options = parse(__doc__, rounds=5, epochs=20)
    torch.set_num_threads(1)
    print(f"load of the machine: {os.getloadavg()[0]:.2f}; samples per second, ratio ours / theirs")
    for name in ("energy-gap", "fundus"):
        of = TARGETS[name]
        data = drawn_energy(of.train) if name == "energy-gap" else load(of)
        epochs = options.epochs if name == "energy-gap" else max(2, options.epochs // 10)
        compare(of, data, epochs, options.rounds)


if __name__ == "__main__":
    main()
