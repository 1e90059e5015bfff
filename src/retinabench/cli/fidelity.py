"""`retinabench fidelity tasks | reference | import | run | tune | score | rerun | board`: closeness of posteriors to references."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli import main as cli
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.fidelity.reference.reference_file import Reference
    from retinabench.fidelity.submissions.tuning import TuningPoint

Target = Annotated[str, cli.option("--task", "TASK", "A target: a name of `retinabench fidelity tasks`.")]
TargetFolder = Annotated[
    Path | None, cli.option("--data", "FOLDER", "The target's data, where they do not come with the package.")
]
BurnIn = Annotated[int, cli.option("--burn-in", "N", "Transitions that adapt the step and are dropped.", min=1)]
Step = Annotated[float | None, cli.option("--step", "X", "First step size; default: searched for.", min=1e-9)]
Acceptance = Annotated[
    float,
    cli.option("--acceptance", "X", "Rate that burn-in adapts the step to; higher: a smaller step.", min=0.5, max=0.98),
]
Budget = Annotated[float, cli.option("--budget", "X", "Gradient evaluations per training example.", min=1, max=1e12)]


def tasks(json: cli.Json = None) -> None:
    """List the targets; as JSON with their definitions."""
    from rich.console import Group
    from rich.table import Table

    from retinabench.fidelity.densities.density import density_names, find_density
    from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES, entries
    from retinabench.fidelity.targets.target import TARGETS

    densities = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("density", "what", "decides", "P"):
        densities.add_column(column, overflow="fold")
    known = {name: find_density(name) for name in density_names()}
    for name, density in known.items():
        densities.add_row(name, density.about["title"], density.about["decides"], str(density.dimension))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("task", "what", "network"):
        table.add_column(column, overflow="fold")
    for column in ("weights", "prior", "points"):
        table.add_column(column, justify="right")
    for name, one in TARGETS.items():
        table.add_row(
            name, one.title, one.network, f"{one.parameters:,}", f"{one.prior_variance:.4g}", f"{one.train:,}"
        )
    methods = f"\nmethods: {', '.join([*entries(), *UNTRAINED_TITLES])}"
    cli.print_result(
        Group(table, "", densities, methods),
        json,
        lambda: (
            {name: one.model_dump(mode="json") for name, one in TARGETS.items()}
            | {
                name: {**one.about, "dimension": one.dimension, "data": one.data, "python": one.python}
                for name, one in known.items()
            }
        ),
    )


def reference(
    task: Annotated[str, cli.argument("TARGET", "A target: fundus, energy-gap, …")],
    out: Annotated[Path, cli.option("--out", "FILE", "File to write, such as fundus.npz.")],
    data: TargetFolder = None,
    chains: Annotated[int, cli.option("--chains", "N", "Number of chains; fewer than 4 cannot pass.", min=1)] = 4,
    burn_in: BurnIn = 50,
    keep: Annotated[int, cli.option("--keep", "N", "Transitions of each chain that count.", min=8)] = 150,
    step: Step = None,
    acceptance: Acceptance = 0.7,
    seed: cli.Seed = 0,
    device: cli.Device = "auto",
    quiet: cli.Silent = False,
) -> None:
    """Sample a target's posterior by Hamiltonian Monte Carlo, check the chains, and write the reference.

    The chains are in OUT.chains. Repeat the command to continue a killed run, or with a larger --keep to lengthen the
    chains. A reference that misses a threshold is written and marked; it gives no ranking.
    """
    from retinabench.experiments.execution import Resources
    from retinabench.fidelity.reference import quadrature
    from retinabench.fidelity.reference.make_reference import make_reference
    from retinabench.fidelity.reference.reference_file import write_reference
    from retinabench.fidelity.targets.data import load
    from retinabench.fidelity.targets.target import TARGETS

    if out.is_dir():
        raise InputError("is a folder", file=out, hint="Name the file to write, such as fundus.npz.")
    target, command = TARGETS.find(task), shlex.join(["retinabench", *sys.argv[1:]])
    if quadrature.known(target):
        made = quadrature.quadrature_reference(target, load(target, data), seed, command)
        write_reference(out, made)
        cli.say(f"{out}: by quadrature, two grids agree to {made.about.error:.1g}")
        return
    made = make_reference(
        target, load(target, data), out.with_name(f"{out.name}.chains"), chains=chains, burn_in=burn_in, keep=keep,
        step=step, acceptance=acceptance, seed=seed, device=str(Resources(device).torch_device()), command=command,
        progress=cli.progress_of(quiet),
    )  # fmt: skip
    write_reference(out, made)
    _print_summary(made, out, f"{task}: {chains} chains of {keep} after {burn_in}")


def _print_summary(made: Reference, out: Path, title: str) -> None:
    about = made.about
    assert about.energy_error is not None
    rates = ", ".join(f"{rate:.0%}" for rate in about.acceptance or ())
    cli.say(f"{title}, {about.steps} steps of {about.step:.3g}")
    cli.say(f"acceptance {rates}; mean energy error {about.energy_error.mean:.2f}")
    cli.say(
        f"R-hat below 1.05 for {about.rhat_below['1.05']:.1%} of the predictions; effective draws {about.ess_bulk['median']:.0f} "
        f"(median); standard error {about.mcse['median']:.4f} (median), {about.mcse['q95']:.4f} (95 %)"
    )
    for kind, measures in about.ceiling.items():
        means = ", ".join(f"{name} {sum(v) / len(v):.4f}" for name, v in measures.items())
        if means:
            cli.say(f"one chain against the others, {kind}: {means}")
    for reason in made.why:
        cli.say(f"FAILED: {reason}")
    for reservation in made.judgement.reservations:
        cli.say(f"reservation: {reservation}")
    cli.say(f"{out}: {'passed' if made.passed else 'failed its own diagnostics and gives no ranking'}")


def import_reference(
    file: Annotated[
        Path, cli.argument("FILE", "Published class probabilities or draws of y: CSV, NPZ, Parquet or zip.")
    ],
    task: Annotated[str, cli.option("--task", "TASK", "kit-cifar10, kit-imdb, kit-medmnist, kit-uci, …")],
    out: Annotated[Path, cli.option("--out", "FILE", "File to write, such as kit-cifar10.npz.")],
    labels: Annotated[
        Path | None, cli.option("--labels", "FILE", "True classes or y, one a line: they prove the order.")
    ] = None,
) -> None:
    """Import predictions that others published as a reference, to score submissions against; its verdict is "unverified"."""
    from retinabench.fidelity.leaderboard import importing
    from retinabench.fidelity.reference.reference_file import write_reference
    from retinabench.fidelity.targets.target import TARGETS

    if out.suffix != ".npz" or out.is_dir():
        hint = "Name the file to write, such as kit-cifar10.npz."
        raise InputError("is not the name of an .npz file", file=out, hint=hint)
    made = importing.import_reference(file, TARGETS.find(task), labels)
    write_reference(out, made)
    accuracy = made.about.accuracy
    proof = "its order is not proved: no labels" if labels is None else "y is correlated with its means"
    if accuracy is not None:
        proof = f"accuracy {accuracy:.4f} proves its order"
    cli.say(f"{out}: {made.judgement.verdict}; {proof}")


def run(
    method: Annotated[str, cli.argument("METHOD", "An entry, such as map, ensemble or ivon.")],
    task: Target,
    data: TargetFolder = None,
    budget: Budget = 1000,
    over_budget: Annotated[
        Literal["refuse", "mark"],
        typer.Option("--over-budget", help="Refuse a plan that exceeds it, or mark the submission."),
    ] = "refuse",
    track: Annotated[
        Literal["stated", "open"],
        typer.Option("--track", help="stated refuses a run that targets another posterior, open takes it."),
    ] = "stated",
    overrides: Annotated[
        list[str] | None, cli.argument("KEY=VALUE", "key=value, such as optimizer.lr=0.01 or method.members=5.")
    ] = None,
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder to write into.")] = Path("fidelity-runs"),
    seed: cli.Seed = 0,
    device: cli.Device = "cpu",
    quiet: cli.Silent = False,
) -> None:
    """Approximate a target's posterior under a counted budget and predict its test points; a killed run continues."""
    from retinabench.experiments.execution import Resources
    from retinabench.fidelity.densities.density import density_names
    from retinabench.fidelity.densities.run import run_on_density
    from retinabench.fidelity.submissions.runner import run_entry
    from retinabench.fidelity.targets.target import TARGETS

    if task in density_names():
        cli.say(run_on_density(method, task, budget, seed, out, cli.progress_of(quiet)))
        return
    cli.say(
        run_entry(
            method, TARGETS.find(task), data, budget=budget, seed=seed, out=out, overrides=overrides or (),
            over_budget=over_budget, track=track, resources=Resources(device, 0, cli.progress_of(quiet)),
        )
    )  # fmt: skip


