"""`write_site`: a static leaderboard that opens from disk, the same bytes for the same entries.

    index.html                              every benchmark: what it is, and its standings by the first score
    BENCHMARK/index.html                    all entries, sortable and filtered; works without a script
    BENCHMARK/SET-SCORE.html                one ranking with every pairwise difference
    methods/KEY.html                        card, all numbers, curves, failures, predictions; KEY changes with the content
    predictions/KEY/BENCHMARK/seed-N.parquet
    images/BENCHMARK/*.jpg                  of the failure galleries, where there are images
    printed.html                            values printed in publications, ours beside them
    board.json                              all numbers
    site.json                               the manifest: every file of the site

Every file is written whole or not at all. The manifest is written first, with the files of the last site beside those of this one,
so that a site that was interrupted is completed and files that no longer belong to it are deleted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import json_text, write_bytes
from retinabench.core.results import IntervalRow, JsonObject, draw_intervals
from retinabench.core.workspace import Workspace
from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.comparison import ScoreRanking
from retinabench.metrics.image_sets import SET_LABELS, kept_columns
from retinabench.metrics.referral_curves import values_on_grid
from retinabench.metrics.registry import SCORES as SPECS
from retinabench.metrics.weighted_images import Floats
from retinabench.predictions.io import parquet_bytes
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import FEWEST, GRID, SetPredictions
from retinabench.reports.evaluation.facts import probability_text
from retinabench.reports.leaderboard import tables as rows
from retinabench.reports.leaderboard.board import SCHEMA, BenchmarkBoard
from retinabench.reports.toolkit import figures
from retinabench.reports.toolkit.figures import WIDTH, ImageSource, LegendEntry, Line, Mark, Panel, canvas, to_svg
from retinabench.reports.toolkit.pages import Fact, render
from retinabench.reports.toolkit.tables import cell_html

HEIGHT, BINS = 300, 8
Curves = Mapping[str, tuple[Floats, Floats]]
Failure = dict[str, str]  # An image that is predicted wrongly.
EACH = 6
PACKAGE = "retinabench.reports.leaderboard"
REFERENCE = "map"  # whose curves stand beside those of every method


def curves_of(seeds: Sequence[Predictions], name: str) -> Curves:
    cases = [case for one in seeds if (case := SetPredictions.of(one, name)) is not None]
    wholes = [case.cases.weighted() for case in cases]
    roc = np.mean([sensitivity_within(w, GRID) for w in wholes], axis=0)
    accuracy = np.mean([values_on_grid(w, GRID, FEWEST, ["accuracy"])["accuracy"] for w in wholes], axis=0)
    prob, label = (np.concatenate([getattr(case, key) for case in cases]) for key in ("prob", "label"))
    bins = np.array_split(np.argsort(prob, kind="stable"), BINS)
    shares = [np.array([values[rows].mean() for rows in bins if len(rows)]) for values in (prob, label)]
    return {"roc": (GRID, roc), "referral": (GRID, accuracy), "reliability": (shares[0], shares[1])}


def panels(ours: Mapping[str, Curves], others: Mapping[str, Curves], prefix: str) -> list[Panel]:
    marks = {name: Mark(k, 0) for k, name in enumerate(ours)}

    def lines(curve: str) -> list[Line]:
        drawn = [Line(Mark(marks[name].hue, 2), *others[name][curve]) for name in ours if name in others]
        return drawn + [Line(marks[name], *ours[name][curve]) for name in ours]

    drawings: dict[str, tuple[str, Callable[[], Figure]]] = {
        "roc": ("ROC", lambda: _diagonal(lines("roc"), "1 − specificity", "sensitivity")),
        "referral": ("Accuracy after referral", lambda: _referral(lines("referral"))),
        "reliability": ("Reliability", lambda: _diagonal(lines("reliability"), "P(referable)", "share referable")),
    }
    sets = " and ".join(SET_LABELS[name].lower() for name in ours)

    def drawn() -> dict[str, NDArray[np.uint8]]:
        made = {}
        for key, (heading, draw) in drawings.items():
            svg = to_svg(draw(), f"{prefix}-{key}", title=f"{heading}: {sets}", description="Mean over seeds.")
            made[key] = np.frombuffer(svg.encode(), np.uint8)
        return made

    parts: list[object] = [matplotlib.__version__.encode(), f"{prefix} {list(ours)} {list(others)}".encode()]
    parts += [check(Path(file)).read_bytes() for file in (__file__, figures.__file__)]
    parts += [array for of in (ours, others) for curves in of.values() for curve in curves.values() for array in curve]
    kept = kept_columns(parts, drawn)
    # Drawn above; `to_svg` escapes its text.
    return [Panel(heading, Markup(kept[key].tobytes().decode())) for key, (heading, _) in drawings.items()]  # noqa: S704


def _diagonal(lines: Sequence[Line], xlabel: str, ylabel: str) -> Figure:
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    figures.diagonal(axes)
    figures.draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel=xlabel, ylabel=ylabel)
    return figure


def _referral(lines: Sequence[Line]) -> Figure:
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    figures.draw_lines(axes, lines)
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel="accuracy of the others")
    figures.percent_axis(axes.xaxis)
    figures.light_grid(axes, "y")
    return figure


def failures(predictions: Predictions, name: str, *, shown: bool) -> list[Failure]:
    case = SetPredictions.of(predictions, name)
    if case is None:
        return []
    order = np.lexsort((case.image_id, case.uncertainty))
    wrong = order[~case.correct[order]]
    missed, alarms = wrong[case.label[wrong]], wrong[~case.label[wrong]]
    found = []
    for row in [*missed[:EACH].tolist(), *alarms[:EACH].tolist()]:
        image = str(case.image_id[row])
        grade = "" if case.grade is None else f", grade {case.grade[row]}"
        called = "referable" if case.called[row] else "not referable"
        found.append({
            "image_id": image, "file": image_file(image) if shown else "", "place": SET_LABELS[name].lower(),
            "truth": ("Referable" if case.label[row] else "Not referable") + grade,
            "predicted": f"Predicted {called}, {probability_text(float(case.prob[row]))}",
        })  # fmt: skip
    return found


def image_file(image_id: str) -> str:
    return f"{hashlib.sha256(image_id.encode()).hexdigest()[:16]}.jpg"


def index_page(boards: Sequence[BenchmarkBoard]) -> str:
    sections = [(board, _section(board, next(iter(board.sets)))) for board in boards]
    return _render("index.html.j2", title=_finding(boards), sections=sections, root="")


def benchmark_page(board: BenchmarkBoard) -> str:
    return _render(
        "benchmark.html.j2",
        title=_finding([board]),
        board=board,
        sections=[_section(board, name) for name in board.sets],
        kinds=rows.KINDS,
        root="../",
    )


def pairs_page(board: BenchmarkBoard, name: str, score: str) -> str:
    spec = SPECS[score]
    ranked = board.sets[name][score]
    standing = [
        (key, board.entries[key].title, rows.rank_text(one.best, one.worst), cell_html(rows.score_cell(one)))
        for key in ranked.order()
        if (one := ranked.models[key])
    ]
    return _render(
        "pairs.html.j2",
        title=f"{spec.label}, {SET_LABELS[name].lower()}: {_standing(board, name, score)}",
        board=board,
        spec=spec,
        standing=standing,
        resolved=len(ranked.better()),
        pairs=len(ranked.pairs),
        matrix=rows.pair_matrix(board, name, score),
        root="../",
    )


def method_page(key: str, boards: Sequence[BenchmarkBoard], shown: Mapping[str, Sequence[Failure]]) -> str:
    entry = boards[0].entries[key]
    sections = [_method_section(board, key, shown[board.benchmark.name]) for board in boards]
    return _render(
        "method.html.j2",
        title=entry.title,
        entry=entry,
        key=key,
        kind=rows.KINDS[entry.kind],
        facts=_facts(key, boards),
        sections=sections,
        root="../",
    )


def failures_of(board: BenchmarkBoard, key: str, *, shown: bool) -> list[Failure]:
    first = board.entries[key].seeds[0]
    return [one for name in board.benchmark.sets for one in failures(first, name, shown=shown)]


def _render(template: str, **context: Any) -> str:
    return render(template, context, package=PACKAGE)


def _finding(boards: Sequence[BenchmarkBoard]) -> str:
    """Return what the rankings by the primary score resolve: of one benchmark on each set, of several how many do."""
    if len(boards) == 1:
        primary, sets = boards[0].benchmark.primary, boards[0].benchmark.sets
        each = (f"{SET_LABELS[name].lower()}, {_standing(boards[0], name, primary)}" for name in sets)
        return f"{SPECS[primary].label}: {'; '.join(each)}"
    rankings = [[board.sets[name][board.benchmark.primary] for name in board.benchmark.sets] for board in boards]
    some = sum(any(ranked.better() for ranked in sets) for sets in rankings)
    one = sum(any(len(_may_be_best(ranked)) == 1 for ranked in sets) for sets in rankings)
    if not some:
        return f"On none of {len(boards)} benchmarks is a method shown to be better than another"
    many = f"On {some} of {len(boards)} benchmarks some methods are shown to be better than others"
    return f"{many}; a single best method is shown on {one or 'none'}"


def _standing(board: BenchmarkBoard, name: str, score: str) -> str:
    """Return what the ranking by a score on a set resolves, as a clause."""
    ranked = board.sets[name][score]
    order, first = ranked.order(), _may_be_best(ranked)
    if len(first) == len(order) > 1:
        return "no method is shown to be better than another"
    title = board.entries[order[0]].title
    if len(first) == 1:
        return f"{title} is the best of {len(order)} methods"
    return f"{len(first)} of {len(order)} methods may be the best, among them {title}"


def _may_be_best(ranked: ScoreRanking) -> list[str]:
    return [key for key, model in ranked.models.items() if model.best == 1]


@figures.drawing()
def _section(board: BenchmarkBoard, name: str) -> dict[str, object]:
    found, specs = board.sets[name], rows.specs_of(board, name)
    patients = "" if found.patients is None else f" of {found.patients:,} patients"
    ranked = found[specs[0].name]
    order = ranked.order()
    finding = f"{specs[0].label}, {SET_LABELS[name].lower()}: {_standing(board, name, specs[0].name)}"
    figure, [[axes]] = canvas(2 * WIDTH, 60 + 20 * len(order))
    models = [(board.entries[key].title, ranked.models[key]) for key in order]
    lines = [IntervalRow(title, one.value, one.low, one.high) for title, one in models]
    draw_intervals(lines, axes, label=specs[0].heading)
    said = "Each method with its 95 % interval over patients, the best first."
    return {
        "name": name,
        "label": SET_LABELS[name],
        "counts": f"{found.images:,} images{patients}, {found.positives:,} referable",
        "scores": [(spec.name, spec.heading) for spec in specs],
        "rows": rows.method_rows(board, name),
        "panel": Panel.of(figure, f"{board.benchmark.name}-{name}-dots", finding, said),
    }


@figures.drawing()
def _method_section(board: BenchmarkBoard, key: str, shown: Sequence[Failure]) -> dict[str, object]:
    name = board.benchmark.name
    sets: tuple[str, ...] = board.benchmark.sets
    seeds = board.entries[key].seeds
    references = {k: e for k, e in board.entries.items() if e.kind == "baseline" and e.card.name == REFERENCE}
    others = {part: curves_of(one.seeds, part) for other, one in references.items() if other != key for part in sets}
    ours = {part: curves_of(seeds, part) for part in sets}
    legend = [LegendEntry(SET_LABELS[part], Mark(k, 0)) for k, part in enumerate(sets)]
    if others:
        legend += [LegendEntry(f"MAP, {SET_LABELS[part].lower()}", Mark(k, 2)) for k, part in enumerate(sets)]
    numbers = [one.metadata["seed"] for one in seeds]
    return {
        "board": board,
        "table": rows.scores_table(board, key),
        "legend": legend,
        "panels": panels(ours, others, name),
        "failures": shown,
        "downloads": [(f"predictions/{key}/{name}/seed-{seed}.parquet", f"seed {seed}") for seed in numbers],
    }


def _facts(key: str, boards: Sequence[BenchmarkBoard]) -> list[Fact]:
    card = boards[0].entries[key].card
    tuned = "nothing, they are defaults" if card.tuned_on == "nothing" else f"{card.tuned_on} images"
    seeds = ", ".join(f"{len(b.entries[key].seeds)} on {b.benchmark.title}" for b in boards)
    return [
        Fact("By", card.authors),
        Fact("Computed on", f"{card.compute}; {card.hours:.3g} hours per seed"),
        Fact("Further data", "; ".join(card.data) or "none"),
        Fact("Pretrained weights", "yes" if card.pretrained else "no"),
        Fact("Networks per prediction", str(card.ensemble)),
        Fact("Settings chosen on", tuned),
        Fact("Seeds", f"{seeds}{', without randomness' if card.deterministic else ''}"),
    ]


MANIFEST = "site.json"
Failures = dict[tuple[str, str], list[Failure]]


def write_site(
    boards: Sequence[BenchmarkBoard],
    out: Path,
    *,
    images: Mapping[str, ImageSource] | None = None,
    progress: Progress = QUIET,
) -> Path:
    """Write the site and return its index; `images` are by benchmark: image_id -> (H, W, 3) uint8 or None."""
    folder = Workspace(out, "leaderboard site", MANIFEST)
    folder.check_empty()
    with folder.lock():
        found = {
            (key, board.benchmark.name): failures_of(board, key, shown=board.benchmark.name in (images or {}))
            for board in boards
            for key in board.entries
        }
        contents = list(_contents(boards, images or {}, found))
        names = {name for name, _ in contents}
        before = [str(name) for name in (folder.manifest() or {}).get("files", [])]
        _write_manifest(out, sorted({*before, *names}))
        written: set[str] = set()
        with progress.track("Writing pages", len(names), unit="files") as advance:
            for name, make in contents:
                if (content := make()) is not None:
                    write_bytes(out / name, content if isinstance(content, bytes) else content.encode())
                    written.add(name)
                    advance(1)
        for name in sorted(set(before) - written):
            _remove(out, name)
        _write_manifest(out, sorted(written))
    return out / "index.html"


def _write_manifest(out: Path, names: Sequence[str]) -> None:
    write_bytes(out / MANIFEST, json_text({"schema": "retinabench.site/1", "files": list(names)}).encode())


def _contents(
    boards: Sequence[BenchmarkBoard], images: Mapping[str, ImageSource], found: Failures
) -> Iterator[tuple[str, Callable[[], bytes | str | None]]]:
    """Yield the name of every file and what makes its content; None of an image that its source does not have."""
    by_key: dict[str, list[BenchmarkBoard]] = {}
    for board in boards:
        for key, entry in board.entries.items():
            by_key.setdefault(key, []).append(board)
            for one in entry.seeds:
                name = f"predictions/{key}/{board.benchmark.name}/seed-{one.metadata['seed']}.parquet"
                yield name, partial(parquet_bytes, one)
    for key, own in by_key.items():
        shown = {board.benchmark.name: found[key, board.benchmark.name] for board in own}
        yield f"methods/{key}.html", partial(method_page, key, own, shown)
    for board in boards:
        name = board.benchmark.name
        ids = {one["image_id"] for key in board.entries for one in found[key, name]} if name in images else ()
        for image_id in sorted(ids):
            yield f"images/{name}/{image_file(image_id)}", partial(_jpeg, images[name], image_id)
        for part, of in board.sets.items():
            for score in of.scores:
                yield f"{name}/{part}-{score}.html", partial(pairs_page, board, part, score)
        yield f"{name}/index.html", partial(benchmark_page, board)
    tables = rows.printed_page_tables(boards)
    yield "printed.html", partial(_render, "printed.html.j2", title="Printed values", tables=tables, root="")
    content: JsonObject = {"schema": SCHEMA, "benchmarks": [board.to_dict() for board in boards]}
    yield "board.json", partial(json_text, content)
    yield "index.html", partial(index_page, boards)


def _jpeg(source: ImageSource, image_id: str) -> bytes | None:
    image = source(image_id)
    return None if image is None else base64.b64decode(figures.data_uri(image)[0].partition(",")[2])


def _remove(out: Path, name: str) -> None:
    """Delete a file of the last site; a manifest that someone changed deletes nothing outside of the folder."""
    path = out / name
    if ".." in Path(name).parts or not path.resolve().is_relative_to(out.resolve()):
        raise InputError(f"names the file {name[:80]!r}, which is not in the site", file=out / MANIFEST)
    path.unlink(missing_ok=True)
    for parent in path.relative_to(out).parents:
        folder = out / parent
        if parent.name and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
