"""A submission to the leaderboard: its card and the predictions of every seed, checked as a whole.

    my-method/
      card.toml                                    what the method is, where its code is, what it cost and which data it saw
      retinabench-drawn-1-mini/seed-0.parquet      one file per seed, in any format of `read_predictions`
      retinabench-drawn-1-mini/seed-1.parquet
      submission.json                              written by `retinabench submit pack`: the hash of every file

A submission is an untrusted folder: links, other files, large files and names that lead out of it are refused. A file is compared
with the truth that comes with the definition. Whether settings were chosen on the test images cannot be seen in probabilities; what
a file says of it in its metadata can, and is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, ValidationError, field_validator

from retinabench.core.errors import InputError, check, nearest, sha256, visible
from retinabench.core.files import json_text, write_bytes
from retinabench.core.settings import Frozen, first_problem
from retinabench.data.frozen import definition
from retinabench.data.frozen.definition import BenchmarkTruth, FrozenBenchmark, benchmark_names, frozen_benchmark
from retinabench.predictions.io import parquet_bytes, read_predictions
from retinabench.predictions.table import Predictions

CARD, MANIFEST, SCHEMA = "card.toml", "submission.json", "retinabench.submission/1"
MOST_SEEDS, MOST_CARD_BYTES, MOST_MANIFEST_BYTES, MOST_BYTES = 100, 64 * 1024, 2**20, 64 * 2**20
SEED_FILE = re.compile(r"seed-([0-9]{1,9})\.(parquet|csv|npz)")
CHOICES = re.compile(
    r"tun|fit|calibrat|select|chos|choice|threshold|temperature|criteri|stopp|optimi[sz]", re.IGNORECASE
)
ON_TEST = re.compile(r"(?<![a-z])test(?![a-z])", re.IGNORECASE)
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4000, strip_whitespace=True)]
Kind = Literal["baseline", "submission", "file", "trivial"]
"""Where an entry comes from: the package, a submission, a bare file; or it is no method, and shown without a rank."""


class Card(Frozen):
    """What a submission says of itself."""

    name: str = Field(max_length=60)  # for folders and links: small letters, digits and hyphens
    title: Line  # what tables call the method
    method: Text  # what it does
    authors: Line
    code: str  # https://…; empty for what comes with this package
    paper: str = ""  # https://…, or empty
    compute: Line  # on what, and for how long
    hours: float = Field(ge=0, le=1e7)  # of one seed
    data: tuple[Line, ...] = Field(default=(), max_length=50)  # beside the training images of the benchmark
    pretrained: bool  # whether any weights come from other data
    ensemble: int = Field(1, ge=1, le=100_000)  # networks that are pooled in one prediction
    deterministic: bool = False  # whether one seed is enough
    tuned_on: Literal["nothing", "training", "validation"]
    images_sha256: dict[str, str] = Field(default_factory=dict, max_length=50)  # `retinabench prepare` prints them

    @field_validator("name")
    @classmethod
    def _slug(cls, given: str) -> str:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given):
            raise ValueError("use small letters, digits and single hyphens, such as deep-ensemble-5")
        return given

    @field_validator("title", "authors", "compute", "method", "data")
    @classmethod
    def _visible(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (given,) if isinstance(given, str) else given:
            if visible(text) != text:
                raise ValueError("holds control characters, or characters that change the order of letters")
        return given

    @field_validator("code", "paper")
    @classmethod
    def _address(cls, given: str) -> str:
        if given and not is_address(given):
            raise ValueError("is not an address that begins with https://")
        return given


def is_address(text: str) -> bool:
    if len(text) > 500 or re.search(r"[\s<>\"'`\\\x00-\x20\x7f]", text) or visible(text) != text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def read_card(folder: Path) -> Card:
    file = folder / CARD
    try:
        if check(file).stat().st_size > MOST_CARD_BYTES:
            raise InputError(f"is larger than {MOST_CARD_BYTES // 1024} KB", file=file)
        tree = tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise InputError("holds no card.toml", file=folder, hint="examples/card.toml is one.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is not TOML: {error}", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from None
    if tree.get("tuned_on") == "test":
        problem = "tuned_on is the test images: a method that saw their labels is not ranked"
        raise InputError(problem, file=file, hint="Choose settings on the training or validation images.")
    try:
        card = Card(**tree)
    except ValidationError as error:
        raise first_problem(error, file, lambda path: [] if path else list(Card.model_fields)) from None
    if not card.code:
        raise InputError("code is empty: a method without public code cannot be checked", file=file)
    return card


def card_toml(card: Card) -> str:
    lines, tables = [], []
    for key, value in card.model_dump().items():
        if isinstance(value, dict):
            pairs = [f"{_quoted(name)} = {_quoted(of)}" for name, of in sorted(value.items())]
            tables += [f"\n[{key}]", *pairs] if pairs else []
        elif isinstance(value, tuple):
            lines.append(f"{key} = [{', '.join(map(_quoted, value))}]")
        elif isinstance(value, str):
            lines.append(f"{key} = {_quoted(value)}")
        else:
            lines.append(f"{key} = {str(value).lower() if isinstance(value, bool) else value!r}")
    return "\n".join([*lines, *tables]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'


def check_size(file: Path) -> None:
    if file.is_file() and (size := file.stat().st_size) > MOST_BYTES:
        problem = f"has {size / 2**20:,.0f} MB; a submission's file may have {MOST_BYTES / 2**20:.0f}"
        raise InputError(problem, file=file, hint="Store the mean over the posterior samples.")


def checked(predictions: Predictions, benchmark: FrozenBenchmark) -> Predictions:
    """Return the test images in the order of the truth, then the validation images, with the mean over posterior samples.

    Grades and patients are those of the truth. Raises `InputError` where the file is not complete or not of this benchmark.
    """
    truth = definition.truth_of(benchmark.name)
    rows = _rows_of(predictions, truth, benchmark)
    for column in ("label", "domain"):
        ours, theirs = getattr(truth, column)[rows], getattr(predictions, column)
        if (differ := np.flatnonzero(ours != theirs)).size:
            row = int(differ[0])
            problem = (
                f"is '{theirs[row]}' for image '{predictions.image_id[row]}', which is '{ours[row]}' in "
                f"{benchmark.name} ({len(differ):,} images differ)"
            )
            hint = "Every row states label, domain and split as `retinabench prepare` wrote them."
            raise _refused(predictions, problem, hint, row, column)
    _check_splits(predictions, truth, rows, benchmark)
    for key, value in _leaves(predictions.metadata):
        if CHOICES.search(key) and ON_TEST.search(value):
            problem = f"says in its metadata that {key[:80]} is {value[:80]!r}: a setting was chosen on the test images"
            raise _refused(predictions, problem, "Choose it on the validation images.")
    if np.array_equal(predictions.prob, predictions.label):
        raise _refused(predictions, "every probability is the image's label", "Store what the model predicts.")
    order = np.lexsort((rows, truth.split[rows] != "test"))
    own = predictions.uncertainty
    known = {name: getattr(truth, name)[rows[order]] for name in ("image_id", "label", "grade", "patient_id", "domain")}
    known |= {"probs": predictions.prob[order], "split": predictions.split[order]}
    about = {key: value for key, value in predictions.metadata.items() if key in ("method", "title", "seed")}
    uncertainty = None if own is None else own[order]
    return Predictions(**known, uncertainty=uncertainty, metadata=about, source=predictions.source)


def _rows_of(predictions: Predictions, truth: BenchmarkTruth, benchmark: FrozenBenchmark) -> NDArray[np.intp]:
    order = np.minimum(np.searchsorted(truth.image_id, predictions.image_id), len(truth.image_id) - 1)
    if (strange := np.flatnonzero(truth.image_id[order] != predictions.image_id)).size:
        row = int(strange[0])
        problem = f"'{predictions.image_id[row][:80]}' is not an image of {benchmark.name} ({len(strange):,} are not)"
        raise _refused(predictions, problem, "Use the ids of `retinabench prepare`.", row, "image_id")
    return order


def _check_splits(
    predictions: Predictions, truth: BenchmarkTruth, rows: NDArray[np.intp], benchmark: FrozenBenchmark
) -> None:
    of_test = truth.split[rows] == "test"
    wrongly = of_test != (predictions.split == "test")
    if (truth.split == "validation").any():  # elsewhere each task takes its own part of the training images
        wrongly |= truth.split[rows] == "train"
    if (wrong := np.flatnonzero(wrongly)).size:
        row = int(wrong[0])
        problem = (
            f"is '{predictions.split[row]}' for image '{predictions.image_id[row]}' of the "
            f"{truth.split[rows[row]]} split of {benchmark.name} ({len(wrong):,} rows are wrong)"
        )
        hint = "Predict the test images, and the validation images if you like; no training images."
        raise _refused(predictions, problem, hint, row, "split")
    lacking = np.setdiff1d(truth.test, rows[of_test])
    if lacking.size:
        first = truth.image_id[lacking[0]]
        problem = (
            f"lacks {len(lacking):,} of the {len(truth.test):,} test images of {benchmark.name}, such as '{first}'"
        )
        raise _refused(predictions, problem, "Every test image of every set must be predicted.")


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}".strip("."))
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _leaves(value, path)
    else:
        yield path, tree if isinstance(tree, str) else json.dumps(tree, default=str)


def as_seed(predictions: Predictions, title: str, seed: Any) -> Predictions:
    return replace(predictions, metadata={"method": title, "title": title, "seed": seed})


def _refused(
    predictions: Predictions, problem: str, hint: str, row: int | None = None, column: str | None = None
) -> InputError:
    number = None if row is None else row + 1
    return InputError(problem, file=predictions.source, row=number, column=column, hint=hint)


@dataclass(frozen=True, eq=False)
class Submission:
    """A method as it is handed in: its card, where it comes from, benchmark -> checked predictions of its seeds, and notes."""

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


def find_submissions(folder: Path) -> list[Path]:
    if (folder / CARD).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CARD}"))


def read_submission(folder: Path) -> Submission:
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
        seeds = ((seed, checked(read_predictions(file), benchmark)) for seed, file in files)
        found[part.name] = tuple(as_seed(one, card.title, seed) for seed, one in seeds)
        _check_copies(found[part.name], card)
    if not found:
        hint = f"Put them into a folder {' or '.join(benchmark_names())}."
        raise InputError("holds no predictions", file=folder, hint=hint)
    return Submission(card, "submission", found, tuple(notes))


def pack(folder: Path, out: Path) -> Path:
    """Check a submission and write it as the folder of a pull request below `out`, with the same bytes whenever it is repeated.

    Predictions are written as Parquet: the mean over the posterior samples, without other columns than the benchmark's.
    """
    entry = read_submission(folder)
    target = out / entry.card.name
    files = {CARD: card_toml(entry.card).encode()}
    for benchmark, seeds in sorted(entry.predictions.items()):
        for one in seeds:
            files[f"{benchmark}/seed-{one.metadata['seed']}.parquet"] = parquet_bytes(one)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    manifest = json_text({"schema": SCHEMA, "key": entry.key, "sha256": sums}).encode()
    if (target / MANIFEST).is_file() and check(target / MANIFEST).read_bytes() != manifest:
        hint = "Delete it, or change the name on the card."
        raise InputError("holds another submission of this name", file=target, hint=hint)
    if target.resolve() == folder.resolve():
        raise InputError("would be written over itself", file=folder, hint="Choose another --out.")
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    strangers = [name for name in there - {*files, MANIFEST} if not Path(name).name.startswith(".")]
    if strangers:
        problem = f"holds '{min(strangers)}', which is not part of the submission"
        raise InputError(problem, file=target, hint="Delete the folder.")
    for name, content in {**files, MANIFEST: manifest}.items():
        write_bytes(target / name, content)
    return target


def _parts(folder: Path) -> Iterator[Path]:
    """Yield the folders of benchmarks; anything else but card and manifest is refused."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            raise InputError("is a link", file=path, hint="Put the file itself there.")
        if path.is_dir():
            if path.name not in benchmark_names():
                hint = nearest(path.name, benchmark_names())
                raise InputError(f"is named after no benchmark: '{path.name[:60]}'", file=folder, hint=hint)
            yield path
        elif path.name not in (CARD, MANIFEST):
            raise InputError(f"holds '{path.name[:80]}', which is not part of a submission", file=folder)


