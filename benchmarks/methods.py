"""What a method costs: a training step and S = 5 predictions relative to MAP's, processor time of one thread, paired in one run.

`python benchmarks/methods.py [--methods NAME …] [--width 32] [--rounds 5] [--steps 8]`. Every round times MAP and then the method; the ratio of a
round is that of the two medians, and the figure is the median over rounds. The steps are those of the real training
loop, loading included. Ensembles in one network have five members. A prediction is one of several batches of the size that runs predict; weights that serve all of
them are drawn anew for each prediction. Beside others
neighbours in the cache disturb: it prints the load.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

import torch

from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.run import PREDICT_BATCH, make_batches
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.swag import SwagPosterior
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.models.build import build_model

SAMPLES = 5
BATCH = 32
PREDICTED = 2  # batches
STEP_LIMIT = {"mfvi": 2.3, "radial": 2.6, "rank1": 1.4, "dropout": 1.2, "batch_ensemble": 1.4, "lora_ensemble": 5.5}
PREDICTION_LIMIT = {"fsvi": 1.2, "laplace": 1.2, "head_ensemble": 1.2}  # the trunk runs once
CPU = torch.device("cpu")


class Stopwatch:
    """A `Progress` that notes when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
        yield lambda steps: self.ends.append(time.process_time())

    def say(self, line: str) -> None:
        """Nothing."""

    def median(self) -> float:
        return statistics.median(b - a for a, b in pairwise(self.ends[1:]))


def step_time(run: Run) -> float:
    """Median seconds of one training step, the first one left out."""
    watch = Stopwatch()
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    METHODS[run.method.name].fit(build_model(run.model, run.seed), batches, run, Checkpoint(progress=watch), LIKELIHOOD)
    return watch.median()


def predictor(run: Run) -> Callable[[], float]:
    """Return a clock of one prediction of `PREDICTED` batches with the untrained posterior."""
    posterior = METHODS[run.method.name].build(build_model(run.model, run.seed), run, LIKELIHOOD)
    if isinstance(posterior, SwagPosterior):
        posterior.deviations = torch.zeros(run.method.rank, len(posterior.variance))  # as many as after a training
    images = torch.rand(PREDICT_BATCH, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    seeds = count()

    def clock() -> float:
        generator = torch.Generator().manual_seed(next(seeds))  # no weights kept from before
        begin = time.process_time()
        for _ in range(PREDICTED):
            posterior.predict(images, SAMPLES, generator)
        return time.process_time() - begin

    clock()
    return clock


def foreign(run: Run, steps: int, layers: str) -> float:
    """Median seconds of a step of the same network with bayesian-torch's layers of this type.

    Raises `ImportError` where that is not installed.
    """
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    model = build_model(run.model, run.seed)
    prior = {"prior_mu": 0.0, "prior_sigma": 0.1, "posterior_mu_init": 0.0, "posterior_rho_init": -6.0}
    dnn_to_bnn(model, {**prior, "type": layers, "moped_enable": False})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    ends = []
    for images, labels in batches.epoch(0):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(images).squeeze(1), labels)
        (loss + get_kl_loss(model) / len(batches.train)).backward()
        optimizer.step()
        ends.append(time.process_time())
        if len(ends) > steps:
            break
    return statistics.median(b - a for a, b in pairwise(ends))


def paired(reference: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Median ratio other / reference over rounds, and the largest deviation from it."""
    ratios = []
    for _ in range(rounds):
        base = reference()
        ratios.append(other() / base)
    middle = statistics.median(ratios)
    return middle, max(abs(ratio - middle) for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=[n for n, m in METHODS.items() if hasattr(m, "fit")])
    parser.add_argument("--width", type=int, default=32, help="of the ResNet-18, at 64 px")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load of the machine: {os.getloadavg()[0]:.2f}; ResNet-18 of width {options.width}, batch {BATCH} at 64 px")
    with tempfile.TemporaryDirectory() as folder:
        prepare("synthetic", Path(folder) / "data", recipe=Recipe(64), images=BATCH * (options.steps + 1), workers=1)

        def run_of(name: str) -> Run:
            words = ["model.stem=small", f"model.width={options.width}", "optimizer.epochs=1",
                     f"optimizer.batch_size={BATCH}", "optimizer.select=last"]  # fmt: skip
            if "members" in METHODS[name].Config.model_fields:
                words.append(f"method.members={SAMPLES}")
            return load_run(None, [*words, f"method.name={name}"], data=str(Path(folder) / "data"))

        reference = run_of("map")
        once = predictor(reference)
        print(f"{'method':12s} {'step':>6s} {'±':>5s} {'limit':>6s}   {'S = 5':>6s} {'±':>5s} {'limit':>6s}")
        for name in options.methods:
            run = run_of(name)
            step, spread = paired(lambda: step_time(reference), lambda run=run: step_time(run), options.rounds)
            answer, wide = paired(once, predictor(run), options.rounds)
            limits = STEP_LIMIT.get(name, ""), PREDICTION_LIMIT.get(name, 1.1 * SAMPLES)
            print(
                f"{name:12s} {step:6.2f} {spread:5.2f} {limits[0]!s:>6s}   {answer:6.2f} {wide:5.2f} {limits[1]:6.1f}"
            )
        try:
            for layers in ("Flipout", "Reparameterization"):
                theirs, spread = paired(
                    lambda: step_time(reference),
                    lambda layers=layers: foreign(reference, options.steps, layers),
                    options.rounds,
                )
                print(f"{layers} of bayesian-torch: {theirs:.2f} ± {spread:.2f} of MAP's step")
        except ImportError as error:
            print(f"bayesian-torch is not compared: {error}")


if __name__ == "__main__":
    main()
