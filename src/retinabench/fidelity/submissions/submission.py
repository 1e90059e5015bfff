"""A submission to the fidelity benchmark: what a method predicts for a target's test points, and what it targets.

    classification   probs (N, C) float64, each row sums to 1; samples (S, N, C), optional: single posterior samples
    regression       draws (N, 1000): samples of y itself, noise included, in the standardised unit of the target

Rows are the test points in the order of the target. A file is read in any of these formats, told apart by its first bytes; pickles
are never loaded:

    NPZ       arrays probs, samples, draws, and `meta`, a JSON text, where there is any: what `fidelity run` writes
    Parquet   columns prob_0 … or draw_0 …, and optionally `point`, 0 to N - 1 in order
    CSV       the same with a header; or bare numbers, as numpy.savetxt writes them
    zip       NAME_probs.csv or NAME_samples.csv of bare numbers; NAME is the target's, or that of the competition

A run belongs to the stated track where the posterior that it approximates is that of the target, temperature 1 and prior
N(0, s² I), without augmentation and reweighting. Methods that state no density of the weights (MC dropout, SWAG) belong to it
where the loss that they are trained on is the negative logarithm of the stated posterior. The infinite-width limits are models of their own and have a
track of their own. All others belong to the open track.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError

from retinabench.core.errors import InputError, check, json_object, printable
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.seeds import numpy_generator
from retinabench.core.settings import Frozen
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.columns import MAX_VALUES
from retinabench.predictions.io import DAMAGED_ARRAYS, METHODS, read_member, read_table
from retinabench.predictions.table import MAX_TITLE

Track = Literal["stated", "open", "infinite"]
Floats = NDArray[np.floating]
Arrays = dict[str, NDArray[Any]]
SCHEMA = "retinabench.fidelity-submission/1"
SCHEMAS = (SCHEMA, "retinabench.fidelity-answers/1")  # the latter: of version 0.1
FILE, EARLIER_FILE = "submission.npz", "answers.npz"  # the latter: of version 0.1
KINDS = {"probs": np.float64, "samples": np.float16, "draws": np.float32}
ARRAYS = (*KINDS, "meta")
SIGNED = ("task", "target", "data", "seed", "run", "budget", "implied", "evidence")
"""Metadata that the content hash covers, beside the arrays: all that decides where a submission stands."""
INFINITE_WIDTH = ("nngp", "ntk")  # methods
MOST_GRADIENTS = 1e12  # per example, that a submission can state
TIERS = (100, 1_000, 10_000, 100_000)  # of the budget, in gradient evaluations per training example
DRAWS = 1000  # per test point of a regression
KEPT_SAMPLES = 200  # in the submission of a classification
TOLERANCE = 1e-6  # relative, of temperature and variance
SUM_TOLERANCE = 1e-3  # of the sum of a row: text with four decimals passes
NAME = 40  # characters of a title in the name of a folder, which may have 255 bytes
COLUMN = re.compile(r"(prob|draw)_([0-9]{1,6})")
HINT = "Write an NPZ with probs (N, C) or draws (N, 1000)."


# ------------------------------------------------------------------------------------------- what a run targets


class Implied(Frozen):
    """The posterior that a run approximates, π(w) ∝ p(D | w)^(1/T) N(w; 0, v I)."""

    temperature: float | None = None  # T; None where no T and v describe it
    prior_variance: float | None = None  # v; None for an improper prior as well
    how: str = ""  # in which sense it is approximated, or why there is none
    augment: str = "none"  # what changes the training images at random
    reweight: str = "none"  # how classes are weighed
    loss_variance: float | None = None  # without T and v, the prior variance of the log posterior that it is trained on

    def departures(self, target: Target) -> list[str]:
        """Return in which points it is not the target's posterior, in words; an empty list where it is."""
        found = [f"augmentation ({self.augment})"] * (self.augment != "none")
        found += [f"reweighted classes ({self.reweight})"] * (self.reweight != "none")
        if found:
            return found
        if self.temperature is None:
            return [] if _close(self.loss_variance, target.prior_variance) else [f"no target posterior: {self.how}"]
        if not _close(self.temperature, target.temperature):
            found.append(f"temperature {self.temperature:.4g}, not {target.temperature:g}")
        return found + _variance_departure(self.prior_variance, target)

    def text(self) -> str:
        settings = {"augment": self.augment, "reweight": self.reweight}
        extra = [f"{name} {value}" for name, value in settings.items() if value != "none"]
        if self.temperature is None:
            return ", ".join(["none", *extra])
        variance = "none" if self.prior_variance is None else f"{self.prior_variance:.3g}"
        return ", ".join([f"T {self.temperature:.3g}, s² {variance}", *extra])


