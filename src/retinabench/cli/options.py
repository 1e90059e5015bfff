"""Options that several verbs share, and what their help says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from retinabench.cli.application import argument, flag, option, with_options
from retinabench.core.errors import InputError
from retinabench.data.registry import TASKS
from retinabench.methods.registry import METHODS

if TYPE_CHECKING:
    from retinabench.core.progress import Progress
    from retinabench.experiments.engines.scheduler import JobEngine
    from retinabench.predictions.table import Predictions


READING, COMPUTING = "How files are read", "How it is computed"
Out = Annotated[Path, option("--out", "FOLDER", "Folder to write into.")]
Seed = Annotated[int, option("--seed", "N", "Seed of everything random.", min=0, rich_help_panel=COMPUTING)]
Silent = Annotated[
    bool, flag("--quiet", "-q", help="No progress, only results and errors.", rich_help_panel=COMPUTING)
]
Workers = Annotated[
    int | None,
    option("--workers", "N", "Processes; default: one per core.", min=1, rich_help_panel=COMPUTING),
]
Threads = Annotated[
    int | None, option("--workers", "N", "Threads; default: one per core.", min=1, rich_help_panel=COMPUTING)
]
Readers = Annotated[
    int | None,
    option(
        "--readers",
        "N",
        "Processes that read images ahead; default: none on a CPU, up to eight for a GPU.",
        min=0,
        rich_help_panel=COMPUTING,
    ),
]
Device = Annotated[str, option("--device", "DEVICE", "auto, cpu, cuda or cuda:N.", rich_help_panel=COMPUTING)]
Rules = Annotated[
    Literal["corrected", "published"],
    option(
        "--rules", "RULES", "corrected: ours; published: as the released Retina Benchmark, faults included."
    ),
]
Uncertainty = Annotated[
    str,
    option(
        "--uncertainty",
        "NAME",
        "What orders the referral: auto, own, total, epistemic, aleatoric, variance, max_probability, margin.",
    ),
]
Threshold = Annotated[
    str,
    option(
        "--threshold",
        "THRESHOLD",
        "From which probability on an image counts as referable: 0.3, youden, sensitivity=.85@validation, "
        "specificity=.9@validation; default: above 0.5.",
    ),
]
Json = Annotated[
    Path | None,
    option("--json", "FILE", "Write everything as JSON; -: to standard output, and nothing else there."),
]
MOST_REPLICATES = 1_000_000
Bootstrap = Annotated[
    int, option("--bootstrap", "N", "Replicates for the intervals; 0: none.", min=0, max=MOST_REPLICATES)
]

# Of the verbs that train.
Data = Annotated[Path, option("--data", "FOLDER", "Prepared folder.")]
Shifted = Annotated[
    Path | None, option("--shifted", "FOLDER", "A second prepared folder, to test on as the shifted domain.")
]
Config = Annotated[
    str | None,
    option(
        "--config", "NAME|FILE", "TOML file, or a preset such as demo/map; settings left out have defaults."
    ),
]
Overrides = Annotated[
    list[str] | None, argument("KEY=VALUE", "key=value, such as method.rate=0.2 or optimizer.epochs=20.")
]
Task = Annotated[str | None, option("--task", "TASK", f"One of: {', '.join(TASKS)}.")]
Method = Annotated[str | None, option("--method", "METHOD", f"One of: {', '.join(METHODS)}.")]
Model = Annotated[
    str | None,
    option(
        "--model", "NETWORK", "Network: one of ours, timm:NAME, or your own function package.module:function."
    ),
]
OwnModel = Annotated[
    str | None,
    option(
        "--model",
        "FUNCTION",
        "Where the network is a user's function: package.module:function, whose code then runs.",
    ),
]

# Of the verbs that compute many runs.
RunEngine = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Processes of this machine, or a Ray cluster.", rich_help_panel=COMPUTING),
]
Address = Annotated[
    str | None,
    option(
        "--address",
        "ADDRESS",
        "Of a running Ray cluster; default: one of this machine.",
        rich_help_panel=COMPUTING,
    ),
]
Parallel = Annotated[
    int | None,
    option("--parallel", "N", "Runs at a time; default: as many as fit.", min=1, rich_help_panel=COMPUTING),
]
Cpus = Annotated[float, option("--cpus", "X", "Cores of one run, on Ray.", min=0, rich_help_panel=COMPUTING)]
Gpus = Annotated[
    float,
    option(
        "--gpus",
        "X",
        "GPUs of one run; 0.5: two runs share one; 2: two train it together.",
        min=0,
        rich_help_panel=COMPUTING,
    ),
]
Storage = Annotated[
    str | None,
    option(
        "--storage",
        "URL",
        "Where a cluster's runs meet: a shared folder or an fsspec URL.",
        rich_help_panel=COMPUTING,
    ),
]


@dataclass(frozen=True)
class Computing:
    """Where many runs are computed, as the options say."""

    name: RunEngine = "local"
    parallel: Parallel = None
    address: Address = None
    cpus: Cpus = 1.0
    gpus: Gpus = 0.0
    storage: Storage = None
    device: Device = "auto"

    def engine(self, progress: Progress, readers: int | None = None) -> JobEngine:
        """Return the engine; nothing is started before it has jobs. readers: processes of each run that read images."""
        from retinabench.experiments.engines.engine import make_engine

        return make_engine(
            self.name, parallel=self.parallel, device=self.device, address=self.address, cpus=self.cpus, gpus=self.gpus,
            storage=self.storage, progress=progress, readers=readers,
        )  # fmt: skip

    def precision(self) -> Literal["bfloat16"] | None:
        """Return the precision of runs whose settings name none."""
        from retinabench.experiments.engines.engine import precision_of

        return precision_of(self.name, self.device, self.gpus)


HERE = Computing()
"""Where a verb that is called as a function computes."""

computes_runs = with_options(Computing, "computing")
"""Gives a verb the options of `Computing`, which it gets as its argument `computing`."""


# Of the verbs of `fidelity`.
Target = Annotated[str, option("--task", "TASK", "A target: a name of `retinabench fidelity tasks`.")]
TargetFolder = Annotated[
    Path | None, option("--data", "FOLDER", "The target's data, where they do not come with the package.")
]
Chains = Annotated[int, option("--chains", "N", "Number of chains; fewer than 4 cannot pass.", min=1)]
BurnIn = Annotated[int, option("--burn-in", "N", "Transitions that adapt the step and are dropped.", min=1)]
Keep = Annotated[int, option("--keep", "N", "Transitions of each chain that count.", min=8)]

# Of the verbs that read predictions files.
Columns = Annotated[
    list[str] | None,
    option(
        "--column",
        "NAME=COLUMN",
        "NAME=COLUMN of the file, such as label=y_true; may be repeated.",
        rich_help_panel=READING,
    ),
]
Softmax = Annotated[
    bool,
    flag(
        "--softmax",
        help="prob_0, prob_1 … are the probabilities of classes, not samples.",
        rich_help_panel=READING,
    ),
]
Grades = Annotated[
    bool,
    flag(
        "--grades",
        help="The classes are the grades 0 to 4: P(referable) = P(grade >= 2).",
        rich_help_panel=READING,
    ),
]
ReferableFrom = Annotated[
    str | None,
    option(
        "--referable-from",
        "GRADE",
        "Lowest referable grade, default 2; label: the file's label stands, whatever the grade.",
        rich_help_panel=READING,
    ),
]
Methods = Annotated[
    list[str] | None,
    option(
        "--method",
        "METHOD",
        "Name of the method: once, or once for each file. Files of one are seeds.",
        rich_help_panel=READING,
    ),
]
ModelSeeds = Annotated[
    list[int] | None,
    option("--model-seed", "N", "Seed of the model, once for each file.", min=0, rich_help_panel=READING),
]


@dataclass(frozen=True)
class FileReader:
    """Reads predictions files as the options say: `reader.read(paths)`."""

    column: Columns = None
    softmax: Softmax = False
    grades: Grades = False
    referable_from: ReferableFrom = None
    method: Methods = None
    model_seed: ModelSeeds = None
    unlabelled: bool = False
    ungradable: bool = False

    def read(self, paths: Sequence[Path]) -> list[Predictions]:
        """Return the predictions of files; a run folder stands for the file in it."""
        return list(self.each(paths))

    def each(self, paths: Sequence[Path]) -> Iterator[Predictions]:
        """Read one file after the other, as `read` does."""
        from retinabench.predictions.io import find_files, read_predictions

        files = find_files(paths)
        methods = _for_each("--method", self.method, len(files), once=True)
        seeds = _for_each("--model-seed", self.model_seed, len(files), once=len(files) == 1)
        lowest = self.referable_from
        if lowest is not None and lowest not in ("1", "2", "3", "4", "label"):
            raise InputError(f"--referable-from {lowest} is no grade", hint="Give 1, 2, 3, 4 or label.")
        for file, method, seed in zip(files, methods, seeds, strict=True):
            yield read_predictions(
                file,
                columns=_columns(self.column or ()),
                softmax=self.softmax,
                grades=self.grades,
                referable_from=lowest if lowest in (None, "label") else int(lowest),  # type: ignore[arg-type]
                method=method,
                seed=seed,
                unlabelled=self.unlabelled,
                ungradable=self.ungradable,
            )


PLAIN = FileReader()
"""Reads files without options; what a verb that is called as a function has."""

reads_predictions = with_options(FileReader, "reader")
"""Gives a verb the options of `FileReader`, which it gets as its argument `reader`."""


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = (part.strip() for part in pair.partition("="))
        if not (name and equals and column):
            raise InputError(f"--column {pair} is not NAME=COLUMN", hint="For example --column label=y_true.")
        if name in columns:
            raise InputError(f"--column {name} is given twice", hint="Give each name one column.")
        columns[name] = column
    return columns


def _for_each(option: str, values: Sequence[Any] | None, files: int, *, once: bool) -> Sequence[Any]:
    if not values:
        return [None] * files
    if once and len(values) == 1:
        return [values[0]] * files
    if len(values) != files:
        raise InputError(f"{option} is given {len(values)} times for {files} files", hint="Give it per file.")
    return values
