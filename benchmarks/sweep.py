"""The bookkeeping of huge sweeps: 100,000 runs listed and ranked, and a search of 10,000 trials from 1,000 nodes.

    OMP_NUM_THREADS=1 python benchmarks/sweep.py [--runs 100000] [--trials 10000] [--nodes 1000]

Nothing is trained. The first part appends a row per run and lists, reads and ranks them; its opponent does without a table
and opens a file of JSON in every run folder, as a folder of results without a table has to be read. The second part
takes the whole way of `search`: the points of the space, the runs, their hashes; an engine that ends every trial at once;
measuring the predictions; the table; the ranking. It is done once from nothing and once where all is known. Each node also
writes a segment of its own, as members of a cluster could. Calls of the file system are counted by strace, where it is
installed, in a second run of the same step: those of Python's own start (and imports, and opening the data) are subtracted, up to
some dozens by which two starts differ.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from retinabench.experiments.config import load_run
from retinabench.experiments.many import Result, ResultTable, read_results
from retinabench.experiments.search.search import run_folders
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions

IDENTITY = {"version": "1.0", "protocol": 1, "fingerprint": "f" * 64}
SCORE = "in_domain_auroc/corrected"
NAMES = (SCORE, "in_domain_auroc/published", "balanced/corrected", "balanced/published")
IMAGES = (11_639, 1_000)  # validation of Country Shift as published, and a small test set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--measured", type=int, default=200, help="trials whose predictions are really read")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step is not None:
        STEPS[options.step](options.folder, options.trials)
        return
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        print("| what | seconds | of them computing | file-system calls |\n|---|---|---|---|")
        table(Path(name), options.runs)
        cluster(Path(name) / "nodes", options.trials, options.nodes)
        whole_search(Path(name), options.trials, options.measured)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def table(folder: Path, runs: int) -> None:
    """Rows of `runs` runs: written, read, ranked, and the same without a table."""
    random = np.random.default_rng(0)
    values = random.random((runs, len(NAMES))).tolist()
    show(f"append {runs:,} rows", lambda: write_rows(folder / "results", values))
    show(f"make {runs:,} run folders (not ours)", lambda: make_folders(folder / "runs", values))
    ours = show(f"list, read and rank {runs:,} runs", lambda: list_and_rank(folder), ("list", folder))
    theirs = show(
        "the same from a file in each folder", lambda: without_table(folder, runs), ("each", folder)
    )
    print(f"| ratio | {theirs / ours:.1f} | | |")


def cluster(folder: Path, trials: int, nodes: int) -> None:
    """A segment per node, read together."""

    def write() -> None:
        for node in range(nodes):
            table = ResultTable(folder / f"results-{node}", IDENTITY)
            for number in range(node * trials // nodes, (node + 1) * trials // nodes):
                table.add(row(number, [0.5] * len(NAMES)))
            table.close()
            (folder / "results").mkdir(exist_ok=True)
            for segment in (folder / f"results-{node}").iterdir():
                segment.rename(folder / "results" / segment.name)

    show(f"{nodes:,} nodes write {trials:,} rows, a segment each", write)
    (folder / "runs").mkdir()
    show(f"read {nodes:,} segments", lambda: read_results(folder / "results", IDENTITY), ("segments", folder))


def whole_search(folder: Path, trials: int, measured: int) -> None:
    """`search` itself, from nothing for some trials and with all known."""
    data = prepared(folder / "data")
    out, few = folder / "search", folder / "few"
    for begun in (out, folder / "one"):  # the first of them imports
        run_search(data, begun, 1)
    seconds = show(f"search of {measured} trials that end at once", lambda: run_search(data, few, measured))
    print(
        f"| per trial, of which most is reading {sum(IMAGES):,} predictions | {seconds / measured:.4f} | | |"
    )
    begin_known(data, out, trials)
    show(f"search of {trials:,} trials, all known", lambda: run_search(data, out, trials), ("known", folder))


def show(what: str, step: Callable[[], object], again: tuple[str, Path] | None = None) -> float:
    """Time a step; count its calls in another process where asked for."""
    began = time.perf_counter(), time.process_time()
    step()
    seconds, own = time.perf_counter() - began[0], time.process_time() - began[1]
    calls = f"{counted(*again):,}" if again is not None and shutil.which("strace") else ""
    print(f"| {what} | {seconds:.2f} | {own:.2f} | {calls} |", flush=True)
    return seconds


def counted(step: str, folder: Path) -> int:
    """Count the file-system calls of a step by strace, less those of a process that only begins it."""
    return traced(step, folder) - traced("one" if step == "known" else "nothing", folder)


def traced(step: str, folder: Path) -> int:
    with tempfile.NamedTemporaryFile(mode="r") as report:
        command = [
            "strace",
            "-f",
            "-c",
            "-e",
            "trace=%file,%desc",
            "-o",
            report.name,
            sys.executable,
            __file__,
        ]
        trials = json.loads((folder / "trials").read_text()) if (folder / "trials").is_file() else 0
        subprocess.run([*command, "--step", step, "--folder", folder, "--trials", str(trials)], check=True)
        total = report.read().strip().splitlines()[-1].split()
    return int(total[3 if len(total) > 4 else 2])


# ------------------------------------------------------------------------------------------- the steps


def row(number: int, values: Sequence[float]) -> Result:
    scores = dict(zip(NAMES, values, strict=True))
    name = f"{number:012x}"
    return Result(name, "done", f"dropout-resnet50-seed-0-{name}", 3600.0, 1, 1.7e9 + number, scores=scores)


def write_rows(folder: Path, values: Sequence[Sequence[float]]) -> None:
    table = ResultTable(folder, IDENTITY)
    for number, scores in enumerate(values):
        table.add(row(number, scores))
    table.close()


def make_folders(runs: Path, values: Sequence[Sequence[float]]) -> None:
    runs.mkdir()
    for number, scores in enumerate(values):
        one = row(number, scores)
        (runs / one.folder).mkdir()
        (runs / one.folder / "scores.json").write_text(json.dumps(one.scores))


def list_and_rank(folder: Path, _: int = 0) -> list[Result]:
    folders = run_folders(folder / "runs")
    rows = [row for key, row in read_results(folder / "results", IDENTITY).items() if key in folders]
    return sorted(rows, key=lambda row: -(row.scores.get(SCORE) or 0.0))


def without_table(folder: Path, _: int = 0) -> list[tuple[float, str]]:
    with os.scandir(folder / "runs") as entries:
        found = [(json.loads(Path(e.path, "scores.json").read_text())[SCORE], e.name) for e in entries]
    return sorted(found, reverse=True)


def prepared(folder: Path) -> Path:
    """A prepared folder of blank pictures, whose labels alone matter here."""
    from retinabench.data.prepare import prepare
    from retinabench.data.preprocessing.preprocess import Recipe

    prepare("synthetic", folder, recipe=Recipe(16), images=64, workers=1)
    return folder


class AtOnce:
    """An engine that ends every trial at once, with a link to one predictions file."""

    def __init__(self, template: Path) -> None:
        self.template = template

    def compute(self, jobs: Sequence[object]) -> Iterator[object]:
        from retinabench.data.tasks import load_task
        from retinabench.experiments.engines.scheduler import Outcome
        from retinabench.experiments.run import run_folder

        task = load_task(jobs[0].run.data, jobs[0].run.task)
        for job in jobs:
            folder = run_folder(job.run, job.out, task)
            folder.mkdir(parents=True)
            os.link(self.template, folder / "predictions.parquet")
            (folder / "done").touch()
            yield Outcome(job, "done", folder, 1.0, 1)


def template(folder: Path) -> Path:
    file = folder / "template.parquet"
    if not file.is_file():
        random, n = np.random.default_rng(0), sum(IMAGES)
        split = np.repeat(["validation", "test"], IMAGES)
        domain = np.where(np.arange(n) % 16 == 0, "shifted", "in_domain")
        probs = random.random((n, 5))
        found = Predictions(
            np.arange(n).astype(str), random.integers(0, 2, n), probs, domain=domain, split=split
        )
        write_predictions(found, file)
    return file


def base(data: Path) -> object:
    return load_run("demo/dropout", data=str(data))


def run_search(data: Path, out: Path, trials: int) -> object:
    from retinabench.experiments.search.search import search
    from retinabench.experiments.search.space import read_space

    engine = AtOnce(template(data.parent))
    return search(base(data), read_space("demo/dropout"), trials=trials, out=out, engine=engine)


def begin_known(data: Path, out: Path, trials: int) -> None:
    """Write what a finished search of all trials leaves, without their predictions."""
    from retinabench.data.prepared import open_prepared
    from retinabench.experiments.run_folder import describe
    from retinabench.experiments.search.search import identity, trial_runs
    from retinabench.experiments.search.space import read_space

    fingerprint = open_prepared(data).fingerprint
    (data.parent / "trials").write_text(str(trials))
    table = ResultTable(out / "results", identity(fingerprint))
    for run in trial_runs(base(data), read_space("demo/dropout"), trials, 0):
        name = run.hash(fingerprint)
        folder = out / "runs" / f"{describe(run).replace(' ', '-')}-{name}"
        folder.mkdir(exist_ok=True)
        scores = {SCORE: 0.5 + run.optimizer.lr}
        table.add(Result(name, "done", folder.name, 1.0, 1, 0.0, scores=scores))
    table.close()


STEPS: dict[str, Callable[[Path, int], object]] = {
    "list": list_and_rank,
    "each": without_table,
    "segments": lambda folder, _: read_results(folder / "results", IDENTITY),
    "known": lambda folder, trials: run_search(folder / "data", folder / "search", trials),
    "one": lambda folder, _: run_search(folder / "data", folder / "one", 1),
    "nothing": lambda folder, _: None,
}

if __name__ == "__main__":
    main()
