"""Pictures per second that the synthetic camera draws on one core: `python benchmarks/synthetic.py`."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time

from retinabench.data.synthetic.fundus import draw, truth

REQUIRED = {64: 100, 512: 5}


def rate(size: int, population: str, images: int, runs: int = 5) -> float:
    """Return the median over `runs` of images per second of processor time, after warming the caches up."""
    for index in range(3):
        draw(index, size=size, population=population, masks=False)
    rates = []
    for run in range(runs):
        begin = time.process_time()
        for index in range(run * images, (run + 1) * images):
            draw(index, size=size, population=population, masks=False)
        rates.append(images / (time.process_time() - begin))
    return statistics.median(rates)


def main() -> None:
    for size, images in ((64, 100), (512, 10)):
        for population in ("in_domain", "shifted"):
            value = rate(size, population, images)
            ratio = value / REQUIRED[size]
            print(f"{size:4d} px {population:10s} {value:7.1f} images/s, {ratio:.1f} x required")
    begin = time.process_time()
    for index in range(2000):
        truth(index)
    print(f"truth alone {2000 / (time.process_time() - begin):14.0f} records/s")


if __name__ == "__main__":
    main()
