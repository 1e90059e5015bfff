"""The table docs/tables/synthetic.csv: every method on drawn retinas, where the true P(referable | image) is known.

    python benchmarks/results.py --out results-synthetic --workers 2 [KEY=VALUE of every run, such as optimizer.epochs=1]

Demo scale: the demo's pictures, network and optimiser, three seeds of every method, and the ensemble of the three. Unlike in the demo the classes are
not reweighted, so that what every method approximates is p(y | x) itself. Each run has a folder of its own; a stopped command continues. The excess risk
is the expected negative log-likelihood of the model's p less that of the true probability p*, in nats,

    mean_n [ p*_n ln(p*_n / p_n) + (1 - p*_n) ln((1 - p*_n) / (1 - p_n)) ].

It is 0 for the true p alone and, unlike the NLL, holds no noise of the labels.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import rel_entr
from toolkit import parse

import retinabench as rb
from retinabench.core.files import write_bytes, write_json
from retinabench.data.dataset import Records
from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run, load_run, presets
from retinabench.experiments.demo import IMAGES, SEEDS, SIZE
from retinabench.experiments.engines.engine import LocalEngine
from retinabench.experiments.engines.scheduler import Job
from retinabench.methods.registry import METHODS
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit.tables import csv_bytes

TABLE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "synthetic.csv"
# Below MAP by more than this, on average over seeds, a method does not learn. The classes are unbalanced, so that
# accuracy alone would pass a constant answer.
MARGIN = {"accuracy": 0.03, "auroc": 0.05}
NAMES = {
    "accuracy": "accuracy", "auroc": "AUROC", "nll": "NLL", "ece_top_label": "ECE",
    "referral_accuracy_area": "referral accuracy", "referral_auroc_area": "referral AUROC",
    "excess_risk": "excess risk",
}  # fmt: skip
SETS = ("in_domain", "shifted")
# Those by full-batch gradients would take hours for each network.
OF_EPOCHS = [name for name, one in METHODS.items() if hasattr(one, "fit") and one.Config.has_learning_rate]
Scores = dict[str, dict[str, float | None]]


def run_of(method: str, seed: int, data: Path, words: Sequence[str]) -> Run:
    preset = f"demo/{method}" if f"demo/{method}" in presets() else "demo/map"
    own = ["optimizer.reweight=none", "optimizer.validation_share=1", f"method.name={method}", *words]
    return load_run(preset, own, data=str(data), seed=seed)


def composed_of(single: Run, name: str, **options: Any) -> Run:
    return single.model_copy(update={"method": METHODS[name].Config(member=single.method, **options)})


def excess_risk(true: np.ndarray, prob: np.ndarray) -> float:
    """Mean KL(Bernoulli(true) || Bernoulli(prob)) in nats, (N,) each; `prob` is clipped as by the NLL."""
    prob = np.clip(prob, 1e-15, 1 - 1e-15)
    return float(np.mean(rel_entr(true, prob) + rel_entr(1 - true, 1 - prob)))


def scores_of(predictions: Predictions, records: Records) -> Scores:
    row = dict(zip(records.image_id, range(len(records)), strict=True))
    found = {}
    for name in SETS:
        test = predictions.select(domain=name, split="test")
        values = rb.score(test, bootstrap=0).to_dict()["sets"][name]["scores"]
        true = records.p_referable[[row[image] for image in test.image_id]]
        found[name] = {key: values[key]["value"] for key in NAMES if key != "excess_risk"}
        found[name]["excess_risk"] = excess_risk(true, test.prob)
    return found


def table(rows: dict[str, list[Scores] | str], name: str) -> list[list[str]]:
    """Return the rows of one set: mean ± standard error over seeds, one value for ensembles; and whether the method learns."""
    lines = []
    least = {key: mean_of(rows["MAP"], name, key) - margin for key, margin in MARGIN.items()}
    for title, seeds in rows.items():
        if isinstance(seeds, str):
            cells = [f"did not train: {seeds}", *[""] * len(NAMES)]
        else:
            cells = [cell([s[name][key] for s in seeds]) for key in NAMES]
            cells.append("yes" if all(mean_of(seeds, name, key) >= limit for key, limit in least.items()) else "no")
        lines.append([name, title, *cells])
    return lines


def mean_of(seeds: Sequence[Scores], name: str, key: str) -> float:
    return statistics.mean(math.nan if s[name][key] is None else s[name][key] for s in seeds)


def cell(values: Sequence[float | None]) -> str:
    """0.872 ± 0.004; a value that is undefined for a seed is undefined."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < len(values):
        return "undefined"
    mean = statistics.mean(known)
    if len(known) == 1:
        return f"{mean:.4f}"
    return f"{mean:.4f} ± {statistics.stdev(known) / math.sqrt(len(known)):.4f}"


def compute(runs: Sequence[Run], out: Path, workers: int) -> dict[str, tuple[Path | None, str]]:
    """Compute runs in parallel processes; return the folder of each, or why there is none, by the run's own JSON."""
    done = {}
    for one in LocalEngine(places=workers, device="cpu").compute([Job(run, out) for run in runs]):
        run = one.job.run
        done[run.model_dump_json()] = one.folder, one.message
        what = f"{run.method.name} seed {run.seed}: {one.seconds:.0f} s"
        print(f"{what}, {one.message or one.folder.name}; {len(runs) - len(done)} left", flush=True)
    return done


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    options = parse(
        __doc__, arguments, out=Path("results-synthetic"), words=(), workers=2, methods=OF_EPOCHS, images=IMAGES, size=SIZE,
        seeds=SEEDS, table=TABLE,
    )  # fmt: skip
    methods = list(dict.fromkeys(["map", *options.methods]))
    data, out, seeds = options.out / "data", options.out / "runs", range(options.seeds)
    prepare("synthetic", data, recipe=Recipe(options.size), images=options.images, seed=0, workers=options.workers)
    records = open_prepared(data).records

    singles = {name: [run_of(name, seed, data, options.words) for seed in seeds] for name in methods}
    done = compute([run for runs in singles.values() for run in runs], out, options.workers)
    composed: dict[str, list[Run]] = {}
    for runs in singles.values():
        if len(runs) > 1 and all(done[run.model_dump_json()][0] for run in runs):
            group = composed_of(runs[0], "ensemble", members=len(runs))
            composed[group.method.describe()] = [group]
    if "temperature" in METHODS:
        scaled = [composed_of(run, "temperature") for run in singles["map"]]
        composed[scaled[0].method.describe()] = scaled
    done |= compute([run for runs in composed.values() for run in runs], out, options.workers)

    rows: dict[str, list[Scores] | str] = {}
    for name, runs in {**{runs[0].method.describe(): runs for runs in singles.values()}, **composed}.items():
        found = [done[run.model_dump_json()] for run in runs]
        why = next((why for _, why in found if why), "")
        rows[name] = why or [scores_of(rb.read_predictions(file / "predictions.parquet"), records) for file, _ in found]
    write_json(options.out / "results.json", rows)
    header = ["set", "method", *NAMES.values(), "learns"]
    write_bytes(options.table, csv_bytes(header, [row for name in SETS for row in table(rows, name)]))
    return rows


if __name__ == "__main__":
    main()
