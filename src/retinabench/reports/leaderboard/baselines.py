"""The baselines that come with the package: the predictions of every method on the frozen benchmarks.

One Parquet file per benchmark in `shipped/`, made by `benchmarks/baselines.py`: a row per image, and per method and seed a column
`p:METHOD:SEED` (P(referable), the mean over posterior samples, float32) and, of methods with an uncertainty of their own,
`u:METHOD:SEED`. Labels and patients are those of the definition. Every score of the board is computed from these numbers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import FrozenBenchmark, truth_of
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard.card import Card
from retinabench.reports.leaderboard.checking import as_seed
from retinabench.reports.leaderboard.submission import Entry

HERE = Path(__file__).parent / "shipped"
KEY = b"retinabench.baselines"


@dataclass(frozen=True, eq=False)
class BaselineSeed:
    """One seed of a baseline.

    Args:
        card: What it is.
        seed: Its seed.
        predictions: Its validation and test images.
    """

    card: Card
    seed: int
    predictions: Predictions


def write_baselines(benchmark: FrozenBenchmark, baselines: Sequence[BaselineSeed]) -> Path:
    """Write the baselines of a benchmark into the package.

    Args:
        benchmark: The benchmark.
        baselines: The seeds of all methods, of the same images.

    Returns:
        The file.
    """
    first = baselines[0].predictions
    order = np.lexsort((first.image_id, first.split != "test"))
    ids = first.image_id[order]
    columns: dict[str, Any] = {"image_id": ids, "split": first.split[order]}
    cards: dict[str, Card] = {}
    for one in baselines:
        rows = np.argsort(one.predictions.image_id)
        place = rows[np.searchsorted(one.predictions.image_id[rows], ids)]
        if not np.array_equal(one.predictions.image_id[place], ids):
            raise InputError(f"{one.card.name}, seed {one.seed}, predicts other images")
        cards[one.card.name] = one.card
        columns[f"p:{one.card.name}:{one.seed}"] = one.predictions.prob[place].astype(np.float32)
        if (own := one.predictions.uncertainty) is not None:
            columns[f"u:{one.card.name}:{one.seed}"] = own[place].astype(np.float32)
    about = json.dumps([card.model_dump(mode="json") for card in cards.values()], sort_keys=True)
    table = pa.table(columns).replace_schema_metadata({KEY: about.encode()})
    sink = io.BytesIO()
    numbers = [name for name in columns if name[:2] in ("p:", "u:")]
    pa.parquet.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["split"],
        use_byte_stream_split=numbers,
        write_statistics=False,
    )
    write_bytes(HERE / f"{benchmark.name}.parquet", sink.getvalue())
    return HERE / f"{benchmark.name}.parquet"


@cache
def baselines_of(name: str) -> tuple[Entry, ...]:
    """Return the baselines of a benchmark, empty where none come with the package.

    Args:
        name: The benchmark.

    Returns:
        One entry per method, in the order of the file.
    """
    file = HERE / f"{name}.parquet"
    if not file.is_file():
        return ()
    table, truth = pyarrow.parquet.read_table(file), truth_of(name)
    ids = table["image_id"].to_numpy().astype(np.str_)
    split = table["split"].to_numpy().astype(np.str_)
    rows = np.searchsorted(truth.image_id, ids)
    entries = []
    for content in json.loads(table.schema.metadata[KEY]):
        card = Card(**content)
        prefix = f"p:{card.name}:"
        seeds = []
        for column in (column for column in table.column_names if column.startswith(prefix)):
            own = f"u:{column[2:]}"
            one = Predictions(
                ids,
                truth.label[rows],
                np.asarray(table[column], np.float64),
                truth.grade[rows],
                truth.patient_id[rows],
                truth.domain[rows],
                split,
                np.asarray(table[own], np.float64) if own in table.column_names else None,
            )
            seeds.append(as_seed(one, card.title, int(column.removeprefix(prefix))))
        entries.append(Entry(card, "baseline", {name: tuple(seeds)}))
    return tuple(entries)
