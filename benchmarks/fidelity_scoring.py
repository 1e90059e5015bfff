"""How long does it take to grade submission? 10,000 points, 10 classes, 100 posterior samples, 1,000 replicates.

    python benchmarks/fidelity_scoring.py [--points 10000]

Prints the seconds of one file with all measures, intervals and groups, of the ceiling (once per board), and the ratio to
a plain loop over replicates that takes agreement and total variation alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference, ReferenceAbout
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.submissions.submission import Submission
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import TARGETS

CLASSES, SAMPLES, CHAINS, REPLICATES = 10, 100, 4, 1000


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def inputs(points: int) -> tuple[Evaluator, Submission]:
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(points, CLASSES))
    samples = softmax(logits + 0.5 * random.normal(size=(SAMPLES, points, CLASSES))).astype(np.float16)
    chains = samples.reshape(CHAINS, -1, points, CLASSES).mean(axis=1, dtype=np.float64)
    unknown = np.zeros((points, CLASSES))
    reference = Reference(
        ReferenceAbout(task="large", target="", data="", chains=CHAINS), unknown, unknown, unknown, unknown,
        distances.epistemic(samples.astype(np.float64)), chain_probs=chains, samples=samples,
    )  # fmt: skip
    chosen = TARGETS["fundus"].model_copy(
        update={"name": "large", "outputs": CLASSES, "groups": ("clean", "noise")}
    )
    group = np.array(["clean"] * (points // 2) + [f"noise-{1 + k % 5}" for k in range(points - points // 2)])
    grades = random.integers(0, CLASSES, points)
    data = TargetData(
        ArrayDataset(np.zeros((1, 1)), grades[:1], group[:1]),
        ArrayDataset(np.zeros((points, 1)), grades, group),
    )
    submission = softmax(logits + 0.7 * random.normal(size=(SAMPLES, points, CLASSES))).astype(np.float16)
    return Evaluator(chosen, data, reference, REPLICATES), Submission(
        submission.mean(axis=0, dtype=np.float64), submission
    )


def plain(evaluator: Evaluator, submission: Submission) -> None:
    """The obvious way: draw points, compute both distances anew."""
    random, reference, probs = np.random.default_rng(0), evaluator.reference.probs, submission.probs
    for _ in range(REPLICATES):
        rows = random.integers(len(probs), size=len(probs))
        distances.agreement(probs[rows], reference[rows]).mean()
        distances.total_variation(probs[rows], reference[rows]).mean()


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=10_000)
    points = parser.parse_args(words).points
    evaluator, submission = inputs(points)
    grade = min(seconds(lambda: evaluator.grade(submission)) for _ in range(2))
    ceiling = seconds(lambda: evaluator.ceiling)
    loop = seconds(lambda: plain(evaluator, submission))
    print(
        f"{points} points, {CLASSES} classes, {REPLICATES} replicates, {len(evaluator.resampling.groups)} groups"
    )
    print(f"all measures of one file  {grade:6.2f} s")
    print(f"the ceiling               {ceiling:6.2f} s")
    print(f"a loop, two measures      {loop:6.2f} s: {loop / grade:.1f} times one file")


if __name__ == "__main__":
    main()
