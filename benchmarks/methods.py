"""What a method costs: a training step and S = 5 predictions relative to MAP's, processor time of one thread, paired in one run.

    python benchmarks/methods.py [--methods NAME …] [--width 32] [--rounds 5] [--steps 8]
    python benchmarks/methods.py --heads map vbll    # the 60 epochs of a head on features that are there, beside a plain loop

Every round times MAP and then the method; the ratio of a round is that of the two medians, and the figure is the median over rounds. The steps are
those of the real training loop, loading included. Ensembles in one network have five members. A prediction is one of several batches of the size that
runs predict; weights that serve all of them are drawn anew for each prediction. Neighbours in the cache disturb: it prints the load.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from gpu_methods import Clock
from toolkit import parse, ratio, seconds

from retinabench.data.loader import ArraySource, Batches
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.run import PREDICT_BATCH, SAVED_EVERY, make_batches
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.swag import SwagPosterior
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.models.build import build_model

SAMPLES = 5
BATCH = 32
PREDICTED = 2  # batches
FEATURES = 2560  # mean and maximum of EfficientNet-Lite0
STEP_LIMIT = {"mfvi": 2.3, "radial": 2.6, "rank1": 1.4, "dropout": 1.2, "batch_ensemble": 1.4, "lora_ensemble": 5.5}
PREDICTION_LIMIT = {"fsvi": 1.2, "laplace": 1.2, "head_ensemble": 1.2}  # the trunk runs once
CPU = torch.device("cpu")


def step_time(run: Run) -> float:
    clock, batches = Clock(CPU), make_batches(run, load_task(run.data, run.task), CPU)
    METHODS[run.method.name].fit(build_model(run.model, run.seed), batches, run, Checkpoint(progress=clock), LIKELIHOOD)
    return clock.median()


def predictor(run: Run) -> Callable[[], float]:
    """Return a clock of one prediction of `PREDICTED` batches with the untrained posterior."""
    posterior = METHODS[run.method.name].build(build_model(run.model, run.seed), run, LIKELIHOOD)
    if isinstance(posterior, SwagPosterior):
        posterior.deviations = torch.zeros(run.method.rank, len(posterior.variance))  # as many as after a training
    images = torch.rand(PREDICT_BATCH, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    seeds = count()

    def predicted() -> None:
        generator = torch.Generator().manual_seed(next(seeds))  # no weights kept from before
        for _ in range(PREDICTED):
            posterior.predict(images, SAMPLES, generator)

    predicted()
    return lambda: seconds(predicted, time.process_time)


def foreign(run: Run, steps: int, layers: str) -> float:
    """Median seconds of a step of the same network with bayesian-torch's layers of this type."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    model = build_model(run.model, run.seed)
    prior = {"prior_mu": 0.0, "prior_sigma": 0.1, "posterior_mu_init": 0.0, "posterior_rho_init": -6.0}
    dnn_to_bnn(model, {**prior, "type": layers, "moped_enable": False})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    clock = Clock(CPU)
    for images, labels in batches.epoch(0):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(images).squeeze(1), labels)
        (loss + get_kl_loss(model) / len(batches.train)).backward()
        optimizer.step()
        clock.mark()
        if len(clock.marks) > steps:
            break
    return clock.median(0)


def frozen_heads(names: list[str], rounds: int) -> None:
    """Train heads as `real/frozen` does, on 329 rows of random features as long as those of IDRiD, and MAP's by the loop that a user would write."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(413, FEATURES, generator=generator), (torch.arange(413) % 2).float()
    batches = Batches(ArraySource(inputs, labels), np.arange(329), np.arange(329, 413), BATCH, 0)
    runs = {name: load_run("real/frozen", [f"method.name={name}"], data=".") for name in names}

    def ours(run: Run) -> None:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint(Path(folder), interval=SAVED_EVERY)
            METHODS[run.method.name].fit(head(), batches, run, checkpoint, LIKELIHOOD)

    def plain() -> None:
        model, config = head(), next(iter(runs.values())).optimizer
        options = {"lr": config.lr, "momentum": config.momentum, "weight_decay": 2 * config.l2}
        optimizer = torch.optim.SGD(model.parameters(), **options, nesterov=True)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * batches.steps)
        for _ in range(config.epochs):
            for rows in torch.randperm(len(batches.train)).split(BATCH):
                optimizer.zero_grad()
                loss_of(model(inputs[rows]).squeeze(1), labels[rows]).backward()
                optimizer.step()
                scheduler.step()
            with torch.no_grad():
                loss_of(model(inputs[batches.validation]).squeeze(1), labels[batches.validation]).item()

    def head() -> torch.nn.Module:
        return torch.nn.Linear(FEATURES, 1)

    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    plain()
    for name, run in runs.items():
        clocks = (partial(seconds, one, time.process_time) for one in (plain, partial(ours, run)))
        times, spread, pairs = ratio(*clocks, rounds)
        said = f"{times:.2f} ± {spread:.2f} of a plain loop's {pairs[0][0]:.2f} s"
        print(f"60 epochs of a {name} head: {said}", flush=True)


def main() -> None:
    trained = [name for name, method in METHODS.items() if hasattr(method, "fit") and method.Config.has_learning_rate]
    options = parse(__doc__, methods=trained, width=32, rounds=5, steps=8, heads=[""])
    torch.set_num_threads(1)
    if options.heads != [""]:
        return frozen_heads(options.heads, options.rounds)
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
            step, spread, _ = ratio(lambda: step_time(reference), lambda run=run: step_time(run), options.rounds)
            answer, wide, _ = ratio(once, predictor(run), options.rounds)
            limits = STEP_LIMIT.get(name, ""), PREDICTION_LIMIT.get(name, 1.1 * SAMPLES)
            trained = f"{name:12s} {step:6.2f} {spread:5.2f} {limits[0]!s:>6s}"
            print(f"{trained}   {answer:6.2f} {wide:5.2f} {limits[1]:6.1f}")
        try:
            for layers in ("Flipout", "Reparameterization"):
                clocks = (lambda: step_time(reference), lambda layers=layers: foreign(reference, options.steps, layers))
                theirs, spread, _ = ratio(*clocks, options.rounds)
                print(f"{layers} of bayesian-torch: {theirs:.2f} ± {spread:.2f} of MAP's step")
        except ImportError as error:
            print(f"bayesian-torch is not compared: {error}")


if __name__ == "__main__":
    main()