def _seed_files(part: Path, benchmark: FrozenBenchmark, card: Card) -> list[tuple[int, Path]]:
    found: dict[int, Path] = {}
    for path in sorted(part.iterdir()):
        match = SEED_FILE.fullmatch(path.name)
        if path.is_symlink() or not path.is_file() or not match:
            hint = "Name the files seed-0.parquet, seed-1.csv, …"
            raise InputError(f"holds '{path.name[:80]}'", file=part, hint=hint)
        if int(match[1]) in found:
            raise InputError(f"holds seed {int(match[1])} twice", file=part, hint="Leave one of them.")
        check_size(path)
        found[int(match[1])] = path
    needed = 1 if card.deterministic else benchmark.seeds
    if not needed <= len(found) <= MOST_SEEDS:
        problem = f"holds {len(found)} seeds; {benchmark.name} asks for {needed} to {MOST_SEEDS}"
        hint = "A method without randomness says deterministic = true on its card, and hands in one."
        raise InputError(problem, file=part, hint=hint)
    return sorted(found.items())


def _check_copies(seeds: tuple[Predictions, ...], card: Card) -> None:
    for k, one in enumerate(seeds):
        for other in seeds[:k]:
            if np.array_equal(one.image_id, other.image_id) and np.array_equal(one.prob, other.prob):
                problem = f"holds the same predictions as seed {other.metadata['seed']}"
                hint = "Train each seed anew, or say deterministic = true and hand in one."
                raise InputError(problem, file=one.source, hint=hint)
    if card.deterministic and len(seeds) > 1:
        problem = f"{len(seeds)} seeds of a method that its card calls deterministic"
        raise InputError(problem, file=seeds[1].source)