def implied_by(run: Any, points: int) -> Implied:
    """Return what a run on N = `points` training points targets."""
    found, plain = run.target_posterior(points), run.optimizer
    return Implied(
        temperature=found.temperature, prior_variance=_finite(found.prior_variance), how=found.how,
        augment=plain.augment, reweight=plain.reweight, loss_variance=_finite(found.loss_variance),
    )  # fmt: skip


def check_track(implied: Implied, target: Target, track: Track) -> None:
    """Refuse a run that does not target the stated posterior, unless it takes part in the open track."""
    departures = implied.departures(target)
    if track == "stated" and departures:
        hint = "Leave these settings out, or take part in the open track by --track open."
        raise InputError(f"does not target the posterior of '{target.name}': {'; '.join(departures)}", hint=hint)


def _of_settings(run: JsonObject, target: Target) -> list[str]:
    """Return the departures that the settings of a run show by themselves, without its method."""
    optimizer = run.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return []
    found = []
    for key, word in (("augment", "augmentation"), ("reweight", "reweighted classes")):
        if (value := optimizer.get(key, "none")) not in ("none", False):
            found.append(f"{word} ({str(value)[:20]})")
    cold = [value for value in _temperatures(run.get("method")) if not _close(value, target.temperature)]
    found += [f"temperature {value:.4g}, not {target.temperature:g}" for value in cold[:1]]
    l2 = optimizer.get("l2")
    if isinstance(l2, int | float):
        found += _variance_departure(1 / (2 * target.train * l2) if l2 > 0 else None, target)
    return found


def _variance_departure(variance: float | None, target: Target) -> list[str]:
    if _close(variance, target.prior_variance):
        return []
    stated = "none" if variance is None else f"{variance:.4g}"
    return [f"prior variance {stated}, not {target.prior_variance:.4g}"]


def _temperatures(method: Any) -> Iterator[float]:
    while isinstance(method, Mapping):
        for key in ("temperature", "kl_temperature"):
            if isinstance(value := method.get(key), int | float):
                yield float(value)
        method = method.get("member")


def _close(value: float | None, wanted: float) -> bool:
    return value is not None and math.isfinite(value) and abs(value / wanted - 1) <= TOLERANCE


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# -------------------------------------------------------------------------------------------------- a submission


class Budget(Frozen):
    """Gradient evaluations per training example."""

    model_config = ConfigDict(extra="ignore")

    limit: float | None = Field(None, ge=0, le=MOST_GRADIENTS, allow_inf_nan=False)
    used: float = Field(0.0, ge=0, le=MOST_GRADIENTS, allow_inf_nan=False)
    over: bool = False

    @property
    def tier(self) -> int | None:
        """The smallest of `TIERS` under which it took part; None above all of them."""
        most = self.used if self.limit is None else max(self.limit, self.used)
        return next((tier for tier in TIERS if most <= tier), None)


