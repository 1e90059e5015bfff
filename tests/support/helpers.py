"""Small real things for tests: a prepared data set of easy pictures, and runs that take seconds."""

import json
import signal
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from retinabench.core.files import write_bytes, write_json
from retinabench.data.dataset import Records
from retinabench.data.easy_images import write_easy_data
from retinabench.data.prepared import write_shard
from retinabench.experiments.conformance import TINY as TINY_WORDS
from retinabench.methods.registry import METHODS

TINY = list(TINY_WORDS)
make_prepared = write_easy_data


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def hear_interrupts() -> None:
    """Let a child hear Ctrl-C (`preexec_fn`): what a shell runs in the background inherits a deaf ear for it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def write_files(folder: Path, rows: list[dict[str, object]]) -> None:
    """Write a prepared folder's table of original files; every row names its `image_id`, the rest may be left out."""
    blank = {"source": "", "sha256": "", "bytes": 0, "width": 0, "height": 0, "status": "ok", "reason": ""}
    full = [blank | row for row in rows]
    columns = {name: [row[name] for row in full] for name in ("image_id", *blank)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "files.parquet")


def make_retinas(folder: Path, records: Records, pictures: np.ndarray) -> Path:
    """Write a prepared folder of given rows and pictures (N, S, S, 3), with no table of files."""
    make_prepared(folder)
    write_shard(folder / "images-00000.npy", pictures)
    write_bytes(folder / "records.parquet", records.to_parquet())
    (folder / "files.parquet").unlink(missing_ok=True)
    about = json.loads((folder / "dataset.json").read_text())
    write_json(folder / "dataset.json", about | {"name": "retinas", "size": pictures.shape[1]})
    return folder


def short_chain(name, gradients=100):
    """Settings of a method that samples by full-batch gradients: a tenth of the passes over the images, and of the samples. The
    chains of MILE are so short then that it learns by many samples alone."""
    if METHODS[name].Config.has_learning_rate:
        return []
    return (
        ["method.gradients=100", "method.samples=30"]
        if name == "mile"
        else [f"method.gradients={gradients}", "method.samples=10"]
    )


def quick(name, gradients=100):
    """Settings that spare a method work: those of `short_chain`, and two members of an ensemble of runs."""
    return ["method.members=2"] if name == "ensemble" else short_chain(name, gradients)


# Of each family the fast tests ask one method of a residual network, and these of `own_network.py`, which is smaller.
OF_SMALL_NETWORKS = (
    "hmc", "nuts", "mile", "pathfinder", "vogn", "mfvi", "radial", "rank1", "anchored", "sequential_anchored", "multiswag",
    "feature_scores", "sgld", "sghmc",
)  # fmt: skip


def fast(names, chosen):
    """The names as parameters of a test; all but the chosen ones are slow."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names]
