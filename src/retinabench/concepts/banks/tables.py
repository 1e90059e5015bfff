"""The images of a bank and their truth; tables of concepts: one column per concept, and labels.

Several readers as the truth are a column ``concept@reader`` per concept and reader: 1, 0, or empty where that reader did not read the
image (docs/concepts.md). How their disagreement enters the intervals: `questioning/readers.py`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from scipy.special import expit, logit

from retinabench.concepts.banks.bank import UNKNOWN, Bank
from retinabench.concepts.banks.definition import BankDefinition, LabelTable
from retinabench.concepts.banks.masks import collected, drawn, one_file, patient_of, read_coco, read_mask_files
from retinabench.core.errors import QUIET, InputError, Progress, check, nearest
from retinabench.core.random_streams import numpy_generator
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import ConceptImages
from retinabench.data.datasets import idrid_lesions
from retinabench.data.labels import Row
from retinabench.data.labels import read_table as read_table_label_table
from retinabench.predictions.check import Check
from retinabench.predictions.columns import check_count, check_size
from retinabench.predictions.io import csv_columns, csv_dialect, open_parquet, read_table, unreadable
from retinabench.predictions.values import as_text, combined, not_a_number

PATIENT = "patient_id"
COLUMNS = 8  # of a Parquet file that are in memory at a time, in addition to the values


def read_bank(path: str | Path, concepts: Sequence[str] | None = None) -> Bank:
    """Read the truth: image_id, patient_id where samples belong together, and a column of 0, 1 or nothing (unknown) for each concept."""
    path = Path(path)

    def truth_of(name: str, values: NDArray[Any]) -> NDArray[np.int8]:
        if values.dtype.kind == "i" and 0 <= values.min() <= values.max() <= 1:
            return values.astype(np.int8, copy=False)
        unknown = np.isnan(values)
        wrong = (values != 0) & (values != 1) & ~unknown
        if wrong.any():
            problem = f"is {values[wrong.argmax()]:g}, not 0, 1 or empty"
            hint = "Name the columns that are concepts with --concepts."
            raise InputError(problem, file=path, row=int(wrong.argmax()) + 1, column=name, hint=hint)
        truth = np.full(len(values), UNKNOWN, np.int8)
        np.copyto(truth, values, casting="unsafe", where=~unknown)
        return truth

    image_id, names, truth = read_concepts(path, concepts, truth_of, np.int8)
    return Bank(image_id, names, truth, source=str(path), patient=read_patients(path))


def read_patients(path: Path) -> NDArray[np.str_] | None:
    """Return the column ``patient_id`` of a table of truth, (n,) text; None where it has none."""
    with _explained(path):
        parquet, names = _columns(path)
        if PATIENT not in names:
            return None
        if names.count(PATIENT) > 1:
            raise InputError("appears twice in the header", file=path, column=PATIENT)
        table = read_table(path, [PATIENT]) if parquet else _csv(path, [], PATIENT)
    check = Check(str(path))
    return check.identified(PATIENT, check.text(PATIENT, _text(table[PATIENT])))[0]


def column_names(path: str | Path) -> list[str]:
    path = Path(path)
    with _explained(path):
        return _columns(path)[1]


def read_concepts(
    path: Path,
    concepts: Sequence[str] | None,
    convert: Callable[[str, NDArray[Any]], NDArray[Any]] = lambda name, values: values,
    dtype: type[np.generic] | None = None,
) -> tuple[NDArray[np.str_], list[str], NDArray[Any]]:
    """Read ``image_id`` and one numeric column per concept from a CSV or Parquet file."""
    with _explained(path):
        parquet, names = _columns(path)
        wanted = _wanted(path, names, concepts)
        table = None if parquet else _csv(path, wanted)
        ids = read_table(path, ["image_id"])["image_id"] if table is None else table["image_id"]
    check_size(path, len(ids), len(wanted))
    if len(ids) == 0:
        raise InputError("has no rows", file=path, hint="Write one row per image.")
    check = Check(str(path))
    image_id, _ = check.identified("image_id", check.text("image_id", _text(ids)))
    # Columns are written, and most often read, as a whole.
    single = parquet and all(
        pa.types.is_float32(open_parquet(path).schema_arrow.field(name).type) for name in wanted if dtype is None
    )
    values = np.empty((len(wanted), len(ids)), dtype or (np.float32 if single else np.float64)).T
    for first in range(0, len(wanted), COLUMNS):
        some = wanted[first : first + COLUMNS]
        with _explained(path):
            part = read_table(path, some) if table is None else table
        for place, name in enumerate(some, start=first):
            values[:, place] = convert(name, _numbers(path, name, part[name].combine_chunks()))
    return image_id, wanted, values


def _text(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return ids as an array of text, or of whatever they are."""
    whole = pa.types.is_string(column.type) and not column.null_count
    # NumPy drops zero bytes at the end of text. A column of objects keeps them, and they are then refused.
    if not whole or pa.compute.any(pa.compute.match_substring(column, "\0")).as_py():
        return np.asarray(column.to_pylist(), object)
    return as_text(combined(column), int(pa.compute.max(pa.compute.utf8_length(column)).as_py() or 0))


