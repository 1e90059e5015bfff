"""Whether aleatoric and epistemic uncertainty are what their names say, on drawn retinas, where both are known.

    python benchmarks/disentanglement.py --out results-disentanglement --workers 2

A method splits the entropy of its prediction into the mean entropy of its posterior samples (aleatoric) and the rest (epistemic). A reader who reports a
grade of a drawn retina errs at a rate that depends on its true grade, so that the renderer knows the aleatoric truth of every image, the entropy H(p*) of
its label, and the epistemic truth of every image and model: KL(p* || p), in nats. The table has Spearman's correlation of either estimate with either
truth, and of the two estimates with each other, over the test images of both cameras, with 95 % intervals over patients and seeds. An estimate is good
where it follows its own truth, and disentangled where it does not follow the other as well. The last columns are the mean of either estimate with all
training images over that with an eighth. What more data can remove falls, the noise of labels stays.

Mucsanyi, Kirchhof & Oh 2024, Benchmarking uncertainty disentanglement; they found estimates that follow each other closely.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results import composed_of, compute, run_of
from scipy.special import rel_entr
from scipy.stats import rankdata
from toolkit import parse, print_head, print_row

import retinabench as rb
from retinabench.core.files import write_bytes, write_json
from retinabench.data.dataset import Records
from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.demo import IMAGES, SIZE
from retinabench.metrics.image_sets import binary_entropy, decompose
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit.tables import csv_bytes

TABLE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "disentanglement.csv"
FEWER = 8  # the share of training images that the last columns compare with
PAIRS = {
    "aleatoric with its truth": ("aleatoric", "noise"), "aleatoric with the other": ("aleatoric", "error"),
    "epistemic with its truth": ("epistemic", "error"), "epistemic with the other": ("epistemic", "noise"),
    "one with the other": ("aleatoric", "epistemic"),
}  # fmt: skip
Columns = dict[str, np.ndarray]


def columns_of(predictions: Predictions, true: np.ndarray) -> Columns:
    """Return the two estimates and the two truths of every image in nats, and its patient, (N,) each; `true` (N,) is p*."""
    parts, prob = decompose(predictions.probs), np.clip(predictions.prob, 1e-15, 1 - 1e-15)
    return {
        "aleatoric": parts.aleatoric,
        "epistemic": parts.epistemic.round(12),  # equal samples differ in the last digits
        "noise": binary_entropy(true),
        "error": rel_entr(true, prob) + rel_entr(1 - true, 1 - prob),
        "patient": predictions.patients,
    }


def correlations(columns: Columns, rows: np.ndarray | slice = slice(None)) -> list[float]:
    """Return Spearman's rank correlations of `PAIRS`, over some rows; NaN where one of the two is constant."""
    ranks = {name: rankdata(values[rows]) for name, values in columns.items() if name != "patient"}
    with np.errstate(divide="ignore", invalid="ignore"):
        return [float(np.corrcoef(ranks[one], ranks[other])[0, 1]) for one, other in PAIRS.values()]


def with_intervals(seeds: Sequence[Columns], replicates: int) -> list[tuple[float, float, float]]:
    """Return the mean of every correlation over the seeds, with 95 % percentiles over draws of patients and seeds."""
    generator, drawn = np.random.default_rng(0), []
    patients, of_row = np.unique(seeds[0]["patient"], return_inverse=True)
    rows_of = np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row))[:-1])
    for _ in range(replicates):
        rows = np.concatenate([rows_of[patient] for patient in generator.integers(len(patients), size=len(patients))])
        chosen = generator.integers(len(seeds), size=len(seeds))
        drawn.append(np.mean([correlations(seeds[seed], rows) for seed in chosen], axis=0))
    middle = np.mean([correlations(one) for one in seeds], axis=0)
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return list(zip(middle.tolist(), low.tolist(), high.tolist(), strict=True))


def test_columns(folder: Path, records: Records) -> Columns:
    test = rb.read_predictions(folder / "predictions.parquet").select(split="test")
    row = dict(zip(records.image_id, range(len(records)), strict=True))
    return columns_of(test, records.p_referable[[row[image] for image in test.image_id]])


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    options = parse(
        __doc__, arguments, out=Path("results-disentanglement"), images=IMAGES, size=SIZE, seeds=2, members=3, workers=2,
        replicates=300, methods=["dropout", "mfvi", "swag", "laplace", "batch_ensemble"], words=[], table=TABLE,
    )  # fmt: skip
    seeds, groups = range(options.seeds), {}
    for share in (1, FEWER):
        data = options.out / f"data-{share}"
        images = options.images // share
        prepare("synthetic", data, recipe=Recipe(options.size), images=images, seed=share, workers=options.workers)
        records = open_prepared(data).records
        runs = {name: [run_of(name, seed, data, options.words) for seed in seeds] for name in options.methods}
        first = range(0, options.seeds * options.members, options.members)
        single = [run_of("map", seed, data, options.words) for seed in first]
        runs["ensemble"] = [composed_of(run, "ensemble", members=options.members) for run in single]
        done = compute([run for each in runs.values() for run in each], options.out / "runs", options.workers)
        for name, each in runs.items():
            folders = [done[run.model_dump_json()] for run in each]
            if why := next((why for folder, why in folders if folder is None), ""):
                raise SystemExit(f"{name} with {images} images: {why}")
            groups[name, share] = [test_columns(folder, records) for folder, _ in folders if folder is not None]
    rows = []
    print_head("Disentanglement", " | ".join(["method", *PAIRS, "aleatoric, more images", "epistemic, more images"]))
    for name in runs:
        found, fewer = groups[name, 1], groups[name, FEWER]
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*one) for one in with_intervals(found, options.replicates)]
        for part in ("aleatoric", "epistemic"):
            means = [np.mean([one[part].mean() for one in group]) for group in (found, fewer)]
            cells.append(f"x {means[0] / means[1]:.2f}")
        rows.append({"method": runs[name][0].method.describe(), "cells": cells})
        print_row(rows[-1]["method"], *cells)
    write_json(options.out / "disentanglement.json", {"rows": rows})
    header = ["method", *PAIRS, "aleatoric, more images", "epistemic, more images"]
    write_bytes(options.table, csv_bytes(header, [[row["method"], *row["cells"]] for row in rows]))
    return rows


if __name__ == "__main__":
    main()
