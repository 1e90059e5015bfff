"""Several predictions files of one command: what stands for each, how methods are named, folds joined, and models aligned by image."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, printable
from retinabench.core.untrusted import told_apart
from retinabench.predictions.check import all_differ
from retinabench.predictions.columns import DOMAINS
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions, concatenate

MOST_FILES = 2_000
MAX_TITLE = 200  # characters of a method's name in tables and figures
SAME_IMAGES = "Paired comparison needs predictions of the same images."
Subsets = Sequence[tuple[Hashable, ...]]
ReadEach = Callable[[Sequence[Path]], Iterable[Predictions]]
"""Reads files or run folders one after the other: `read_each`, or with the options of the command line."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return predictions files: a run folder stands for the `predictions.parquet` in it."""
    if len(paths) > MOST_FILES:
        raise InputError(
            f"{len(paths):,} files are more than are read at once ({MOST_FILES:,})",
            hint="Name those of the methods that you compare; `tune` ranks any number of trials.",
        )
    files = []
    for path in paths:
        if path.is_dir():
            if not (path / "predictions.parquet").is_file():
                raise InputError("holds no predictions.parquet", file=path, hint="Name run folders or files.")
            path = path / "predictions.parquet"
        files.append(path)
    return files


def read_each(paths: Sequence[Path]) -> Iterator[Predictions]:
    for path in find_files(paths):
        yield read_predictions(path)


def method_names(files: Sequence[Path], predictions: Sequence[Predictions]) -> list[str]:
    """Name each file: runs by their method, with the setting where it differs; other files by their file name."""
    titles = [str(one.metadata.get("title", "")) for one in predictions]
    settings = [str(one.metadata.get("setting", "")) for one in predictions]
    of_title: dict[str, set[str]] = {}
    for title, setting in zip(titles, settings, strict=True):
        of_title.setdefault(title, set()).add(setting)
    stems = Counter(file.stem for file in files)
    names = []
    for file, end, title, setting in zip(files, told_apart(files), titles, settings, strict=True):
        named = f"{title} ({setting})" if len(of_title[title]) > 1 else title
        names.append(printable(named or (file.stem if stems[file.stem] == 1 else end), MAX_TITLE))
    return names


def join_folds(files: Sequence[Path], predictions: Sequence[Predictions]) -> tuple[list[Path], list[Predictions]]:
    """Join the files of one method and seed whose test images are all different: the folds of a cross-validation."""
    groups: dict[tuple[str, object], list[int]] = {}
    for place, (name, one) in enumerate(zip(method_names(files, predictions), predictions, strict=True)):
        groups.setdefault((name, one.metadata.get("seed")), []).append(place)
    places, found = [], []
    for group in groups.values():
        tests = [part for place in group if (part := predictions[place].select(split="test")) is not None]
        if len(group) < 2 or len(tests) < len(group) or not all_differ(np.concatenate([one.image_id for one in tests])):
            places += group
            found += [predictions[place] for place in group]
            continue
        if any(one.fold is None for one in tests):
            tests = [replace(one, fold=np.full(len(one), number)) for number, one in enumerate(tests)]
        note = f"{len(group)} files hold different images: they are joined as the folds of a cross-validation"
        joined = concatenate(tests)
        found.append(replace(joined, notes=(*joined.notes, note)))
        places.append(group[0])
    return [files[place] for place in places], found


def notes_of_files(names: Sequence[str], notes: Sequence[Iterable[str]]) -> list[str]:
    """Join the notes of several files: a note on all of them comes once, any other begins with the names of its files."""
    about: dict[str, list[str]] = {}
    for name, said in zip(names, notes, strict=True):
        for note in dict.fromkeys(said):
            about.setdefault(note, []).append(name)
    return [note if len(of) == len(names) else f"{', '.join(of)}: {note}" for note, of in about.items()]


def align(models: Sequence[Predictions]) -> list[Predictions]:
    """Return the test splits of the models, with their rows in the order of the first; refuse other images or another truth."""
    tests = []
    for model in models:
        test = model.select(split="test")
        if test is None:
            raise InputError("holds no image of the test split", file=model.source)
        tests.append(test)
    first = tests[0]
    aligned = [first]
    for number, other in enumerate(tests[1:], start=2):
        aligned.append(other.take(_matching_rows(first, other, number)))
    return aligned