def _check_images(card: Card, benchmark: FrozenBenchmark, folder: Path) -> list[str]:
    stated = card.images_sha256.get(benchmark.name)
    if stated is None:
        return [f"{benchmark.name}: the card does not state images_sha256, so its images are not verified"]
    if stated != benchmark.listing_sha256:
        problem = f"images_sha256 of {benchmark.name} is '{stated[:16]}…', not '{benchmark.listing_sha256[:16]}…'"
        hint = f"Make the images with: retinabench prepare {benchmark.name} --out DIR"
        raise InputError(problem, file=folder / CARD, hint=hint)
    return []


def _check_manifest(folder: Path) -> None:
    file = folder / MANIFEST
    if not file.exists() and not file.is_symlink():
        return
    try:
        if file.is_symlink() or file.stat().st_size > MOST_MANIFEST_BYTES:
            raise InputError("is a link, or larger than 1 MB", file=file)
        content: Any = json.loads(check(file).read_text("utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError("another schema")
        sums = {str(name): str(digest) for name, digest in content["sha256"].items()}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"is not a list of hashes ({error})", file=file, hint="Pack it again.") from None
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    if differing := sorted(there ^ set(sums)):
        what = "is not listed in it" if differing[0] in there else "is missing"
        raise InputError(f"'{differing[0][:80]}' {what}", file=file, hint="Pack the submission again.")
    for name, digest in sums.items():
        check_size(folder / name)
        if sha256(check(folder / name)) != digest:
            raise InputError("was changed after the submission was packed", file=folder / name, hint="Pack it again.")
