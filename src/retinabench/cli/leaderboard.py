"""The verbs `submit`, `leaderboard` and `site`: check and pack a submission, rank it among the baselines, build the site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from retinabench.cli import main as cli
from retinabench.core.errors import InputError

if TYPE_CHECKING:
    from retinabench.reports.toolkit.figures import ImageSource


def submit(
    verb: Annotated[
        Literal["check", "pack"], cli.argument("check|pack", "check it, or check and write it for a pull request.")
    ],
    folder: Annotated[Path, cli.argument("FOLDER", "The submission: card.toml and BENCHMARK/seed-N.parquet.")],
    out: Annotated[
        Path, cli.option("--out", "FOLDER", "pack: the folder of all submissions, into which it is written.")
    ] = Path("submissions"),
) -> None:
    """Check a submission to the leaderboard, completely; pack it for a pull request, with the same bytes every time."""
    from retinabench.reports.leaderboard.submission import find_submissions, pack, read_submission

    folders = find_submissions(folder) if verb == "check" and folder.is_dir() else []
    for one in folders or [folder]:
        entry = read_submission(one)
        cli.print_notes(f"{one}: {note}" for note in entry.notes)
        seeds = ", ".join(f"{name}: {len(files)} seeds" for name, files in sorted(entry.predictions.items()))
        cli.say(f"{entry.card.title}: complete. {seeds}. Its page: methods/{entry.key}.html")
    if verb == "pack":
        cli.say(pack(folder, out))


def leaderboard(
    paths: Annotated[
        list[Path] | None, cli.argument("PATH", "Submissions, folders of such, or predictions files.")
    ] = None,
    benchmark: Annotated[
        str | None,
        cli.option("--benchmark", "NAME", "A frozen benchmark; default: all, or the one whose images a file holds."),
    ] = None,
    score: Annotated[
        str, cli.option("--score", "SCORE", "What ranks, such as auroc or nll.")
    ] = "referral_accuracy_area",
    bootstrap: cli.Bootstrap = 1000,
    seed: cli.Seed = 0,
    json: cli.Json = None,
    quiet: cli.Silent = False,
) -> None:
    """Rank predictions or submissions among the baselines that come with the package; ties are shown as ties."""
    from rich.console import Group

    from retinabench.reports.leaderboard.board import SCHEMA, known_score, make_boards, read_entries
    from retinabench.reports.leaderboard.tables import TERMINAL, ranking_table

    entries = read_entries(paths or [], benchmark)
    names = sorted({name for entry in entries for name in entry.predictions})
    scores = list(dict.fromkeys((known_score(score), *TERMINAL)))
    boards = make_boards(
        entries, [benchmark] if benchmark else names, scores=scores, bootstrap=bootstrap, seed=seed,
        progress=cli.progress_of(quiet),
    )  # fmt: skip
    if not boards:
        raise InputError("there is nothing to rank", hint="Name predictions: no baselines come with this benchmark.")
    tables = [
        ranking_table(board, name, score)
        for board in boards
        for name, found in board.sets.items()
        if score in found.scores
    ]
    cli.print_result(
        Group(*tables), json, lambda: {"schema": SCHEMA, "benchmarks": [board.to_dict() for board in boards]}
    )
    cli.print_notes(note for entry in entries for note in entry.notes)


def site(
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder of the site.")] = Path("leaderboard-site"),
    submissions: Annotated[
        list[Path] | None, cli.option("--submissions", "FOLDER", "Submissions; may be repeated.")
    ] = None,
    data: Annotated[
        list[str] | None,
        cli.option("--data", "BENCHMARK=FOLDER", "Prepared images for the galleries; drawn ones are drawn."),
    ] = None,
    bootstrap: cli.Bootstrap = 1000,
    seed: cli.Seed = 0,
    quiet: cli.Silent = False,
) -> None:
    """Write the leaderboard as a static site that opens from disk: baselines, submissions, printed values."""
    from retinabench.reports.leaderboard.board import make_boards
    from retinabench.reports.leaderboard.site import write_site
    from retinabench.reports.leaderboard.submission import read_submission

    progress = cli.progress_of(quiet)
    entries = [read_submission(one) for folder in submissions or [] for one in _submissions_in(folder)]
    images = _image_sources(data or [])
    boards = make_boards(entries, bootstrap=bootstrap, seed=seed, progress=progress)
    cli.say(write_site(boards, out, images=images, progress=progress))


def _submissions_in(folder: Path) -> list[Path]:
    """Return the submissions in a folder, which may be empty as long as it is one."""
    from retinabench.reports.leaderboard.submission import find_submissions

    if not folder.is_dir():
        raise InputError("is not a folder", file=folder, hint="Name the folder of all submissions.")
    return find_submissions(folder)


def _image_sources(words: Sequence[str]) -> dict[str, ImageSource]:
    """Return where the images of each benchmark come from: prepared folders, and the renderer for drawn ones."""
    from retinabench.data.frozen.definition import benchmark_names, frozen_benchmark
    from retinabench.data.frozen.images import drawn_image
    from retinabench.data.prepared import open_prepared

    found: dict[str, Callable[[str], Any]] = {
        name: drawn_image(frozen_benchmark(name)) for name in benchmark_names() if frozen_benchmark(name).draw
    }
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or not folder:
            raise InputError(f"--data '{word}' is not BENCHMARK=FOLDER")
        found[frozen_benchmark(name).name] = open_prepared(Path(folder)).image
    return found
