"""A submission: a folder with a card and the predictions of every seed, checked as a whole.

    my-method/
      card.toml
      retinabench-drawn-1-mini/seed-0.parquet      one file per seed, in any format of `read_predictions`
      retinabench-drawn-1-mini/seed-1.parquet
      retinabench-idrid-1/seed-0.csv
      submission.json                              written by `retinabench submit pack`: the hash of every file

A submission is an untrusted folder: links, other files, large files and names that lead out of it are refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from retinabench.core.atomic_files import json_text, write_bytes
from retinabench.core.errors import InputError, nearest
from retinabench.data.frozen.definition import FrozenBenchmark, benchmark_names, frozen_benchmark
from retinabench.predictions.formats.parquet_format import parquet_bytes
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard.card import FILE as CARD
from retinabench.reports.leaderboard.card import Card, card_toml, read_card
from retinabench.reports.leaderboard.checking import as_seed, check_size, read_checked

MANIFEST, SCHEMA = "submission.json", "retinabench.submission/1"
MOST_SEEDS, MOST_MANIFEST_BYTES = 100, 2**20
SEED_FILE = re.compile(r"seed-([0-9]{1,9})\.(parquet|csv|npz)")
Kind = Literal["baseline", "submission", "file"]


@dataclass(frozen=True, eq=False)
class Entry:
    """A method on the board.

    Args:
        card: What it says of itself.
        kind: Whether it came with the package, as a submission, or as a bare file.
        predictions: Benchmark -> the checked predictions of its seeds.
        notes: What a reader must know.
    """

    card: Card
    kind: Kind
    predictions: Mapping[str, tuple[Predictions, ...]]
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its page: the name on the card, and eight digits that change with any of its content."""
        digest = hashlib.sha256(card_toml(self.card).encode())
        for benchmark in sorted(self.predictions):
            for one in self.predictions[benchmark]:
                digest.update(f"\n{benchmark} {one.metadata.get('seed')}\n".encode())
                digest.update("\n".join(one.image_id.tolist()).encode())
                digest.update(one.prob.tobytes())
                digest.update(b"" if one.uncertainty is None else one.uncertainty.tobytes())
        return f"{self.card.name}-{digest.hexdigest()[:8]}"


def read_submission(folder: Path) -> Entry:
    """Read a submission and check all of it.

    Args:
        folder: The submission.

    Returns:
        The entry.

    Raises:
        InputError: The first thing that is wrong, with file, row, column and hint.
    """
    if not folder.is_dir() or folder.is_symlink():
        raise InputError("is not a folder", file=folder, hint="Name the folder that holds card.toml.")
    card = read_card(folder)
    _check_manifest(folder)
    found: dict[str, tuple[Predictions, ...]] = {}
    notes: list[str] = []
    for part in _parts(folder):
        benchmark = frozen_benchmark(part.name)
        notes += _check_images(card, benchmark, folder)
        files = _seed_files(part, benchmark, card)
        found[part.name] = tuple(
            as_seed(read_checked(file, benchmark), card.title, seed) for seed, file in files
        )
        _check_copies(found[part.name], card)
    if not found:
        raise InputError(
            "holds no predictions",
            file=folder,
            hint=f"Put them into a folder {' or '.join(benchmark_names())}.",
        )
    return Entry(card, "submission", found, tuple(notes))


def pack(folder: Path, out: Path) -> Path:
    """Check a submission and write it as the folder of a pull request, with the same bytes whenever it is repeated.

    Predictions are written as Parquet: the mean over the posterior samples, without other columns than the benchmark's.

    Args:
        folder: The submission.
        out: The folder of all submissions.

    Returns:
        The folder that was written, which has the name on the card.

    Raises:
        InputError: The submission is not valid, or another one has its name.
    """
    entry = read_submission(folder)
    target = out / entry.card.name
    files = {CARD: card_toml(entry.card).encode()}
    for benchmark, seeds in sorted(entry.predictions.items()):
        for one in seeds:
            files[f"{benchmark}/seed-{one.metadata['seed']}.parquet"] = parquet_bytes(one)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    manifest = json_text({"schema": SCHEMA, "key": entry.key, "sha256": sums}).encode()
    if (target / MANIFEST).is_file() and (target / MANIFEST).read_bytes() != manifest:
        raise InputError(
            "holds another submission of this name",
            file=target,
            hint="Delete it, or change the name on the card.",
        )
    _check_target(folder, target, set(files))
    for name, content in {**files, MANIFEST: manifest}.items():
        write_bytes(target / name, content)
    return target


def find_submissions(folder: Path) -> list[Path]:
    """Return the submissions in a folder: itself, or those below it, sorted by name."""
    if (folder / CARD).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CARD}"))