class About(Frozen):
    """What a submission says of itself, as far as it does; entries of other names are kept."""

    model_config = ConfigDict(extra="allow")

    task: str | None = None
    target: str | None = None
    data: str | None = None
    method: str | None = None
    title: str | None = None
    seed: int | None = None
    run: JsonObject | None = None
    budget: Budget | None = None
    seconds: float | None = None
    version: str | None = None
    baseline: bool = False
    implied: Implied | None = None
    evidence: dict[str, str] | None = None
    content: str | None = None
    rerun: bool = False  # `fidelity rerun` made it, from the code of its author
    traced: bool = False  # code whose evaluations could not be counted

    @property
    def counted(self) -> bool:
        """Whether its budget was counted by `fidelity run`; any other is declared.

        The hashes show that nothing was changed by mistake. They are no proof against forgery, since anyone can compute them.
        """
        return bool(self.evidence) and self.content is not None

    @classmethod
    def read(cls, path: Path, meta: JsonObject) -> About:
        """Return what the metadata of a file say; raises `InputError` where an entry is of another kind."""
        try:
            return cls(**meta)
        except (ValidationError, TypeError) as error:
            problem = str(error)
            if isinstance(error, ValidationError):
                detail = error.errors()[0]
                problem = f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
            raise InputError(f"has unreadable metadata: {problem}", file=path) from None

    def changed(self, **entries: Any) -> About:
        """Return a copy with other entries."""
        return About(**{**self.to_dict(), **entries})

    def to_dict(self) -> JsonObject:
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True, eq=False)
class Submission:
    """Predictions for a target's test points: probs (N, C) and samples (S, N, C), or draws (N, 1000); what it says of itself; its file."""

    probs: Floats | None = None
    samples: Floats | None = None
    draws: Floats | None = None
    about: About = field(default_factory=About)
    source: Path | None = None
    std: Floats | None = None  # (N, C), of the probabilities over posterior samples, of what ships without samples

    def departures(self, target: Target) -> list[str]:
        """Return in which points it departs from the target's posterior, by what it states and by its settings, in words."""
        run, implied = self.about.run, self.about.implied
        found = [] if implied is None else implied.departures(target)
        if run is None:
            return found if implied is not None else ["it does not state what it targets"]
        return list(dict.fromkeys(found + _of_settings(run, target)))

    def track(self, target: Target) -> Track:
        if self.about.method in INFINITE_WIDTH:
            return "infinite"
        return "open" if self.departures(target) else "stated"

    @property
    def arrays(self) -> Arrays:
        """What a file holds of it, in the types of `KINDS`."""
        known = {name: getattr(self, name) for name in KINDS}
        return {name: np.asarray(values, KINDS[name]) for name, values in known.items() if values is not None}

    @property
    def likelihood(self) -> str:
        """That of the targets which it can be for."""
        return "gaussian" if self.probs is None else "categorical"

    @property
    def values(self) -> Floats:
        """What is compared with a reference: its probabilities, or its draws."""
        values = self.draws if self.probs is None else self.probs
        assert values is not None
        return values

    @property
    def title(self) -> str:
        """The title of the method, else its name, else the name of the file."""
        return printable(str(self.about.title or self.about.method or (self.source and self.source.stem)), MAX_TITLE)


def submission_in(folder: Path) -> Path:
    """Return the path of the submission in a run's folder, whether it exists or not."""
    earlier = folder / EARLIER_FILE
    return earlier if earlier.is_file() and not (folder / FILE).is_file() else folder / FILE


def folder_of(out: Path, title: str, task: str, content: bytes) -> Path:
    """Return a folder for a submission of this content: seeds, and titles that differ in signs alone, lie side by side."""
    name = "".join(c if c.isalnum() else "-" for c in title[:NAME])
    return out / f"{name}-{task}-{hashlib.sha256(content).hexdigest()[:8]}"


def content_hash(arrays: Mapping[str, NDArray[Any]], about: About) -> str:
    """Return the SHA-256 of the arrays in the types of `KINDS`, and of the metadata `SIGNED`."""
    stated = {key: value for key, value in about.to_dict().items() if key in SIGNED}
    digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode())
    for name, kind in KINDS.items():
        if name in arrays:
            array = np.ascontiguousarray(arrays[name], kind)
            digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def write_submission(path: Path, submission: Submission, *, checked: bool = False) -> None:
    """Write our own NPZ atomically: probs float64, samples float16, draws float32."""
    about = submission.about
    if about.evidence is not None:
        about = about.changed(content=content_hash(submission.arrays, about))
    meta = np.array(json.dumps({"schema": SCHEMA, **about.to_dict()}, allow_nan=False))
    sink = io.BytesIO()
    np.savez_compressed(sink, meta=meta, **submission.arrays)  # type: ignore[arg-type]
    write_bytes(path, sink.getvalue(), checked=checked)


def read_submission(path: str | Path, target: Target, points: int, data: str = "") -> Submission:
    path = Path(path)
    arrays, meta = read_arrays(path, target)
    about = _about(path, meta, target, data)
    if about.content is not None and about.content != content_hash(arrays, about):
        hint = "Copy it again from where it was written."
        raise InputError("was changed after it was written: its content hash differs", file=path, hint=hint)
    wanted = "probs" if target.likelihood == "categorical" else "draws"
    if wanted == "probs" and "probs" not in arrays and "samples" in arrays:
        arrays["probs"] = np.asarray(arrays["samples"], np.float64).mean(axis=0)
    if wanted not in arrays:
        columns = f"prob_0 … prob_{target.outputs - 1}" if wanted == "probs" else f"draw_0 … draw_{DRAWS - 1}"
        hint = f"An array '{wanted}', or columns {columns}."
        raise InputError(f"holds no '{wanted}', which the task '{target.name}' asks for", file=path, hint=hint)
    if wanted == "draws":
        return Submission(draws=checked_draws(path, arrays["draws"], target, points), about=about, source=path)
    probs = checked_probs(path, arrays["probs"], target, points, "probs")
    if (samples := arrays.get("samples")) is not None:
        if samples.ndim != 3:
            raise InputError(f"has shape {samples.shape}, needed is (S, N, C)", file=path, column="samples")
        if not len(samples):
            raise InputError("holds no sample", file=path, column="samples", hint="Leave the array out.")
        for one in samples:
            checked_probs(path, np.asarray(one, np.float64), target, points, "samples")
        check_samples(path, probs, samples)
    return Submission(probs=probs, samples=samples, about=about, source=path)


