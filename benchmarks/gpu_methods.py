"""Training and predicting on GPUs: ResNet-50 at 512 px, bfloat16, channels-last, compiled; every method.

    python benchmarks/gpu_methods.py                                  one GPU
    torchrun --nproc-per-node 4 benchmarks/gpu_methods.py             several, `--batch` pictures on each

Pictures lie on the card, so that this measures the method and not the disk. Printed per method: images per second of
training over all cards, peak memory, the share of the card's measured rate of large bfloat16 matrix products that MAP's
own arithmetic (3 x its forward pass per image) would need at that speed, and images per second of prediction with S = 5.
`--device cpu --size 64 --width 8 --batch 4 --steps 2 --eager` runs the same lines without a card.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from retinabench.config import Run, load_run
from retinabench.methods import METHODS, distributed
from retinabench.methods.base import precision
from retinabench.methods.journal import Journal
from retinabench.models import build_model
from retinabench.run import Engine

SAMPLES = 5


class Clock:
    """A `Progress` that notes when each step ended, by the card's own time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        if self.device.type == "cuda":
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def seconds(self, first: int, last: int) -> float:
        """Seconds between two marks."""
        begin, end = self.marks[first], self.marks[last]
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return begin.elapsed_time(end) / 1e3
        return end - begin

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Callable[[int], None]]:
        yield lambda steps: self.mark()

    def say(self, line: str) -> None:
        """Nothing."""


@dataclass
class OnDevice:
    """One batch on the card, in place of `Batches`, served again and again."""

    images: Tensor
    labels: Tensor
    steps: int
    ranks: int

    @property
    def device(self) -> torch.device:
        return self.images.device

    @property
    def train(self) -> np.ndarray:
        return np.arange(self.steps * len(self.labels) * self.ranks)

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        yield from [(self.images, self.labels)] * self.steps

    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield self.images, self.labels

    @property
    def data(self) -> SimpleNamespace:
        """The labels of `train`, as a prepared data set has them."""
        label = np.tile(self.labels.cpu().numpy(), len(self.train) // len(self.labels))
        return SimpleNamespace(records=SimpleNamespace(label=label))

    def rows(self, rows: np.ndarray, batch_size: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for left in range(len(rows), 0, -len(self.labels)):
            yield self.images[:left], self.labels[:left]


def matmul_rate(device: torch.device) -> float:
    """Floating-point operations per second of large bfloat16 matrix products, measured."""
    n, times = (8192, 30) if device.type == "cuda" else (512, 3)
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    clock = Clock(device)
    for _ in range(times + 3):
        a @ a
        clock.mark()
    return 2 * n**3 * times / clock.seconds(2, times + 2)


def forward_work(run: Run, size: int) -> int:
    """Floating-point operations of one forward pass of one picture."""
    model = build_model(run.model, 0).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, size, size))
    return counter.get_total_flops()


def measure(run: Run, options: SimpleNamespace, device: torch.device) -> tuple[float, float, float]:
    """Images per second of training and of prediction on this process, and peak memory in GB."""
    ranks = distributed.current().count
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(options.batch, 3, options.size, options.size, generator=generator).to(device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = (torch.arange(options.batch, device=device) % 2).float()
    batches = OnDevice(images, labels, options.warm + options.steps, ranks)
    model = build_model(run.model, run.seed).to(device)
    if not options.eager:
        model.compile()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = Clock(device)
    posterior = METHODS[run.method.name].fit(model, batches, run, Journal(progress=clock))
    training = options.batch * options.steps / clock.seconds(options.warm, options.warm + options.steps)
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else float("nan")
    answers = Clock(device)
    for _ in range(4):
        with precision(run, device):
            posterior.predict(images, SAMPLES, torch.Generator(device).manual_seed(0))
        answers.mark()
    return training, 3 * options.batch / answers.seconds(0, 3), memory


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64, help="pictures on each card")
    parser.add_argument("--warm", type=int, default=5, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--methods", nargs="+", default=[n for n, m in METHODS.items() if hasattr(m, "fit")])
    options = parser.parse_args(arguments)
    device = Engine(options.device).torch_device()
    ranks = distributed.join(device)
    torch.backends.cudnn.benchmark = True

    def run_of(name: str) -> Run:
        words = ["model.name=resnet50", f"model.width={options.width}", "optimizer.epochs=1", "optimizer.lr=1e-3",
                 f"optimizer.batch_size={options.batch * ranks.count}", "optimizer.precision=bfloat16",
                 "optimizer.select=last", f"method.name={name}"]  # fmt: skip
        return load_run(None, words, data="none")

    rate, work = matmul_rate(device), 3 * forward_work(run_of("map"), options.size)
    if ranks.leads:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        print(f"{ranks.count} x {name}, torch {torch.__version__}, {'eager' if options.eager else 'compiled'}; "
              f"matrix products {rate / 1e12:.3g} TFLOP/s, training {work / 1e9:.4g} GFLOP per image")  # fmt: skip
        print(f"{'method':12s} {'images/s':>9s} {'GB':>6s} {'share':>6s} {'S = 5 images/s':>15s}")
    for name in options.methods:
        training, predicting, memory = measure(run_of(name), options, device)
        speeds = torch.tensor([training, predicting], dtype=torch.float64, device=device)
        training, predicting = distributed.total(speeds).tolist()
        if ranks.leads:
            share = training * work / (rate * ranks.count)
            print(f"{name:12s} {training:9.1f} {memory:6.1f} {share:6.1%} {predicting:15.1f}", flush=True)


if __name__ == "__main__":
    main()