def _numbers(path: Path, name: str, column: pa.Array) -> NDArray[Any]:
    as_they_are = pa.types.is_integer(column.type) or pa.types.is_float32(column.type)
    try:
        if not as_they_are or column.null_count:
            column = column.cast(pa.float64())
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise not_a_number(path, name, column) from None
    if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
        raise InputError("is infinite", file=path, row=int(infinite.argmax()) + 1, column=name)
    return values


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _columns(path: Path) -> tuple[bool, list[str]]:
    """Whether a file is Parquet, which its first bytes tell, and the names of its columns."""
    with open(check(path), "rb") as handle:
        parquet = handle.read(4) == b"PAR1"
    names = open_parquet(path).schema_arrow.names if parquet else csv_dialect(path)[2]
    check_count(path, names)
    return parquet, names


def _wanted(path: Path, names: list[str], concepts: Sequence[str] | None) -> list[str]:
    if missing := [f"'{name}'" for name in ("image_id", *(concepts or ())) if name not in names]:
        has = ", ".join(name[:40] for name in names[:12]) + (", …" if len(names) > 12 else "")
        hint = f"Rename or add it; the file has: {has}"
        raise InputError(f"has no column {', '.join(missing)}", file=path, hint=hint)
    wanted = list(concepts) if concepts else [name for name in names if name not in ("image_id", PATIENT)]
    for name in ("image_id", *wanted):
        if names.count(name) > 1:
            raise InputError("appears twice in the header", file=path, column=name)
        if wanted.count(name) > 1:
            raise InputError("is named twice as a concept", file=path, column=name, hint="Name it once.")
    if not wanted:
        raise InputError("has no column but image_id", file=path, hint="Add one per concept.")
    return wanted


def _csv(path: Path, wanted: list[str], name: str = "image_id") -> pa.Table:
    encoding, delimiter, names = csv_dialect(path)
    places = [names.index(one) for one in (name, *wanted)]
    table = csv_columns(path, encoding, delimiter, len(names), places, places[1:], ("", "nan", "NaN"))
    return table.rename_columns([name, *wanted])


def read_images(
    definition: BankDefinition,
    source: Path | None,
    *,
    images: int | None = None,
    seed: int = 0,
    progress: Progress = QUIET,
) -> ConceptImages:
    """Return the images of a bank and their truth, below the folder or zip `source`, or drawn."""
    if definition.synthetic is not None:
        if source is not None:
            raise InputError("synthetic retinas are rendered, not read", hint="Leave --source out.")
        number = definition.synthetic.images if images is None else images
        return drawn(number, seed=seed, population=definition.synthetic.population)
    if images is not None:
        raise InputError("--images is for synthetic data only", hint="Leave it out.")
    if source is None:
        raise InputError("the bank is read from a folder or zip", hint="Name it with --source DIR.")
    if definition.idrid is not None:
        return idrid_lesions.read(source)
    files = open_files(source)
    if definition.table is not None:
        return read_label_table(definition, definition.table, files)
    if definition.masks is not None:
        return read_mask_files(definition, definition.masks, files, progress)
    assert definition.coco is not None
    return read_coco(definition, definition.coco, files)


