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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.core.files import json_text, write_bytes
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.workspace import Workspace
from retinabench.predictions.formats import parquet_bytes
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.examples import ImageSource, data_uri
from retinabench.reports.leaderboard import pages
from retinabench.reports.leaderboard.board import SCHEMA, BenchmarkBoard
from retinabench.reports.leaderboard.pages import Failure, image_file

MANIFEST = "site.json"
Content = Iterator[tuple[str, bytes]]
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
            (key, board.benchmark.name): pages.failures_of(board, key, shown=board.benchmark.name in (images or {}))
            for board in boards
            for key in board.entries
        }
        names = set(_names(boards, found))
        before = [str(name) for name in (folder.manifest() or {}).get("files", [])]
        _write_manifest(out, sorted({*before, *names}))
        written: set[str] = set()
        with progress.track("Writing pages", len(names), unit="files") as advance:
            for name, content in _contents(boards, images or {}, found):
                write_bytes(out / name, content)
                written.add(name)
                advance(1)
        for name in sorted(set(before) - written):
            _remove(out, name)
        _write_manifest(out, sorted(written))
    return out / "index.html"


def _write_manifest(out: Path, names: Sequence[str]) -> None:
    write_bytes(out / MANIFEST, json_text({"schema": "retinabench.site/1", "files": list(names)}).encode())


def _names(boards: Sequence[BenchmarkBoard], found: Failures) -> Iterator[str]:
    yield from ("index.html", "printed.html", "board.json")
    for board in boards:
        name = board.benchmark.name
        yield f"{name}/index.html"
        yield from (f"{name}/{part}-{score}.html" for part, of in board.sets.items() for score in of.scores)
        for key, entry in board.entries.items():
            yield f"methods/{key}.html"
            yield from (_download(key, name, one) for one in entry.seeds)
            yield from (f"images/{name}/{one['file']}" for one in found[key, name] if one["file"])


def _download(key: str, benchmark: str, one: Predictions) -> str:
    return f"predictions/{key}/{benchmark}/seed-{one.metadata['seed']}.parquet"


def _contents(boards: Sequence[BenchmarkBoard], images: Mapping[str, ImageSource], found: Failures) -> Content:
    by_key: dict[str, list[BenchmarkBoard]] = {}
    for board in boards:
        for key, entry in board.entries.items():
            by_key.setdefault(key, []).append(board)
            for one in entry.seeds:
                yield _download(key, board.benchmark.name, one), parquet_bytes(one)
    for key, own in by_key.items():
        shown = {board.benchmark.name: found[key, board.benchmark.name] for board in own}
        yield f"methods/{key}.html", pages.method_page(key, own, shown).encode()
    for board in boards:
        name = board.benchmark.name
        yield from _images(board, images.get(name), found)
        for part, of in board.sets.items():
            for score in of.scores:
                yield f"{name}/{part}-{score}.html", pages.pairs_page(board, part, score).encode()
        yield f"{name}/index.html", pages.benchmark_page(board).encode()
    yield "printed.html", pages.printed_page(boards).encode()
    content: JsonObject = {"schema": SCHEMA, "benchmarks": [board.to_dict() for board in boards]}
    yield "board.json", json_text(content).encode()
    yield "index.html", pages.index_page(boards).encode()


def _images(board: BenchmarkBoard, source: ImageSource | None, found: Failures) -> Content:
    name = board.benchmark.name
    ids = {one["image_id"] for key in board.entries for one in found[key, name]}
    for image_id in sorted(ids) if source is not None else ():
        if source is not None and (image := source(image_id)) is not None:
            jpeg = base64.b64decode(data_uri(image)[0].partition(",")[2])
            yield f"images/{name}/{image_file(image_id)}", jpeg


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