def _about(path: Path, meta: JsonObject, target: Target, data: str) -> About:
    """Refuse a file that says it is something else, or belongs to another task or to other data."""
    # A reference has `samples` too, and would be scored against itself.
    if (schema := meta.get("schema")) not in (None, *SCHEMAS):
        hint = "Name a file that `retinabench fidelity run` wrote, or one of predictions alone."
        raise InputError(f"is not a submission: its schema is '{printable(str(schema), 80)}'", file=path, hint=hint)
    about = About.read(path, meta)
    if about.task not in (None, target.name):
        raise InputError(f"is for the task '{about.task}', not '{target.name}'", file=path, hint=f"--task {about.task}")
    if data and about.data not in (None, data):
        hint = "Only submissions for the same test points can be compared."
        raise InputError(f"is for other data (SHA-256 {str(about.data)[:12]}…, not {data[:12]}…)", file=path, hint=hint)
    if data and about.target not in (None, target.fingerprint(data)):
        hint = "It was made by another version of the targets: run the method again."
        raise InputError(f"is for another definition of '{target.name}'", file=path, hint=hint)
    return about


def submission_of(values: NDArray[np.float32], target: Target, about: About, seed: int) -> Submission:
    """Return the submission of S posterior samples: class probabilities, or means and stds (S, N, O)."""
    if target.likelihood == "gaussian":
        draws = y_draws(values, numpy_generator(seed, "exam", target.name))
        return Submission(draws=draws.astype(np.float32), about=about)
    kept = np.linspace(0, len(values) - 1, min(len(values), KEPT_SAMPLES)).round().astype(int)
    return Submission(probs=values.mean(axis=0, dtype=np.float64), samples=values[kept], about=about)


