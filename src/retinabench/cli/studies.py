"""Many runs in one command: `tune`, `benchmark`, `reproduce`, and `uci`, the comparison of 2019."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli import main as cli
from retinabench.cli.training import Config, Data, Method, Shifted, Task, configured_run
from retinabench.core.errors import InputError, WorkError

if TYPE_CHECKING:
    from retinabench.core.errors import Progress
    from retinabench.experiments.engines.scheduler import JobEngine
    from retinabench.experiments.study.definition import Study

StudyOverrides = Annotated[
    list[str] | None, cli.argument("KEY=VALUE", "key=value, such as seeds=3 or base.optimizer.epochs=10.")
]
Plan = Annotated[bool, cli.flag("--plan", help="Only say what it will compute, and roughly in how many hours.")]
Status = Annotated[bool, cli.flag("--status", help="Only show its progress, also while another process works.")]


# Of the verbs that compute many runs.
Parallel = Annotated[int | None, cli.computing("--workers", "N", "Runs at a time; default: as many as fit.", min=1)]
Gpus = Annotated[
    float, cli.computing("--gpus", "X", "GPUs of one run; 0.5: two runs share one; 2: two train it together.", min=0)
]


@dataclass(frozen=True)
class Computing:
    """Where many runs are computed, as the options say."""

    name: Annotated[
        Literal["local", "ray"],
        typer.Option("--engine", help="Processes of this machine, or a Ray cluster.", rich_help_panel=cli.COMPUTING),
    ] = "local"
    parallel: Parallel = None
    address: Annotated[
        str | None, cli.computing("--address", "ADDRESS", "Of a running Ray cluster; default: one of this machine.")
    ] = None
    cpus: Annotated[float, cli.computing("--cpus", "X", "Cores of one run, on Ray.", min=0)] = 1.0
    gpus: Gpus = 0.0
    storage: Annotated[
        str | None, cli.computing("--storage", "URL", "Where a cluster's runs meet: a shared folder or an fsspec URL.")
    ] = None
    device: cli.Device = "auto"

    def engine(self, progress: Progress, readers: int | None = None) -> JobEngine:
        """Return the engine; nothing is started before it has jobs. readers: processes of each run that read images."""
        from retinabench.experiments.engines.engine import make_engine

        return make_engine(
            self.name, parallel=self.parallel, device=self.device, address=self.address, cpus=self.cpus, gpus=self.gpus,
            storage=self.storage, progress=progress, readers=readers,
        )  # fmt: skip

    def precision(self) -> Literal["bfloat16"] | None:
        """Return the precision of runs whose settings name none."""
        from retinabench.experiments.engines.engine import precision_of

        return precision_of(self.name, self.device, self.gpus)


HERE = Computing()  # Where a verb that is called as a function computes.
computes_runs = cli.with_options(Computing, "computing")
"""Gives a verb the options of `Computing`, which it gets as its argument `computing`."""


@computes_runs
def tune(
    data: Data,
    space: Annotated[
        str, cli.option("--space", "NAME|FILE", "TOML file of ranges, or one that comes along, such as demo/dropout.")
    ],
    shifted: Shifted = None,
    out: cli.Out = Path("sweep"),
    config: Config = None,
    overrides: cli.Overrides = None,
    task: Task = None,
    method: Method = None,
    trials: Annotated[int, cli.option("--trials", "N", "Points of the space; more later keep the first.", min=1)] = 32,
    criterion: Annotated[
        Literal["in_domain_auroc", "balanced_joint_accuracy_area"],
        cli.option(
            "--criterion",
            "CRITERION",
            "What ranks the trials, on the validation split: in_domain_auroc or balanced_joint_accuracy_area.",
        ),
    ] = "in_domain_auroc",
    rules: cli.Rules = "corrected",
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
    computing: Computing = HERE,
) -> None:
    """Search the hyper-parameters of a method: compute trials, rank them, write the best as a configuration.

    The same command continues a stopped search; more --trials add to it, another --criterion ranks it anew.
    """
    from retinabench.experiments.search.ranking import ranking_table, write_figure, write_ranking
    from retinabench.experiments.search.search import search
    from retinabench.experiments.search.space import read_space

    base = configured_run(config, overrides, data, shifted, task, method, seed, computing.precision())
    ranges, progress = read_space(space), cli.progress_of(quiet)
    ranking = search(
        base, ranges, trials=trials, criterion=criterion, rules=rules, out=out, engine=computing.engine(progress), seed=seed,
        progress=progress,
    )  # fmt: skip
    folder = out / f"{criterion}-{rules}"
    write_ranking(ranking, folder)
    write_figure(ranking, folder)
    cli.print_table(ranking_table(ranking))
    if ranking.first:  # says why where there is none
        cli.say(folder / "best.toml")
    if failed := sum(row.state == "failed" for row in ranking.rows):
        problem = f"{folder}: {failed} trials failed, and the others are ranked. The same command tries them again."
        raise WorkError(problem)


@computes_runs
def benchmark(
    study: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|FILE.toml",
            help="demo, synthetic, severity, country, blur_country, blur_severity, filos2019, sites, or a study of your own.",
        ),
    ],
    overrides: StudyOverrides = None,
    data: Annotated[
        list[Path] | None,
        cli.option("--data", "FOLDER", "Prepared folder of a site; given three times or more: leave one site out."),
    ] = None,
    out: Annotated[Path | None, cli.option("--out", "FOLDER", "Folder to write into; default: benchmark-NAME.")] = None,
    plan: Plan = False,
    status: Status = False,
    seed: Annotated[
        int | None, cli.option("--seed", "N", "First seed of the runs, and of all else that is random.", min=0)
    ] = None,
    quiet: cli.Silent = False,
    computing: Computing = HERE,
) -> None:
    """Tune, train with several seeds, ensemble, score and tabulate several methods; the same command continues."""
    from retinabench.experiments.study.definition import read_study

    words = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    folder = out or Path(f"benchmark-{Path(study).stem}")
    tasks = None
    if data is None and study == "sites":
        raise InputError("names no site", hint="Name each prepared folder by --data, three or more.")
    if data is not None:
        from retinabench.experiments.study.sites import site_tasks

        tasks = site_tasks(data, folder, cli.progress_of(quiet))
    definition = read_study(study, words, tasks)
    if definition.precision is None:
        definition = definition.model_copy(update={"precision": computing.precision()})
    if status:
        _show_status(definition, folder)
    elif plan:
        _show_plan(definition, folder, computing)
    else:
        _compute(definition, folder, computing, cli.progress_of(quiet), of_sites=data is not None)


def _show_status(definition: Study, folder: Path) -> None:
    from retinabench.experiments.study.status import read_status, status_lines, status_table

    found = read_status(definition, folder)
    cli.print_table(status_table(found))
    for line in status_lines(found):
        cli.say(line)


def _show_plan(definition: Study, folder: Path, computing: Computing) -> None:
    from retinabench.core.errors import QUIET
    from retinabench.experiments.engines.engine import LocalEngine
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.study.plan import make_plan, plan_lines, plan_table

    if computing.name == "ray":
        places, device = (computing.parallel, "cuda" if computing.gpus > 0 or computing.device == "cuda" else "cpu")
    else:
        engine, device = computing.engine(QUIET), Resources(computing.device).torch_device().type
        places = engine.places if isinstance(engine, LocalEngine) else computing.parallel
    planned = make_plan(definition, folder, device, places)
    cli.print_table(plan_table(planned))
    for line in plan_lines(planned):
        cli.say(line)


def _compute(definition: Study, folder: Path, computing: Computing, progress: Progress, *, of_sites: bool) -> None:
    from retinabench.experiments.study.benchmark import benchmark as run_benchmark
    from retinabench.experiments.study.sites import site_tables
    from retinabench.experiments.study.summary import summary_tables

    engine = computing.engine(progress, definition.readers)
    # Sites share their test images, which the papers' tables would take for one data set with two truths.
    summary = run_benchmark(definition, folder, engine, progress, **({"writes": ()} if of_sites else {}))
    for table in site_tables(definition, summary, folder) if of_sites else summary_tables(summary):
        cli.print_table(table)
    cli.print_notes(summary.notes)
    cli.say(folder / ("sites.md" if of_sites else "summary.md"))


@computes_runs
def reproduce(
    paper: Annotated[Literal["country"], cli.argument("PAPER", "country: Band et al. 2021, EyePACS to APTOS.")],
    overrides: StudyOverrides = None,
    source: Annotated[
        Path | None, cli.option("--source", "FOLDER", "Holds EyePACS and APTOS as downloaded, in eyepacs/ and aptos/.")
    ] = None,
    out: cli.Out = Path("reproduce-country"),
    network: Annotated[
        Literal["frozen", "resnet50"],
        cli.option("--network", "NETWORK", "frozen: heads on pretrained features; resnet50: the paper's, for a GPU."),
    ] = "frozen",
    size: Annotated[int, cli.option("--size", "N", "Side of the square images, in pixels.")] = 512,
    draw: Annotated[
        float | None,
        cli.option("--draw", "SHARE", "Rehearse on drawn retinas: this share of the published images.", min=0, max=1),
    ] = None,
    quiet: cli.Silent = False,
    computing: Computing = HERE,
) -> None:
    """Repeat a paper from its data: prepare, train every method, tabulate, judge each claim; the same command continues."""
    from retinabench.experiments.study.benchmark import country_study
    from retinabench.experiments.study.benchmark import reproduce as run
    from retinabench.reports.papers.claims import claims_table

    progress = cli.progress_of(quiet)
    study = country_study(source, out, network, overrides or (), size=size, draw=draw, progress=progress)
    if study.precision is None:
        study = study.model_copy(update={"precision": computing.precision()})
    summary, judged = run(study, out, computing.engine(progress, study.readers), progress)
    cli.print_table(claims_table(judged))
    cli.print_notes(summary.notes)
    cli.say(out / "tables" / "index.md")
    cli.say(out / "claims.md")


def uci(
    source: Annotated[Path, cli.option("--source", "PATH", "Folder with the UCI sets, such as UCI_Datasets.")],
    sets: Annotated[
        str | None,
        cli.option(
            "--sets",
            "SETS",
            "boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht, joined by commas; "
            "default: those that are there.",
        ),
    ] = None,
    out: cli.Out = Path("uci"),
    epochs: Annotated[int, cli.option("--epochs", "N", "40: the standard protocol; 400: to convergence.", min=1)] = 40,
    workers: cli.Workers = None,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Compare MC dropout, mean-field VI and deep ensembles on the UCI regression sets, beside the published table."""
    from retinabench.experiments.uci import compare_methods

    names = [name.strip() for name in sets.split(",")] if sets is not None else []
    processes, progress = workers or os.cpu_count() or 1, cli.progress_of(quiet)
    for file in compare_methods(source, names, out, epochs=epochs, seed=seed, workers=processes, progress=progress):
        cli.say(file)
