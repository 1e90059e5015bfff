"""Several readers as the truth: a table with a column ``concept@reader`` per concept and reader.

| column | meaning |
|---|---|
| `image_id` | the image |
| `patient_id` | its patient, where patients have several images (may be left out) |
| `concept@reader` | 1, 0 or empty: that reader sees the concept, does not, or did not read the image |

Which reading is the truth of a question (`--reference`):

- **majority** (default): what more than half of the readers of the image say; a tie is unknown and never asked.
- **random**: for each image, one of its readers drawn at random, the same one for all concepts.
- **NAME**: that reader.

What the rates are about in each case, and how the disagreement of the readers enters their intervals: `questioning/reference.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import UNKNOWN, Bank
from retinabench.concepts.banks.tables import column_names, read_bank
from retinabench.core.errors import InputError, nearest
from retinabench.core.random_streams import numpy_generator

SEPARATOR = "@"
MAJORITY, RANDOM = "majority", "random"
Votes = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class ReaderPanel:
    """The readings of all samples of a bank."""

    readers: tuple[str, ...]
    votes: Votes
    truth: str

    def others(self) -> dict[str, NDArray[np.int8]]:
        """Return the other truths that the readers leave possible, by name, (n, c) each.

        For the majority: that of the panel without each of its readers. Otherwise: the readings of each reader.
        """
        if self.truth != MAJORITY:
            return {
                name: self.votes[:, :, place] for place, name in enumerate(self.readers) if name != self.truth
            }
        if len(self.readers) < 2:
            return {}
        return {
            f"without {name}": majority(np.delete(self.votes, place, axis=2))
            for place, name in enumerate(self.readers)
        }


def majority(votes: Votes) -> NDArray[np.int8]:
    """Return what more than half of the readers of each sample say: (n, c, R) -> (n, c), -1 at a tie and without readers."""
    balance = (votes == 1).sum(axis=2) - (votes == 0).sum(axis=2)
    return np.where(balance > 0, 1, np.where(balance < 0, 0, UNKNOWN)).astype(np.int8)


def random_reader(votes: Votes, generator: np.random.Generator) -> NDArray[np.int8]:
    """Return for each sample the reading of one of its readers, drawn at random among those who read it: (n, c, R) -> (n, c)."""
    read = (votes >= 0).any(axis=1)
    order = np.where(read, generator.random(read.shape), -1.0)
    return np.take_along_axis(votes, order.argmax(axis=1)[:, None, None], axis=2)[:, :, 0]


def read_reference(
    path: str | Path, concepts: Sequence[str] | None = None, truth: str | None = None, seed: int = 0
) -> tuple[Bank, ReaderPanel | None]:
    """Read a table of truth, with one or several readers."""
    names = column_names(path)
    pairs = [name.rsplit(SEPARATOR, 1) for name in names if SEPARATOR in name]
    if not pairs:
        if truth is not None:
            hint = f"Name its columns CONCEPT{SEPARATOR}READER."
            raise InputError("has one truth, so that --reference does not apply", file=path, hint=hint)
        return read_bank(path, concepts), None
    found = list(dict.fromkeys(concept for concept, _ in pairs))
    readers = tuple(dict.fromkeys(reader for _, reader in pairs))
    for concept in concepts or ():
        if concept not in found:
            raise InputError(
                f"has no column '{concept}{SEPARATOR}…'", file=path, hint=nearest(concept, found)
            )
    wanted, chosen = list(concepts or found), truth or MAJORITY
    if chosen not in (MAJORITY, RANDOM, *readers):
        raise InputError(
            f"has no reader '{chosen}'", file=path, hint=nearest(chosen, (MAJORITY, RANDOM, *readers))
        )
    columns = [f"{concept}{SEPARATOR}{reader}" for concept in wanted for reader in readers]
    table = read_bank(path, columns)  # refuses what is missing, and what is not 0, 1 or empty
    votes = table.truth.reshape(table.samples, len(wanted), len(readers))
    if chosen == MAJORITY:
        values = majority(votes)
    elif chosen == RANDOM:
        values = random_reader(votes, numpy_generator(seed, "readers"))
    else:
        values = votes[:, :, readers.index(chosen)]
    ids = [table.name(sample) for sample in range(table.samples)]
    bank = Bank(ids, wanted, np.ascontiguousarray(values), source=str(path), patient=table.patient)
    return bank, ReaderPanel(readers, votes, chosen)
