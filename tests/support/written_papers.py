"""Predictions of imagined runs as files, and the papers' outputs of them read back."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.measurements import Collection, collect
from support.fake_predictions import METHODS, population, predictions

TITLES = {
    "MAP": "MAP", "deep ensemble of 3": "ensemble of 3 MAP", "MC dropout": "MC dropout",
    "MC dropout ensemble of 3": "ensemble of 3 MC dropout", "variational": "MFVI",
}  # fmt: skip
KEYS = ("method", "set", "score")


def run(method: str, seed: int, people: dict[str, np.ndarray], **metadata: object) -> Predictions:
    """One run as `retinabench train` would write it."""
    setting = f"{sorted(METHODS).index(method):012d}"
    return predictions(method, seed, people, title=TITLES[method], setting=setting, **metadata)


def write_runs(folder: Path, runs: list[Predictions]) -> list[Path]:
    files = []
    for k, one in enumerate(runs):
        files.append(folder / f"{k:03d}.parquet")
        write_predictions(one, files[-1])
    return files


def severity_people(n_in_domain: int, n_shifted: int) -> dict[str, np.ndarray]:
    """A test set whose shifted images are all positive: grades 3 and 4."""
    people = population(n_in_domain, n_shifted)
    far = people["domain"] == "shifted"
    people["grade"] = np.where(far, 3 + people["grade"] % 2, np.minimum(people["grade"], 2))
    people["label"] = (people["grade"] >= 2).astype(int)
    return people


def gathered(folder: Path, runs: list[Predictions], rules: str = "corrected") -> Collection:
    return collect(write_runs(folder, runs), None, rules, 0, 0, 1, QUIET)


@dataclass(frozen=True)
class Written:
    """What was written, where, and what could not be."""

    folder: Path
    files: list[Path]
    lacking: list[str]

    def text(self, name: str, ending: str = ".md") -> str:
        return (self.folder / "tables" / f"{name}{ending}").read_text()

    def names(self, ending: str) -> set[str]:
        return {file.stem for file in self.files if file.suffix == ending}

    def rows(self, name: str) -> list[dict[str, str]]:
        with open(self.folder / "tables" / f"{name}.csv", newline="") as handle:
            return list(csv.DictReader(handle))

    def cells(self, name: str) -> dict[tuple[str, str, str], dict[str, str]]:
        """The cells of a table by method, set and score."""
        return {tuple(row[key] for key in KEYS): row for row in self.rows(name)}  # type: ignore[misc]