def read_label_table(definition: BankDefinition, layout: LabelTable, files: Files) -> ConceptImages:
    name, base = one_file(files, layout.file)
    where = files.where(name)
    needed = [*layout.images, *layout.texts, *([layout.patient] if layout.patient else []), *layout.where]
    wanted = definition.words
    columns = [] if layout.texts else [word for words in wanted.values() for word in words]
    read = read_table_label_table(files, name, [*needed, *columns])
    rows = [row for row in read if all(row[1][column] in cells for column, cells in layout.where.items())]
    if not rows:
        raise InputError("holds no row that the bank reads", file=where, hint="See `where` of its definition.")
    if not wanted and not layout.texts:
        wanted = {column: [column] for column in rows[0][1] if column and column not in [*needed, *layout.ignored]}
    if not wanted:
        raise InputError("names no concepts", file=where, hint="Add [concepts] to the definition of the bank.")
    names, patients, truth = [], [], []
    for row in rows:
        for place, column in enumerate(layout.images):
            label = _truth(row, wanted, layout, place, where)
            if label is None:
                continue
            image = base + layout.path.replace("{image}", row[1][column].lstrip("/"))
            if image not in files:
                raise InputError(f"its image '{image}' is missing", file=where, row=row[0], column=column)
            names.append(image)
            patients.append(row[1][layout.patient] if layout.patient else patient_of(image, layout.patient_pattern))
            truth.append(label)
    return collected(definition, files, names, list(wanted), np.array(truth, np.int8), patients)


def _truth(row: Row, wanted: dict[str, list[str]], layout: LabelTable, place: int, where: str) -> list[int] | None:
    """Return the truth of one image, None where it is left out."""
    if not layout.texts:
        meanings = [[_meaning(row, word, layout, where) for word in words] for words in wanted.values()]
        # A concept of several columns is present in one of them, absent in all, or unknown.
        return [1 if 1 in of_concept else min(of_concept) for of_concept in meanings]
    parts = re.split(f"[{re.escape(layout.separators)}]", row[1][layout.texts[place]])
    items = [item.strip().casefold() for item in parts if item.strip()]
    if not items or any(word.casefold() in item for item in items for word in layout.leave_out):
        return None
    return [int(any(word.casefold() in item for item in items for word in words)) for words in wanted.values()]


def _meaning(row: Row, column: str, layout: LabelTable, where: str) -> int:
    number, cells = row
    for meaning, words in ((1, layout.present), (0, layout.absent), (UNKNOWN, layout.unknown)):
        if cells[column] in words:
            return meaning
    known = f"Present is {', '.join(layout.present)}, absent {', '.join(layout.absent)}"
    hint = f"{known}; the definition of the bank may name others, and unknown ones."
    raise InputError(f"is '{cells[column]}', which has no meaning", file=where, row=number, column=column, hint=hint)