def y_draws(predicted: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw y, noise included, (N, `DRAWS`), from a mixture of Gaussians with means and stds (S, N, 2), equally many of each."""
    samples = np.arange(DRAWS) * len(predicted) // DRAWS
    mean, std = predicted[samples, :, 0].T, predicted[samples, :, 1].T
    return np.asarray(mean + std * generator.standard_normal(mean.shape), np.float64)


# ------------------------------------------------------------------------------------------------- what it holds


def checked_probs(path: Path, values: Floats, target: Target, points: int, column: str) -> Floats:
    """Return probabilities (N, C) whose rows sum to 1; the half precision of `samples` is allowed ten times the error."""
    classes = target.outputs
    if values.ndim != 2 or values.shape[1] != classes:
        problem = f"has shape {values.shape}; the task '{target.name}' has {points} test points and {classes} classes"
        raise InputError(problem, file=path, column=column)
    _check_rows(path, values, target, points)
    outside = (values < -SUM_TOLERANCE) | (values > 1 + SUM_TOLERANCE)
    if outside.any():
        row, place = (int(k) for k in np.argwhere(outside)[0])
        problem = f"holds {values[row, place]:.4g}, which is not a probability"
        raise InputError(problem, file=path, row=row + 1, hint="Are these logits? Apply the softmax.")
    sums, allowed = values.sum(axis=1, dtype=np.float64), SUM_TOLERANCE if column == "probs" else 10 * SUM_TOLERANCE
    if (wrong := np.flatnonzero(np.abs(sums - 1) > allowed)).size:
        hint = f"Divide each row by its sum ({wrong.size} of {points} rows do not sum to 1)."
        raise InputError(f"sums to {sums[wrong[0]]:.4g}", file=path, row=int(wrong[0]) + 1, hint=hint)
    return values


def check_samples(path: Path, probs: Floats, samples: Floats) -> None:
    """Refuse samples (S, N, C) whose mean is not `probs` (N, C), up to the error of a mean of as many independent samples."""
    mean, std = samples.mean(axis=0, dtype=np.float64), samples.std(axis=0, dtype=np.float64)
    difference, error = float(np.abs(mean - probs).mean()), float(std.mean()) / math.sqrt(len(samples))
    if difference > 3 * error + 2 * SUM_TOLERANCE:
        raise InputError(
            f"contradicts 'probs': its mean over {len(samples)} samples differs by {difference:.3g} on average, with a "
            f"standard error of {error:.2g}",
            file=path,
            column="samples",
            hint="Write the samples whose mean 'probs' is, or leave them out.",
        )


def checked_draws(path: Path, values: Floats, target: Target, points: int) -> Floats:
    """Return the first `DRAWS` of the draws (N, S) of every test point."""
    if values.ndim != 2:
        raise InputError(f"has shape {values.shape}, needed is ({points}, {DRAWS})", file=path, column="draws")
    _check_rows(path, values, target, points)
    if values.shape[1] < DRAWS:
        problem = f"holds {values.shape[1]} draws per test point, wanted are {DRAWS:,}"
        raise InputError(problem, file=path, hint="Draw y itself, noise included, not its mean.")
    return values[:, :DRAWS]  # as many for all: the noise of the distance depends on their number


def _check_rows(path: Path, values: Floats, target: Target, points: int) -> None:
    if len(values) != points:
        turned = "Turn it: one" if values.shape[1] == points else "One"
        problem = f"holds {len(values)} rows; the task '{target.name}' has {points} test points"
        raise InputError(problem, file=path, hint=f"{turned} row per test point, in the task's order.")
    if (broken := np.flatnonzero(~np.isfinite(values).all(axis=1))).size:
        hint = f"{broken.size} of {points} rows do."
        raise InputError("holds a value that is not finite", file=path, row=int(broken[0]) + 1, hint=hint)


# ------------------------------------------------------------------------------------------------ file formats


def read_arrays(path: Path, target: Target) -> tuple[Arrays, JsonObject]:
    with _explained(path):
        head = _head(path)
        if head.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                if any(name.endswith(".npy") for name in archive.namelist()):
                    return _npz(path, archive)
                return _archive(path, archive, target), {}
        if head.startswith(b"PAR1"):
            return _columns(path, *_parquet(path)), {}
        return _text(path, check(path, named=True).read_bytes(), target), {}


def read_npz(path: Path) -> tuple[Arrays, JsonObject]:
    with _explained(path), zipfile.ZipFile(check(path, named=True)) as archive:
        return _npz(path, archive)


def read_meta(path: Path) -> JsonObject:
    """Return the metadata of an NPZ file; of any other file, and without any, an empty dictionary."""
    with _explained(path):
        if not _head(path).startswith(b"PK"):
            return {}
        with zipfile.ZipFile(path) as archive:
            return _npz(path, archive, ["meta"])[1] if "meta.npy" in archive.namelist() else {}


def _head(path: Path) -> bytes:
    if path.exists() and not (path.is_file() or path.is_dir()):  # to open a pipe would wait for its writer
        raise InputError("is a pipe or a device", file=path)
    with check(path, named=True).open("rb") as handle:
        return handle.read(4)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except IsADirectoryError:
        raise InputError("is a folder, not a submission", file=path, hint="Name submission.npz in it.") from None
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except DAMAGED_ARRAYS:
        raise InputError("is not a whole archive", file=path, hint="Write or copy it again.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None


def _npz(path: Path, archive: zipfile.ZipFile, names: Sequence[str] = ARRAYS) -> tuple[Arrays, JsonObject]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    arrays = {name: read_member(path, archive, members[name], name) for name in names if name in members}
    for info in members.values():
        archive.open(info).close()  # is refused where the name in the directory is not that before the array
    if not arrays:
        raise InputError(f"holds {', '.join(sorted(members)[:5])}", file=path, hint=HINT)
    try:
        meta = json_object(str(arrays.pop("meta", "{}")))
    except ValueError:
        raise InputError("has unreadable metadata", file=path, column="meta") from None
    for name, values in arrays.items():
        if values.dtype.kind not in "fiu":
            raise InputError(f"is of type {values.dtype}, needed are numbers", file=path, column=name)
    return arrays, meta


def _archive(path: Path, archive: zipfile.ZipFile, target: Target) -> Arrays:
    """The one table of a competition's zip that belongs to the target."""
    kind = "probs" if target.likelihood == "categorical" else "samples"
    # The development phase named CIFAR-10 `cifar10`, the evaluation `cifar`.
    known = dict.fromkeys((target.name, target.name.removeprefix("kit-"), target.competition))
    names = [f"{name}_{kind}.csv" for name in known if name]
    files = (info for info in archive.infolist() if not info.filename.startswith("__MACOSX/"))
    found = [info for info in files if Path(info.filename).name in names]
    if len(found) != 1:
        inside = ", ".join(sorted(archive.namelist())[:5]) or "nothing"
        raise InputError(f"holds {inside}", file=path, hint=f"Wanted is {' or '.join(names)}.")
    if found[0].compress_type not in METHODS:
        raise InputError("is compressed in a way that is not read", file=path, hint="Pack it again as an ordinary zip.")
    if found[0].file_size > 64 * MAX_VALUES:
        raise InputError("unpacks to more than is scored at once", file=path)
    return _text(path, archive.read(found[0]), target)


def _parquet(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    try:
        table = read_table(path)
        whole = (table[name].combine_chunks() for name in table.column_names)
        columns = [column.cast(pa.float64()).to_numpy(zero_copy_only=False) for column in whole]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowException) as error:
        problem = str(error).partition("\n")[0]
        raise InputError(f"cannot be read as columns of numbers: {problem}", file=path) from None
    return table.column_names, np.stack(columns, axis=1) if columns else np.empty((0, 0))


def _text(path: Path, content: bytes, target: Target) -> Arrays:
    """A table of numbers with a header of names, or without one."""
    if not content.strip() or b"\x00" in content[:4096] or content.startswith(b"\x80"):
        what = "is empty" if not content.strip() else "is not a table, and pickles are never loaded"
        raise InputError(what, file=path, hint=HINT)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path, hint="Save it as 'CSV UTF-8'.") from None
    first = text.lstrip().splitlines()[0]
    delimiter = next((mark for mark in ",;\t" if mark in first), None)
    cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
    named = any(map(COLUMN.fullmatch, cells))
    values = _numbers(path, text, delimiter, header=named)
    if named:
        return _columns(path, cells, values)
    if target.likelihood == "categorical":
        return {"probs": values}
    # The competition's own files stand as (draws, points) as well as (points, draws).
    return {"draws": values.T if len(values) >= 1000 > values.shape[1] else values}