def tune(
    method: Annotated[str, cli.argument("METHOD", "An entry for which settings are searched.")],
    task: Annotated[
        str, cli.option("--task", "TASK", "A development target: fundus-small or energy-gap-wall.")
    ] = "fundus-small",
    data: TargetFolder = None,
    reference: Annotated[
        Path | None, cli.option("--reference", "FILE", "Its reference; default: the shipped one.")
    ] = None,
    trials: Annotated[int, cli.option("--trials", "N", "Points of the search space.", min=1)] = 8,
    budget: Budget = 1000,
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder for runs and records.")] = Path("fidelity-tuning"),
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Search the settings that come closest to a development target's reference; a killed search continues."""
    from retinabench.experiments.execution import Resources
    from retinabench.fidelity.submissions.runner import CPU
    from retinabench.fidelity.submissions.tuning import tune as search
    from retinabench.fidelity.targets.target import TARGETS

    tuning = search(
        method, TARGETS.find(task), data, reference, trials=trials, budget=budget, seed=seed, out=out,
        resources=Resources(CPU.device, 0, cli.progress_of(quiet)),
    )  # fmt: skip
    for number, trial in enumerate(tuning.trials):
        distance = "failed" if trial.distance is None else f"{trial.distance:.4f}"
        cli.say(f"{number:3}  {distance}  {_settings(trial)}")
    cli.say(f"best: {tuning.best.distance:.4f}  {_settings(tuning.best)}")
    cli.say(out / f"{method}-{task}.json")


def _settings(trial: TuningPoint) -> str:
    return " ".join(f"{key}={value}" for key, value in trial.settings.items())


def score(
    files: Annotated[
        list[Path],
        cli.argument("FILE", "Probabilities or 1,000 draws of y: NPZ, CSV, Parquet, competition zip, run folder."),
    ],
    task: Target,
    data: TargetFolder = None,
    reference: Annotated[
        Path | None, cli.option("--reference", "FILE", "A reference of your own; default: the shipped one.")
    ] = None,
    bootstrap: cli.Bootstrap = 1000,
    seed: cli.Seed = 0,
    json: cli.Json = None,
    keep: Annotated[
        Path | None, cli.option("--keep", "FOLDER", "Copy the submission into this folder, for `board`.")
    ] = None,
    title: Annotated[str | None, cli.option("--title", "TITLE", "What to call the method.")] = None,
) -> None:
    """Score anyone's submission against the reference, without training and without PyTorch; of a density, draws in an NPZ."""
    from rich.console import Group

    from retinabench.fidelity.densities.density import density_names
    from retinabench.fidelity.densities.draws import board_of_draws
    from retinabench.fidelity.leaderboard.board import make_board
    from retinabench.fidelity.leaderboard.files import make_evaluator, score_files
    from retinabench.fidelity.leaderboard.tables import groups_shown, task_table
    from retinabench.fidelity.targets.target import TARGETS

    if task in density_names():
        found = board_of_draws(files, task, title)
        cli.print_result(found.table(), json, found.to_dict)
        return
    evaluator = make_evaluator(TARGETS.find(task), data, reference, bootstrap, seed)
    scored = score_files(files, evaluator, keep=keep, title=title)
    tables = (task_table(scored, group, terminal=True) for group in groups_shown(scored))
    cli.print_result(Group(*tables), json, lambda: make_board([scored]).to_dict())
    _say_what_is_not_installed([evaluator.reference])


def rerun(
    files: Annotated[list[Path], cli.argument("FILE", "Submissions of one entry, its seeds: files or run folders.")],
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder for the runs, which `board` ranks.")],
    code: Annotated[
        str,
        cli.option(
            "--code",
            "FILE.py:FUNCTION",
            "The author's function sample(problem, gradients, seed) -> draws; it is executed.",
        ),
    ] = "",
    data: TargetFolder = None,
    json: cli.Json = None,
    quiet: cli.Silent = False,
) -> int | None:
    """Run the code behind a submission again with the seeds 0, 1 and 2, and compare; a file that does not hold exits with 4.

    Entries of the package and of plug-ins need no --code. The runs are marked "rerun": an official board ranks their folder alone.
    """
    from retinabench.fidelity.leaderboard.files import make_evaluator, task_of
    from retinabench.fidelity.rerun import rerun as run_again
    from retinabench.fidelity.submissions.submission import read_submission, submission_in
    from retinabench.fidelity.targets.target import TARGETS

    paths = [submission_in(file) if file.is_dir() else file for file in files]
    evaluator = make_evaluator(TARGETS.find(task_of(paths[0])), data, None)
    target, known = evaluator.target, evaluator.data
    submissions = [read_submission(path, target, len(known.test), known.sha256) for path in paths]
    compared = run_again(submissions, evaluator, out, code, cli.progress_of(quiet))
    cli.print_result(
        "\n".join(one.text for one in compared), json, lambda: {"files": [one.to_dict() for one in compared]}
    )
    cli.say(out)
    return None if all(one.holds for one in compared) else cli.ExitCode.REFUTED


def board(
    folders: Annotated[list[Path], cli.argument("FOLDER", "Folders with submissions for any tasks, or such files.")],
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder for index.html, board.md and board.json.")] = Path(
        "fidelity-board"
    ),
    data: Annotated[
        list[str] | None, cli.option("--data", "TASK=FOLDER", "Where data do not come with the package.")
    ] = None,
    reference: Annotated[
        list[str] | None, cli.option("--reference", "TASK=FILE", "Instead of the shipped reference.")
    ] = None,
    bootstrap: cli.Bootstrap = 1000,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Rank all submissions in some folders, with intervals, budget and usefulness beside them, as page and tables."""
    from retinabench.fidelity.leaderboard.files import board_of
    from retinabench.fidelity.leaderboard.page import write_board
    from retinabench.fidelity.leaderboard.tables import ranking_tables, refused_table, task_table, usefulness_table

    made = board_of(folders, data or (), reference or (), bootstrap, seed, cli.progress_of(quiet))
    page = write_board(made, out)
    shown = (task_table(task, terminal=True) for task in made.tasks)
    densities = (one.table() for one in made.densities)
    for table in (*shown, usefulness_table(made.tasks), *ranking_tables(made), *densities, refused_table(made)):
        if table is not None:
            cli.print_table(table)
    cli.say(page)
    _say_what_is_not_installed([task.evaluator.reference for task in made.tasks])


def _say_what_is_not_installed(references: list[Reference]) -> None:
    from retinabench.fidelity.reference.reference_file import Extract

    for note in dict.fromkeys(one.note for one in references if isinstance(one, Extract)):
        cli.say(f"retinabench: {note}", error=True)


VERBS: cli.Verbs = {
    "tasks": (tasks, "retinabench fidelity tasks --json -"),
    "reference": (reference, "retinabench fidelity reference fundus --out fundus.npz"),
    "import": (import_reference, "retinabench fidelity import probs.csv --task kit-cifar10 --out kit-cifar10.npz"),
    "run": (run, "retinabench fidelity run map --task fundus"),
    "tune": (tune, "retinabench fidelity tune sghmc --task fundus-small --trials 8"),
    "score": (score, "retinabench fidelity score probabilities.csv --task fundus --json scores.json"),
    "rerun": (rerun, "retinabench fidelity rerun theirs/submission.npz --code sampler.py:sample --out official"),
    "board": (board, "retinabench fidelity board fidelity-runs --out board"),
}

app = cli.application(
    "How close does an approximate posterior come to the true one? A benchmark against Hamiltonian Monte Carlo."
)
cli.add_verbs(app, VERBS)
