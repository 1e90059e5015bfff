"""Training and predicting on GPUs: ResNet-50 at 512 px, bfloat16, channels-last, compiled; every method.

    python benchmarks/gpu_methods.py                                  one GPU
    torchrun --nproc-per-node 4 benchmarks/gpu_methods.py             several, `--batch` images on each
    … --device cpu --size 64 --width 8 --batch 4 --warm 1 --steps 12 --eager    the same lines without a card

It uses what `retinabench train` uses on a card. Images lie on the card, so that this measures the method and not the disk. Printed per method:
images per second of training over all cards, peak memory, the share of the card's measured rate of large bfloat16 matrix products that MAP's
own arithmetic (3 x its forward pass per image) would need at that speed, and images per second of prediction with S = 5 (weights drawn
before: they serve all batches of a run).

Layers that draw are not compiled: a compiler stops at every generator, and 54 layers take it minutes for nothing. What fails is named and left
out: a method that does not compile in `--seconds` is measured as it is, one that needs more memory than the card has, or once more than
`--seconds`, is skipped. Several processes cannot give up one by one: there the first failure ends the run.
"""

import argparse
import gc
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from toolkit import parse
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from retinabench.core.files import write_json
from retinabench.data.loader import Batches, BatchLimits
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.posterior import precision
from retinabench.models.build import build_model, compile_network, draws, set_arithmetic

SAMPLES = 5


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the middle of what takes longer, compilation included; 0 is no limit."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Clock:
    """A `Progress` that notes when each step ended, by the card's own time, or the processor's."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        if self.device.type == "cuda":
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.process_time())

    def seconds(self, first: int, last: int) -> float:
        begin, end = self.marks[first], self.marks[last]
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return begin.elapsed_time(end) / 1e3
        return end - begin

    def median(self, first: int = 1) -> float:
        return statistics.median(self.seconds(k, k + 1) for k in range(first, len(self.marks) - 1))

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
        yield lambda steps: self.mark()

    def say(self, line: str) -> None:
        """Nothing."""


@dataclass
class OnDevice:
    """A `Source` of one batch on the card, served again and again."""

    images: Tensor
    labels: Tensor

    @property
    def device(self) -> torch.device:
        return self.images.device

    @property
    def targets(self) -> np.ndarray:
        return self.labels.cpu().numpy()

    def load(self, chunks: Sequence[np.ndarray], stored_view: object = None) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in chunks:
            yield self.images[: len(rows)], self.labels[: len(rows)]


def batches_of(images: Tensor, labels: Tensor, steps: int, ranks: int) -> Batches:
    """Batches of so many steps, and the first one as validation; the memory is not probed, since `--batch` is measured."""
    train, batch = np.resize(np.arange(len(labels)), steps * len(labels) * ranks), len(labels) * ranks
    limits = BatchLimits(probed=["training", "validation", "prediction"])
    return Batches(OnDevice(images, labels), train, np.arange(len(labels)), batch, seed=0, limits=limits)


def matmul_rate(device: torch.device) -> float:
    n, times = (8192, 30) if device.type == "cuda" else (512, 3)
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    clock = Clock(device)
    for _ in range(times + 3):
        a @ a
        clock.mark()
    return 2 * n**3 * times / clock.seconds(2, times + 2)


def forward_work(run: Run, size: int) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        build_model(run.model, 0).eval()(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


def measure(run: Run, options: argparse.Namespace, device: torch.device, *, compiled: bool) -> dict[str, Any]:
    """Images per second of training and of prediction on this process, and peak memory of the training in GB."""
    ranks = distributed.current().count
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(options.batch, 3, options.size, options.size, generator=generator).to(device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = (torch.arange(options.batch, device=device) % 2).float()
    batches = batches_of(images, labels, options.warm + options.steps, ranks)
    model = build_model(run.model, run.seed).to(device)
    if compiled:
        compile_network(model, fall_back=False)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = Clock(device)
    posterior = METHODS[run.method.name].fit(model, batches, run, Checkpoint(progress=clock), LIKELIHOOD)
    training = options.batch * options.steps / clock.seconds(options.warm, options.warm + options.steps)
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    answers = Clock(device)
    for _ in range(5):  # the first one draws and compiles, the second one compiles for the drawn
        with precision(run, device):
            posterior.predict(images, SAMPLES, torch.Generator(device).manual_seed(0))
        answers.mark()
    predicting = 3 * options.batch / answers.seconds(1, 4)
    return {"training": training, "predicting": predicting, "gigabytes": memory, "compiled": compiled}


def attempt(run: Run, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure one method, as it is where it does not compile; return what was found, or the `error`.

    With several processes every failure is raised: the others would wait for ever.
    """
    alone, error = distributed.current().count == 1, ""
    for compiled in [False] if options.eager or method_draws(run) else [True, False]:
        forget(device)
        try:
            with limited(options.seconds if alone else 0):
                found = measure(run, options, device, compiled=compiled)
            return found | ({"not_compiled": error} if error else {})
        except Exception as failure:
            if not alone:
                raise
            error = f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"
            if isinstance(failure, torch.OutOfMemoryError):
                break
    return {"error": error}