def check_seeds(names: Sequence[str], models: Sequence[Predictions]) -> None:
    """Refuse predictions of one name that cannot be seeds of one method: of other test images, or copies of each other."""
    of_name: dict[str, list[Predictions]] = {}
    for name, model in zip(names, models, strict=True):
        of_name.setdefault(name, []).append(model)
    for name, runs in of_name.items():
        if len(runs) > 1:
            try:
                aligned = align(runs)
            except InputError as error:
                hint = f"Both are named '{name}', and seeds of a method predict the same images: use --method for names of their own."
                raise InputError(
                    error.problem, file=error.file, row=error.row, column=error.column, hint=hint
                ) from None
            _refuse_copies(aligned)


def _refuse_copies(runs: Sequence[Predictions]) -> None:
    """Refuse aligned runs of one method that predict the same; a deterministic method may, with seeds that differ."""
    known: dict[bytes, list[Predictions]] = {}
    for number, run in enumerate(runs, start=1):
        own = b"" if run.uncertainty is None else run.uncertainty.tobytes()
        alike = known.setdefault(hashlib.sha256(run.probs.tobytes() + own).digest(), [])
        for earlier in alike:
            seeds = [one.metadata.get("seed") for one in (earlier, run)]
            if None in seeds or seeds[0] == seeds[1]:
                raise InputError(
                    f"predicts the same as {earlier.source or 'an earlier model'}: a copy is not another seed",
                    file=run.source or f"model {number}",
                    hint="Leave it out, or state the seed of each file by --model-seed.",
                )
        alike.append(run)


def have_same_images(models: Sequence[Predictions]) -> bool:
    if len(models) < 2:  # ids of millions of images take long to sort
        return True
    for domain in DOMAINS:
        of_models = [np.sort(one.image_id[(one.split == "test") & (one.domain == domain)]) for one in models]
        some = [ids for ids in of_models if len(ids)]
        if any(not np.array_equal(some[0], ids) for ids in some[1:]):
            return False
    return True


def _matching_rows(first: Predictions, other: Predictions, number: int) -> NDArray[np.intp]:
    where = other.source or f"model {number}"
    order = np.argsort(other.image_id, kind="stable")
    place = np.minimum(np.searchsorted(other.image_id[order], first.image_id), len(order) - 1)
    rows = order[place]
    absent = other.image_id[rows] != first.image_id
    if absent.any():
        image = first.image_id[np.flatnonzero(absent)[0]][:60]
        raise InputError(
            f"lacks {int(absent.sum())} of the {len(first)} images of {first.source or 'model 1'}, such as '{image}'",
            file=where,
            hint=SAME_IMAGES,
        )
    if len(other) != len(first):
        extra = other.image_id[~np.isin(other.image_id, first.image_id)][0][:60]
        raise InputError(
            f"holds {len(other) - len(first)} images that {first.source or 'model 1'} lacks, such as '{extra}'",
            file=where,
            hint=SAME_IMAGES,
        )
    for column in ("label", "domain", "patient_id", "grade"):
        ours, theirs = getattr(first, column), getattr(other, column)
        if ours is None or theirs is None:
            continue
        theirs = theirs[rows]
        known = (ours >= 0) & (theirs >= 0) if column == "grade" else True
        if (differ := np.flatnonzero((ours != theirs) & known)).size:
            row = int(differ[0])
            raise InputError(
                f"is '{theirs[row]}' for image '{first.image_id[row][:60]}' where {first.source or 'model 1'} has "
                f"'{ours[row]}'",
                file=where,
                row=other.file_row(rows[row]),
                column=column,
                hint="Both files must hold the same truth.",
            )
    return rows


def seeds_of(name: str, files: Sequence[Predictions]) -> Subsets:
    """Return the seeds behind each file as the files state them; of files that do not, labels that no other model has."""
    stated = [one.metadata.get("member_seeds") or one.metadata.get("seed") for one in files]
    subsets = [tuple(seeds) if isinstance(seeds, list) else (seeds,) for seeds in stated]
    if None in stated or len(set(subsets)) < len(subsets):
        return [((name, k),) for k in range(len(files))]
    return subsets
