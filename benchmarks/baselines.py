"""Freezes benchmarks and collects their baselines, which come with the package.

    python benchmarks/baselines.py freeze retinabench-drawn-1-mini --data DIR      writes the hash of every image
    python benchmarks/baselines.py compute retinabench-drawn-1-mini --out DIR      trains every method; continues where it was stopped
    python benchmarks/baselines.py collect retinabench-drawn-1-mini --out DIR      writes the predictions into the package

`freeze` is run once, before a benchmark is published: it completes `data/frozen/definitions/NAME.toml` and writes NAME.parquet beside it; `--sums` is a
CSV of name and sha256_original, of published files. `compute` runs the study that the definition names, without its pages; `--data TASK=DIR` names
prepared folders of data sets that are not drawn. `collect` keeps the mean over posterior samples as float32, and a method's own uncertainty.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import csv
import inspect
import json
import tomllib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from toolkit import parse

from retinabench.core.errors import Bars
from retinabench.data.dataset import referable
from retinabench.data.frozen import definition
from retinabench.data.frozen.definition import HASH_BYTES, HERE, BenchmarkTruth, FrozenBenchmark, listing_sha256
from retinabench.data.frozen.images import image_hashes
from retinabench.data.prepared import open_prepared
from retinabench.experiments.engines.engine import make_engine
from retinabench.experiments.many import read_results
from retinabench.experiments.search.search import RESULTS
from retinabench.experiments.study import study as studies
from retinabench.experiments.study.definition import Study, read_study
from retinabench.experiments.study.prediction_files import pool
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard.board import write_baselines
from retinabench.reports.leaderboard.submission import Card, checked

POOLED = ("map", "dropout", "mfvi", "rank1", "vbll", "ivon", "csghmc", "anchored")  # also as ensembles of their seeds
DRAWING = ("numpy", "scipy")  # what a pixel depends on


def freeze(name: str, data: Path, sums: Path | None) -> None:
    file = HERE / f"{name}.toml"
    benchmark, prepared = FrozenBenchmark(**tomllib.loads(file.read_text("utf-8"))), open_prepared(data)
    records, hashes = prepared.records, image_hashes(benchmark, prepared)
    if sums is not None:
        with sums.open(encoding="utf-8", newline="") as handle:
            published = {row["name"]: row["sha256_original"] for row in csv.DictReader(handle)}
        hashes = {key: published[key] for key in hashes}
    order = np.argsort(records.image_id)
    ids = records.image_id[order].tolist()
    truth = BenchmarkTruth(
        records.image_id[order], referable(records.grade[order]), records.grade[order], records.patient_id[order],
        records.domain[order], records.split[order], np.array([hashes[one][: 2 * HASH_BYTES] for one in ids]),
    )  # fmt: skip
    columns = {key: getattr(truth, key) for key in ("image_id", "label", "grade", "patient_id", "domain", "split")}
    short = pa.array([bytes.fromhex(one) for one in truth.sha256.tolist()], pa.binary(HASH_BYTES))
    pyarrow.parquet.write_table(pa.table({**columns, "sha256": short}), HERE / f"{name}.parquet", compression="zstd")
    made = {key: version(key) for key in DRAWING} if benchmark.draw else {}
    text = file.read_text("utf-8").partition("# Written by")[0].rstrip()
    written = "images =", "listing_sha256", "truth_sha256", "made_with"
    text = "\n".join(line for line in text.splitlines() if not line.startswith(written))
    lines = [
        "# Written by `python benchmarks/baselines.py freeze`, and never changed.",
        f"images = {len(ids)}",
        f'listing_sha256 = "{listing_sha256(hashes, hashes.values())}"',
        f'truth_sha256 = "{truth.digest()}"',
    ]
    lines += [f"made_with = {{ {', '.join(f'{key} = {json.dumps(of)}' for key, of in made.items())} }}"] if made else []
    file.write_text("\n".join([text.rstrip(), "", *lines, ""]), "utf-8")


def compute_all(benchmark: FrozenBenchmark, out: Path, data: list[str]) -> None:
    study, progress = study_of(benchmark, data), Bars()
    places = {"parallel": 1, "device": "cpu", "cpus": 1.0, "gpus": 0.0, "address": None, "storage": None}
    with studies.workspace(out).lock():
        studies.compute(study, out, make_engine("local", **places, progress=progress), progress)


def study_of(benchmark: FrozenBenchmark, data: list[str]) -> Study:
    return read_study(benchmark.study, [f"tasks.{word.replace('=', '.data=', 1)}" for word in data])


def collect(benchmark: FrozenBenchmark, out: Path, data: list[str]) -> None:
    study, baselines = study_of(benchmark, data), []
    tasks, every = studies.open_tasks(study, out), studies.cells(study, out)
    for cell in every:
        found: dict[int, Predictions] = {}
        seconds: list[float] = []
        chosen = studies.read_choices(cell)[study.criteria[0]].run if study.trials else None
        for run in studies.with_seeds(study, chosen or cell.base):
            folder = studies.folder_of(run, cell, tasks[cell.task])
            if (folder / "done").is_file():
                found[run.seed] = read_predictions(folder / "predictions.parquet")
                record = read_results(cell.folder / RESULTS, None).get(folder.name.rpartition("-")[2])
                seconds += [record.seconds] if record is not None else []
        hours, title = float(np.mean(seconds or [0.0])) / 3600, cell.base.method.describe()
        card = card_of(study, cell.method, title, hours, 1)
        baselines += [(card, seed, checked(one, benchmark)) for seed, one in found.items()]
        members = tuple(study.run_seeds[: study.ensemble])
        if cell.method in POOLED and all(seed in found for seed in members):
            pooled = pool([found[seed] for seed in members], members, 0)
            card = card_of(study, cell.method, f"ensemble of {len(members)} {title}", hours, len(members))
            baselines.append((card, 0, checked(pooled, benchmark)))
        print(f"{cell.method}: seeds {sorted(found)}")
    file = write_baselines(benchmark, baselines)
    print(f"{file}: {file.stat().st_size:,} bytes")


def card_of(study: Study, label: str, title: str, hours: float, members: int) -> Card:
    module = inspect.getmodule(METHODS[label])
    about = (getattr(module, "__doc__", None) or label).strip().split("\n\n")[0].replace("\n", " ")
    pretrained = bool(study.base.get("model", {}).get("weights"))
    name = label.replace("_", "-")
    searched = f"the best of {study.trials} trials" if study.trials else "they were not searched"
    return Card(
        name=f"{name}-ensemble-{members}" if members > 1 else name, title=title,
        method=f"{about} Settings as in its study; {searched}.", authors="retinabench", code="",
        compute="one core, beside other work", hours=round(hours * members, 4), pretrained=pretrained,
        data=("ImageNet, by the weights of the trunk",) if pretrained else (), ensemble=members,
        tuned_on="validation",
    )  # fmt: skip


def main() -> None:
    options = parse(__doc__, words=(), data=[], sums=None, out=Path("baselines"))
    verb, name = options.words
    if verb == "freeze":
        return freeze(name, Path(options.data[0]), options.sums)
    benchmark = definition.frozen_benchmark(name)
    return {"compute": compute_all, "collect": collect}[verb](benchmark, options.out, options.data)


if __name__ == "__main__":
    main()
