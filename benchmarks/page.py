"""Weighs the report of full-sized test sets with images, which has to stay below 3 MB.

    python benchmarks/page.py [--images 42670] [--shifted 2929] [--methods 4] [--data PREPARED] [--bootstrap 20]

Without --data the images are noise, which no JPEG compresses: the largest page that any data set can give.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import retinabench as rb
from retinabench.data.prepared import open_prepared
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.write import write_report


def drawn(images: int, shifted: int, seed: int) -> rb.Predictions:
    """Return predictions of both sets, with grades, two eyes of each patient and three cameras."""
    random = np.random.default_rng(0)
    n = images + shifted
    grade = random.choice(5, n, p=[0.73, 0.08, 0.14, 0.03, 0.02])
    z = 2.0 * (grade >= 2) - 1 + random.normal(size=n) + np.random.default_rng(seed + 1).normal(size=n)
    return rb.Predictions(
        np.array([f"image-{k}" for k in range(n)]),
        grade >= 2,
        1 / (1 + np.exp(-z)),
        grade=grade,
        patient_id=np.array([f"patient-{k // 2}" for k in range(n)]),
        domain=np.where(np.arange(n) < images, "in_domain", "shifted"),
        subgroups={"camera": random.choice(["A", "B", "C"], n)},
        metadata={"title": f"method {seed}", "seed": seed},
    )


def main() -> None:
    """Write the page, and print its parts in kB."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=42_670)
    parser.add_argument("--shifted", type=int, default=2_929)
    parser.add_argument("--methods", type=int, default=4)
    parser.add_argument("--bootstrap", type=int, default=20)
    parser.add_argument("--data", type=Path, help="a prepared folder, whose images stand for all")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    prepared = open_prepared(options.data) if options.data is not None else None

    def image(image_id: str) -> NDArray[np.uint8] | None:
        number = int(image_id.rpartition("-")[2])
        if prepared is None:
            return np.random.default_rng(number).integers(30, 255, (512, 512, 3)).astype(np.uint8)
        names = prepared.records.image_id
        return prepared.image(str(names[number % len(names)]))

    start = time.process_time()
    methods = [
        MethodPredictions.of(f"method {k}", drawn(options.images, options.shifted, k))
        for k in range(options.methods)
    ]
    out = options.out or Path(tempfile.mkdtemp())
    page = write_report(methods, out, EvaluationSettings(bootstrap=options.bootstrap), images=image)
    text = page.read_text("utf-8")
    pictures = [len(one) for one in re.findall(r"data:image/jpeg;base64,[^\"']+", text)]
    print(
        f"{options.images + options.shifted:,} images, {options.methods} methods: {len(text.encode()) / 1e6:.2f} MB"
    )
    print(
        f"{len(pictures)} images in it, {sum(pictures) / 1e6:.2f} MB, the largest {max(pictures) / 1e3:.0f} kB"
    )
    print(f"{time.process_time() - start:.0f} s of one core")


if __name__ == "__main__":
    main()
