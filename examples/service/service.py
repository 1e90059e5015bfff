"""Three years of a screening service, by the commands alone: certified, applied, watched, alarmed, certified again.

    python examples/service/service.py --out service --every 7

1,500 simulated patients return every year with both eyes. In month 14 the camera changes and the probabilities with it; disease
becomes slowly more frequent; from month 26 on, a software fault makes the model call most of the diseased images of site B healthy, and
sure of it; 3 % of the images cannot be graded. The folder holds what a hospital would have: predictions, certificates to be signed, lists
of actions, a page of the monitor. What every command says is printed, and returned as one dictionary per command.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
from pathlib import Path

import numpy as np

from retinabench.cli.main import run

COLUMNS = ("image_id", "patient_id", "label", "prob", "gradable", "date", "site", "split")
START = np.datetime64("2027-01-01", "D")
CAMERA, FAULT, MONTHS, YEAR = 14, 26, 36, 365
GOALS = ("--goal", "selective_risk=.1", "--goal", "sensitivity=.8", "--confidence", ".9")


class Service:
    """The patients of a service, and the model that reads their images."""

    def __init__(self, patients: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.severity = self.rng.normal(-1.0, 1.0, patients)
        self.day = self.rng.integers(0, YEAR, patients)  # of the year, on which a patient comes
        self.site = self.rng.choice(["A", "B", "C"], patients, p=[0.45, 0.2, 0.35])

    def visits(self, first: int, last: int, name: str = "", split: str = "test") -> list[tuple[object, ...]]:
        """Return the images of the days from `first` to before `last` since the start: two of every patient who comes."""
        rows = []
        for day in range(first, last):
            month = day * 12 // YEAR
            for patient in np.flatnonzero(self.day == day % YEAR):
                for eye in ("left", "right"):
                    z = self.severity[patient] + 0.005 * max(month, 0) + self.rng.normal(0, 0.4)
                    label = self.rng.random() < 1 / (1 + np.exp(-4 * z))
                    logit = 4 * z + self.rng.normal(0, 0.5)
                    if month >= CAMERA:
                        logit = 0.5 * logit - 1.5
                    if month >= FAULT and self.site[patient] == "B" and label and self.rng.random() < 0.8:
                        logit = -6.0
                    gradable = self.rng.random() > 0.03
                    prob = f"{1 / (1 + np.exp(-logit)):.6f}" if gradable else ""
                    image = f"{name}p{patient}-{day}-{eye}"
                    rows.append(
                        (
                            image,
                            f"{name}p{patient}",
                            int(label),
                            prob,
                            int(gradable),
                            START + day,
                            self.site[patient],
                            split,
                        )
                    )
        return rows


def write(path: Path, rows: list[tuple[object, ...]], columns: tuple[str, ...] = COLUMNS) -> Path:
    """Write some columns of the rows."""
    with path.open("w", newline="", encoding="utf-8") as handle:
        places = [COLUMNS.index(name) for name in columns]
        csv.writer(handle).writerows([columns, *([row[k] for k in places] for row in rows)])
    return path


def say(*words: object) -> dict[str, object]:
    """Run a command as a scheduler would; return its words, its exit code, and the first sentence that it prints."""
    printed = io.StringIO()
    given = [str(word) for word in words]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = run(given)
    line = " ".join(printed.getvalue().split("\n\n")[0].split())
    first = line.partition(". ")[0]
    print(f"{given[0]:9}exit {code}  {Path(given[1]).name:16} {first}", flush=True)
    return {"command": given[0], "file": Path(given[1]).name, "code": code, "first": first}


def certify(
    out: Path, name: str, validation: list[tuple[object, ...]], test: list[tuple[object, ...]]
) -> dict[str, object]:
    """Certify a threshold: one half of the patients chooses it, the other half tries it."""
    table = write(out / f"{name}.csv", [*((*row[:-1], "validation") for row in validation), *test])
    return say("transfer", table, *GOALS, "--out", out / name, "-q")


def serve(out: Path, patients: int = 1500, every: int = 30, seed: int = 0) -> list[dict[str, object]]:
    """Run the service; return what every command said, with its month."""
    out.mkdir(parents=True, exist_ok=True)
    before = [Service(patients, seed + k).visits(-YEAR, 0, name) for k, name in ((1, "v"), (2, "t"))]
    found = [{"month": 0, **certify(out, "first", *before)}]
    service, certificate, since = Service(patients, seed), "first", 0
    seen: list[tuple[object, ...]] = []
    for day in range(0, MONTHS * YEAR // 12, every):
        month = day * 12 // YEAR
        rows = service.visits(day, day + every)
        if not rows:
            continue
        today = write(out / f"{START + day}.csv", rows, ("image_id", "patient_id", "prob", "gradable"))
        found.append(
            {
                "month": month,
                **say(
                    "apply", today, "--certificate", out / certificate / "transfer.json", "--out", out / "lists", "-q"
                ),
            }
        )
        seen += rows  # experts have read all images by the end of the month, and their labels arrive
        if month == (day + every) * 12 // YEAR:
            continue
        follow_up = write(
            out / f"follow-up-{month:02d}.csv", [row for row in seen if (row[5] - START).astype(int) >= since]
        )
        page = out / f"monitor-{month:02d}"
        words = (
            "--certificate",
            out / certificate / "transfer.json",
            "--within",
            "site",
            "--out",
            page,
            "--json",
            page / "monitor.json",
            "-q",
        )
        found.append({"month": month, **say("monitor", follow_up, *words)})
        if month == CAMERA + 3:  # the alarm was heard: a new threshold for the new camera
            start = CAMERA * YEAR // 12 + 1
            new = [row for row in seen if (row[5] - START).astype(int) >= start]
            half = [row for row in new if int(str(row[1])[1:]) % 2 == 0]
            found.append({"month": month, **certify(out, "second", half, [row for row in new if row not in half])})
            certificate, since = "second", day + every
    return [*found, {"month": MONTHS, **say("status", out)}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("service"))
    parser.add_argument("--patients", type=int, default=1500)
    parser.add_argument("--every", type=int, default=7, help="days between two lists")
    chosen = parser.parse_args()
    serve(chosen.out, chosen.patients, chosen.every)
