"""Several models on the same images: aligned by image, bootstrapped over the same patients.

Models tend to fail on the same hard images. A replicate therefore draws patients once and scores every model on them, so
that what they have in common cancels in the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.bootstrap import cluster_bootstrap
from retinabench.metrics.clinical.thresholds import FrozenThreshold
from retinabench.metrics.image_sets import SETS, ImageSet, SetEvaluator, Together, image_sets
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.score_results import check_known
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Weighted
from retinabench.predictions.columns import DOMAINS
from retinabench.predictions.io import notes_of_files
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]


Entry = TypeVar("Entry", bound=Document)


@dataclass(frozen=True)
class OnSet(Document, Generic[Entry]):
    """What is found on one set, by score."""

    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, Entry]

    def __getitem__(self, name: str) -> Entry:
        return self.scores[name]


@dataclass(frozen=True, eq=False)
class PairedSet:
    """One set of images scored by M models: point (M, K), draws (R, M, K) on the same patients; NaN where undefined."""

    name: str
    images: int
    patients: int | None
    positives: int
    scores: tuple[ScoreSpec, ...]
    point: Floats
    draws: Floats
    whole: tuple[Weighted, ...]


def align(models: Sequence[Predictions]) -> list[Predictions]:
    """Return the test splits of the models, with their rows in the order of the first model."""
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
    """Tell whether models that share a domain have the same test images there, in any order."""
    if len(models) < 2:  # ids of millions of images take long to sort
        return True
    for domain in DOMAINS:
        of_models = [np.sort(one.image_id[(one.split == "test") & (one.domain == domain)]) for one in models]
        some = [ids for ids in of_models if len(ids)]
        if any(not np.array_equal(some[0], ids) for ids in some[1:]):
            return False
    return True


def _matching_rows(first: Predictions, other: Predictions, number: int) -> NDArray[np.intp]:
    """Return the row of `other` for each image of `first`, (N,)."""
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
            hint="Paired comparison needs predictions of the same images.",
        )
    if len(other) != len(first):
        extra = other.image_id[~np.isin(other.image_id, first.image_id)][0][:60]
        raise InputError(
            f"holds {len(other) - len(first)} images that {first.source or 'model 1'} lacks, such as '{extra}'",
            file=where,
            hint="Paired comparison needs predictions of the same images.",
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


def paired_sets(
    models: Sequence[Predictions],
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
    thresholds: Sequence[float] | None = None,
) -> list[PairedSet]:
    """Score aligned models on every set that exists; the replicates hold the same patients for all models."""
    check_known("score", scores, list(SCORES))
    check_known("set", sets, SETS)
    cuts = [0.5] * len(models) if thresholds is None else thresholds
    values = [
        referral_uncertainty(model, uncertainty, threshold=cut)[0]
        for model, cut in zip(models, cuts, strict=True)
    ]
    found = []
    for images in zip(*map(image_sets, models, values, cuts), strict=True):
        one = images[0]
        chosen = tuple(
            one.scores
            if scores is None
            else (s for s in SCORES.values() if s.name in scores and s.available_for(one.name))
        )
        if not chosen or (sets is not None and one.name not in sets):
            continue
        known = next((each for each in images if each.patients is not None), one)
        evaluators = [SetEvaluator(each, chosen) for each in images]
        found.append(_paired_set(known, chosen, evaluators, bootstrap, seed))
    return found


def _paired_set(
    images: ImageSet,
    chosen: tuple[ScoreSpec, ...],
    evaluators: list[SetEvaluator],
    bootstrap: int,
    seed: int,
) -> PairedSet:
    draws = np.empty((0, len(evaluators) * len(chosen)))
    if bootstrap:
        draws = cluster_bootstrap(Together(evaluators), images.cluster, replicates=bootstrap, seed=seed)
    return PairedSet(
        images.name,
        len(images),
        images.patients,
        images.positives,
        chosen,
        np.array([evaluator.point for evaluator in evaluators]),
        draws.reshape(-1, len(evaluators), len(chosen)),
        tuple(evaluator.whole for evaluator in evaluators),
    )


def notes_on(
    models: Sequence[Predictions],
    names: Sequence[str],
    uncertainty: str,
    thresholds: Sequence[FrozenThreshold] = (),
) -> tuple[str, ...]:
    """Return what a reader of a comparison must know of its inputs."""
    notes = notes_of_files(names, [model.notes for model in models])
    notes += [f"{name}: {cut.note}" for name, cut in zip(names, thresholds, strict=False) if cut.note]
    if all(model.patient_id is None for model in models):
        notes.append("no patient_id: every image is its own cluster, intervals may be too narrow")
    used = {
        name: referral_uncertainty(model, uncertainty)[1] for name, model in zip(names, models, strict=True)
    }
    if len(set(used.values())) > 1:
        notes.append(
            "referral is ordered by " + ", ".join(f"{kind} in {name}" for name, kind in used.items())
        )
    return tuple(notes)
