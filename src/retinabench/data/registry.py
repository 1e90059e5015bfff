"""The registries of data sets and tasks.

A new data set is one definition in TOML (`label_tables.py` states the keys) where it is image files and tables of labels, else one
module that ends with ``DATASET = ImageDataset(...)``, and one name in `DATASETS`; a new task is one `Division` in `splits` and one
name in `TASKS`. In another package, an entry point of the group takes the place of the name. Nothing is imported before it is
used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinabench.core.registry import Registry

if TYPE_CHECKING:
    from retinabench.data.splits import Division

# Its entries are `image_dataset.ImageDataset`s, a type that rests on modules that look data sets up here.
DATASETS: Registry[Any] = Registry(
    "retinabench.datasets",
    "data set",
    {
        "synthetic": "retinabench.data.datasets.synthetic:DATASET",
        "eyepacs": "datasets/eyepacs.toml",
        "aptos": "datasets/aptos.toml",
        "idrid": "retinabench.data.datasets.idrid:DATASET",
        "messidor": "datasets/messidor.toml",
        **{name: f"datasets/{name}.toml" for name in ("brset", "mbrset", "ddr", "deepdrid", "rfmid", "odir", "airogs")},
        "retinamnist": "retinabench.data.datasets.medmnist:DATASET",
        "folder": "retinabench.data.datasets.folder:DATASET",
    },
    definitions=(Path(__file__).parent, "retinabench.data.label_tables:dataset"),
)

TASKS: Registry[Division] = Registry(
    "retinabench.tasks",
    "task",
    {
        "country_shift": "retinabench.data.splits:COUNTRY_SHIFT",
        "in_domain": "retinabench.data.splits:IN_DOMAIN",
        "severity_shift": "retinabench.data.splits:SEVERITY_SHIFT",
        "severity_shift_published": "retinabench.data.splits:SEVERITY_SHIFT_PUBLISHED",
        "severity_shift_mild": "retinabench.data.splits:SEVERITY_SHIFT_MILD",
        "severity_shift_mild_published": "retinabench.data.splits:SEVERITY_SHIFT_MILD_PUBLISHED",
        "hold_out_2019": "retinabench.data.splits:HOLD_OUT_2019",
    },
)
