"""The table and the leaderboard of Filos et al. 2019 (bdl-benchmarks): AUC and accuracy by the share *retained*.

The leaderboard's files are `leaderboard/<benchmark>/<metric>/<method>.csv` with the header `retained_data,mean,std`, shares
0.5 to 1.0, values in percent, as in OATML/bdl-benchmarks at cf3c71e. `random` refers at random the answers of the first
method: its expectation, which is the value without referral.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.inference.over_seeds import aggregate
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.papers.collect import Collection, Group, Study
from retinabench.reports.papers.layout import Block, Cell, Row, Table
from retinabench.reports.papers.retina import has, referral_columns, rows
from retinabench.reports.papers.words import in_words, slug

Floats = NDArray[np.float64]
BENCHMARKS = {"in_domain": "diabetic_retinopathy_diagnosis", "shifted": "aptos2019"}
METRICS = {"accuracy": "accuracy", "auc": "auroc"}
RETAINED = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHARES = ((0.5, "50 % retained"), (0.3, "70 % retained"), (0.0, "100 % retained"))  # as referred
KNOWN = {
    "MAP": "deterministic", "MC dropout": "mc_dropout", "MFVI": "mfvi",
    "ensemble MAP": "deep_ensemble", "ensemble MC dropout": "ensemble_mc_dropout",
}  # fmt: skip


def studies_of(collection: Collection) -> list[Study]:
    """The studies that the 2019 paper could have had: all but the Severity Shift."""
    return [s for s in collection.studies if s.groups and not s.task.startswith("severity_shift")]


def table(study: Study, collection: Collection) -> Table:
    """Table 1 of the 2019 paper, with random referral as its last row."""
    blocks = []
    for name in ("in_domain", "shifted"):
        if not has(study.groups, name):
            continue
        columns = referral_columns(name, SHARES)
        found = rows(study.groups, columns, collection.rules)
        first = found[0].cells
        without = [_unmarked(first[len(columns) - 2 + k % 2]) for k in range(len(columns))]
        found.append(Row(f"Random referral of {study.groups[0].name}", without, rule=True))
        blocks.append(Block(_block_title(study, name), columns, found))
    caption = "AUC and accuracy of the images that are retained, the certain ones. Random referral: its expectation."
    return Table(
        f"table-2019-1-{slug(study)}", "1 of the 2019 paper", f"Referral, {in_words(study)}",
        caption, blocks, study.task, study.criterion,
    )  # fmt: skip


def _block_title(study: Study, name: str) -> str:
    if study.task != "country_shift":
        return SET_LABELS[name]
    return {"in_domain": "In-domain (Kaggle in the paper)", "shifted": "Shifted (APTOS 2019 in the paper)"}[
        name
    ]


def _unmarked(cell: Cell) -> Cell:
    return Cell(cell.value, cell.error, cell.low, cell.high, cell.runs, False, cell.why)


def leaderboard(study: Study) -> dict[str, bytes]:
    """Return the leaderboard's files of a study by their path below its folder.

    mean, std: over runs, std with ddof 1; it is empty for a single run, where nothing is known of it. A share at which the
    value is undefined has no row.
    """
    files = {}
    for name, benchmark in BENCHMARKS.items():
        if not has(study.groups, name):
            continue
        for metric, ours in METRICS.items():
            taken: set[str] = set()
            for group in study.groups:
                word = _free(_word(group), taken)
                files[f"{benchmark}/{metric}/{word}.csv"] = _csv(group, name, ours, RETAINED)
            files[f"{benchmark}/{metric}/{_free('random', taken)}.csv"] = _csv(
                study.groups[0], name, ours, (1.0,) * len(RETAINED)
            )
    return files


def _csv(group: Group, name: str, metric: str, retained: Sequence[float]) -> bytes:
    lines = ["retained_data,mean,std"]
    for share, read in zip(RETAINED, retained, strict=True):
        values = at_share(group, name, metric, round(1 - read, 1))
        if np.isfinite(values).all():
            found = aggregate(100 * values)
            std = f"{found.std:.1f}" if np.isfinite(found.std) else ""
            lines.append(f"{share:.1f},{found.mean:.1f},{std}")
    return ("\n".join(lines) + "\n").encode()


def at_share(group: Group, name: str, metric: str, referred: float) -> Floats:
    """(runs,) values of a metric where this share is referred."""
    return np.array([run.get((name, f"{metric}_at_{round(100 * referred)}")) for run in group.runs])


def _word(group: Group) -> str:
    base = re.sub(r" \([0-9a-f]+\)$", "", group.base)
    known = KNOWN.get(f"ensemble {base}" if group.ensemble else base)
    return known or re.sub(r"[^a-z0-9]+", "_", group.name.lower()).strip("_") or "method"


def _free(word: str, taken: set[str]) -> str:
    """A word that no other method's file has."""
    k, free = 1, word
    while free in taken:
        k += 1
        free = f"{word}_{k}"
    taken.add(free)
    return free