def _check_target(folder: Path, target: Path, names: set[str]) -> None:
    if target.resolve() == folder.resolve():
        raise InputError("would be written over itself", file=folder, hint="Choose another --out.")
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    if strangers := sorted(
        name for name in there - names - {MANIFEST} if not Path(name).name.startswith(".")
    ):
        raise InputError(
            f"holds '{strangers[0]}', which is no part of the submission",
            file=target,
            hint="Delete the folder.",
        )


def _parts(folder: Path) -> Iterator[Path]:
    """Yield the folders of benchmarks; anything else but card and manifest is refused."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            raise InputError("is a link", file=path, hint="Put the file itself there.")
        if path.is_dir():
            if path.name not in benchmark_names():
                raise InputError(
                    f"is named after no benchmark: '{path.name[:60]}'",
                    file=folder,
                    hint=nearest(path.name, benchmark_names()),
                )
            yield path
        elif path.name not in (CARD, MANIFEST):
            raise InputError(f"holds '{path.name[:80]}', which is no part of a submission", file=folder)


def _seed_files(part: Path, benchmark: FrozenBenchmark, card: Card) -> list[tuple[int, Path]]:
    """Return the files of a benchmark's folder by seed; as many as it asks for."""
    found: dict[int, Path] = {}
    for path in sorted(part.iterdir()):
        match = SEED_FILE.fullmatch(path.name)
        if path.is_symlink() or not path.is_file() or not match:
            raise InputError(
                f"holds '{path.name[:80]}'", file=part, hint="Name the files seed-0.parquet, seed-1.csv, …"
            )
        if int(match[1]) in found:
            raise InputError(f"holds seed {int(match[1])} twice", file=part, hint="Leave one of them.")
        check_size(path)
        found[int(match[1])] = path
    needed = 1 if card.deterministic else benchmark.seeds
    if not needed <= len(found) <= MOST_SEEDS:
        hint = "A method without randomness says deterministic = true on its card, and hands in one."
        raise InputError(
            f"holds {len(found)} seeds; {benchmark.name} asks for {needed} to {MOST_SEEDS}",
            file=part,
            hint=hint,
        )
    return sorted(found.items())


def _check_copies(seeds: tuple[Predictions, ...], card: Card) -> None:
    """Raise where two seeds are the same file: their standard error would be too small."""
    for k, one in enumerate(seeds):
        for other in seeds[:k]:
            same = len(one) == len(other) and np.array_equal(one.image_id, other.image_id)
            if same and np.array_equal(one.prob, other.prob):
                raise InputError(
                    f"holds the same predictions as seed {other.metadata['seed']}",
                    file=one.source,
                    hint="Train each seed anew, or say deterministic = true and hand in one.",
                )
    if card.deterministic and len(seeds) > 1:
        raise InputError(
            f"{len(seeds)} seeds of a method that its card calls deterministic", file=seeds[1].source
        )


def _check_images(card: Card, benchmark: FrozenBenchmark, folder: Path) -> list[str]:
    """Compare the hash of the images that the card states with the definition; a note where it states none."""
    stated = card.images_sha256.get(benchmark.name)
    if stated is None:
        return [f"{benchmark.name}: the card does not state images_sha256, so its images are not verified"]
    if stated != benchmark.listing_sha256:
        raise InputError(
            f"images_sha256 of {benchmark.name} is '{stated[:16]}…', not '{benchmark.listing_sha256[:16]}…'",
            file=folder / CARD,
            hint=f"Make the images with: retinabench prepare {benchmark.name} --out DIR",
        )
    return []


def _check_manifest(folder: Path) -> None:
    """Compare every file with the hashes of a packed submission."""
    file = folder / MANIFEST
    if not file.exists() and not file.is_symlink():
        return
    sums = _read_manifest(file)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    if differing := sorted(there ^ set(sums)):
        what = "is not listed in it" if differing[0] in there else "is missing"
        raise InputError(f"'{differing[0][:80]}' {what}", file=file, hint="Pack the submission again.")
    for name, digest in sums.items():
        check_size(folder / name)
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise InputError(
                "was changed after the submission was packed", file=folder / name, hint="Pack it again."
            )


def _read_manifest(file: Path) -> dict[str, str]:
    try:
        if file.is_symlink() or file.stat().st_size > MOST_MANIFEST_BYTES:
            raise InputError("is a link, or larger than 1 MB", file=file)
        content: Any = json.loads(file.read_text("utf-8"))
        sums = content["sha256"]
        if content["schema"] != SCHEMA or not isinstance(sums, dict):
            raise ValueError("another schema")
        return {str(name): str(digest) for name, digest in sums.items()}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"is no list of hashes ({error})", file=file, hint="Pack it again.") from None