SEPARATOR = "@"
MAJORITY, RANDOM, LATENT = TRUTHS = "majority", "random", "dawid-skene"
FEWEST = 5  # readers who tell of other panels: of fewer, all may share a habit that half of others do not have
PANELS = 400  # drawn, from which the error between panels is estimated
Votes = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class ReaderPanel:
    """The readings of all samples of a bank."""

    readers: tuple[str, ...]
    votes: Votes
    truth: str

    def drawn(self) -> NDArray[np.int64]:
        """Return panels like this one, (`PANELS`, R) counts of its readers in each: the Bayesian bootstrap's forecast.

        References:
            Rubin, The Bayesian bootstrap, Annals of Statistics 9:130 (1981).
        """
        count = len(self.readers)
        generator = numpy_generator(0, "panels", count)
        return generator.multinomial(count, generator.dirichlet(np.ones(count), PANELS))

    def shares(self, concept: int, counts: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return (B, n) the majority of B panels, counts (B, R): 1, 0, one half at a tie, and NaN where none of them read the sample."""
        votes = self.votes[:, concept].T
        balance = counts @ ((votes == 1).astype(np.int64) - (votes == 0))
        return np.where(counts @ (votes >= 0).astype(np.int64), (np.sign(balance) + 1) / 2, np.nan)


def majority(votes: Votes, generator: np.random.Generator) -> NDArray[np.int8]:
    """Return what most readers of each sample say, a coin at a tie: (n, c, R) -> (n, c), -1 without readers.

    Without the coin an even panel would leave out the hard images, and a model would seem better than a single reader finds it.
    """
    balance = (votes == 1).sum(axis=-1) - (votes == 0).sum(axis=-1)
    coin = generator.integers(0, 2, balance.shape)
    return np.where((votes >= 0).any(axis=-1), np.where(balance == 0, coin, balance > 0), UNKNOWN).astype(np.int8)


def latent_truth(votes: Votes) -> NDArray[np.int8]:
    """Return the likelier truth of each sample by Dawid and Skene's model: (n, R) -> (n,), -1 without readers.

    Readers err independently given the truth, each with his own sensitivity and specificity; EM from the share of yes. Half an
    observation is added to each count, so that no rate is 0 or 1.

    References:
        Dawid and Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm, Applied Statistics 28:20 (1979).
    """
    yes, no = (np.asarray(votes == sign, np.float64) for sign in (1, 0))
    read = (votes >= 0).any(axis=1)
    present = yes.sum(axis=1) / np.maximum((votes >= 0).sum(axis=1), 1)
    for _ in range(1000):
        prevalence = (present[read].sum() + 0.5) / (read.sum() + 1)
        sensitivity = (present @ yes + 0.5) / (present @ (yes + no) + 1)
        specificity = ((1 - present) @ no + 0.5) / ((1 - present) @ (yes + no) + 1)
        odds = yes @ np.log(sensitivity / (1 - specificity)) + no @ np.log((1 - sensitivity) / specificity)
        previous, present = present, expit(logit(prevalence) + odds)
        if np.abs(present - previous).max(initial=0.0) < 1e-9:
            break
    return np.where(read, present > 0.5, UNKNOWN).astype(np.int8)


def random_reader(votes: Votes, generator: np.random.Generator) -> NDArray[np.int8]:
    """Return for each sample the reading of one of its readers, drawn at random among those who read it: (n, c, R) -> (n, c)."""
    read = (votes >= 0).any(axis=1)
    order = np.where(read, generator.random(read.shape), -1.0)
    return np.take_along_axis(votes, order.argmax(axis=1)[:, None, None], axis=2)[:, :, 0]


def read_reference(
    path: str | Path, concepts: Sequence[str] | None = None, truth: str | None = None, seed: int = 0
) -> tuple[Bank, ReaderPanel | None]:
    pairs = [name.rsplit(SEPARATOR, 1) for name in column_names(path) if SEPARATOR in name]
    if not pairs:
        if truth is not None:
            hint = f"Name its columns CONCEPT{SEPARATOR}READER."
            raise InputError("has one truth, so that --reference does not apply", file=path, hint=hint)
        return read_bank(path, concepts), None
    found = list(dict.fromkeys(concept for concept, _ in pairs))
    readers = tuple(dict.fromkeys(reader for _, reader in pairs))
    for concept in concepts or ():
        if concept not in found:
            raise InputError(f"has no column '{concept}{SEPARATOR}…'", file=path, hint=nearest(concept, found))
    wanted, chosen = list(concepts or found), truth or MAJORITY
    if chosen not in (*TRUTHS, *readers):
        raise InputError(f"has no reader '{chosen}'", file=path, hint=nearest(chosen, (*TRUTHS, *readers)))
    columns = [f"{concept}{SEPARATOR}{reader}" for concept in wanted for reader in readers]
    table = read_bank(path, columns)  # refuses what is missing, and what is not 0, 1 or empty
    votes = table.truth.reshape(table.samples, len(wanted), len(readers))
    if chosen == MAJORITY:
        values = majority(votes, numpy_generator(seed, "ties"))
    elif chosen == RANDOM:
        values = random_reader(votes, numpy_generator(seed, "readers"))
    elif chosen == LATENT:
        values = np.stack([latent_truth(votes[:, place]) for place in range(len(wanted))], axis=1)
    else:
        values = votes[:, :, readers.index(chosen)]
    bank = Bank(table.ids, wanted, np.ascontiguousarray(values), source=str(path), patient=table.patient)
    return bank, ReaderPanel(readers, votes, chosen)