def method_draws(run: Run) -> bool:
    return draws(METHODS[run.method.name].build(build_model(run.model, run.seed), run, LIKELIHOOD).model)


def forget(device: torch.device) -> None:
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> None:
    trained = [name for name, method in METHODS.items() if hasattr(method, "fit") and method.Config.has_learning_rate]
    limits = {"seconds": 150.0, "warm": 5, "steps": 20}
    sizes = {"size": 512, "width": 64, "batch": 64, "methods": trained}
    given = {"device": "auto", "eager": False, "out": Path("gpu_methods.json"), **limits, **sizes}
    options = parse(__doc__, arguments, **given)
    device = Resources(options.device).torch_device()
    ranks = distributed.join(device)
    set_arithmetic("bfloat16", device)

    def run_of(name: str) -> Run:
        words = ["model.name=resnet50", f"model.width={options.width}", "optimizer.epochs=1", "optimizer.lr=1e-3",
                 f"optimizer.batch_size={options.batch * ranks.count}", "optimizer.precision=bfloat16",
                 "optimizer.select=last", f"method.name={name}"]  # fmt: skip
        return load_run(None, words, data="none")

    rate, work = matmul_rate(device), 3 * forward_work(run_of("map"), options.size)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    report: dict[str, Any] = {
        "card": card, "cards": ranks.count, "torch": torch.__version__, "matmul_flops": rate, "flop_per_image": work,
        "batch": options.batch, "size": options.size, "width": options.width, "samples": SAMPLES, "methods": {},
    }  # fmt: skip
    say = print if ranks.leads else (lambda *line, **how: None)
    say(f"{ranks.count} x {card}, torch {torch.__version__}, {'eager' if options.eager else 'compiled'}; "
        f"matrix products {rate / 1e12:.3g} TFLOP/s, training {work / 1e9:.4g} GFLOP per image")  # fmt: skip
    say(f"{'method':12s} {'images/s':>9s} {'GB':>6s} {'share':>6s} {'S = 5 images/s':>15s}", flush=True)
    for name in options.methods:
        found = attempt(run_of(name), options, device)
        if "error" not in found:
            pair = [found["training"], found["predicting"]]
            pair = distributed.total(torch.tensor(pair, dtype=torch.float64, device=device)).tolist()
            found["training"], found["predicting"] = pair
            found["share"] = pair[0] * work / (rate * ranks.count)
        report["methods"][name] = found
        if ranks.leads:
            write_json(options.out, report)
        say(row(name, found), flush=True)


def row(name: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"{name:12s} {found['error']}"
    memory = float("nan") if found["gigabytes"] is None else found["gigabytes"]
    note = "" if found["compiled"] else "  not compiled"
    note += f": {found['not_compiled']}" if "not_compiled" in found else ""
    return f"{name:12s} {found['training']:9.1f} {memory:6.1f} {found['share']:6.1%} {found['predicting']:15.1f}{note}"


if __name__ == "__main__":
    main()