def _numbers(path: Path, text: str, delimiter: str | None, *, header: bool) -> NDArray[np.float64]:
    try:
        return np.loadtxt(io.StringIO(text), delimiter=delimiter, skiprows=int(header), ndmin=2, comments=None)
    except ValueError as error:
        # "could not convert string 'x' to float64 at row 3, column 2.", "the number of columns changed from …"
        problem = str(error).partition(";")[0].partition("\n")[0].rstrip(".")
        place = re.search(r" at row (\d+)", problem)
        problem = f"is not a table of numbers: {problem[: place.start()] if place else problem}"
        hint = "Columns prob_0 … or draw_0 …, or bare numbers as numpy.savetxt writes them."
        raise InputError(problem, file=path, row=int(place[1]) + 1 if place else None, hint=hint) from None


def _columns(path: Path, names: list[str], values: NDArray[np.float64]) -> Arrays:
    """Sort named columns into one array; check that `point` counts 0 to N - 1."""
    found: dict[str, dict[int, int]] = {"prob": {}, "draw": {}}
    for place, name in enumerate(names):
        if match := COLUMN.fullmatch(name):
            if int(match[2]) in found[match[1]]:
                raise InputError("appears twice", file=path, column=name)
            found[match[1]][int(match[2])] = place
        elif name == "point" and (order := np.flatnonzero(values[:, place] != np.arange(len(values)))).size:
            problem = f"is {values[order[0], place]:g} where point {order[0]} is due"
            hint = "Sort the rows by the test points' order in the task, 0 to N - 1."
            raise InputError(problem, file=path, row=int(order[0]) + 1, column="point", hint=hint)
    arrays = {}
    for kind, places in found.items():
        if (missing := next((k for k in range(len(places)) if k not in places), None)) is not None:
            raise InputError("is missing", file=path, column=f"{kind}_{missing}")
        if places:
            arrays[f"{kind}s"] = values[:, [places[k] for k in range(len(places))]]
    if not arrays:
        raise InputError(f"has the columns {', '.join(names[:6])}", file=path, hint="Wanted are prob_0 … or draw_0 ….")
    return arrays
