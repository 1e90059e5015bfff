"""Scores, tables and the figure of docs/results.md from what `benchmarks/real.py` computed.

    python benchmarks/real_findings.py --out results-real

writes `findings.md` and `findings.json` below `--out`, and docs/images/real-damage.png. Every mean is over runs (and kinds of damage), and
every interval a 95 % percentile interval over the same bootstrap replicates of patients for all methods, so that differences between
methods are paired.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from real import EVERYWHERE, FOLDS, METHODS, POOLED, cell_of, damaged_parts, division_of, entropy

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.calibration_error import calibration_error_interval, calibration_error_of
from retinabench.metrics.inference.bootstrap import cluster_codes, replicate_weight
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import score_rows
from retinabench.metrics.sorted_images import Cases, Weighted
from retinabench.reports.toolkit.figures import canvas, light_grid, save

Floats = NDArray[np.float64]
NAMES = {
    "auroc": "AUROC", "accuracy": "accuracy", "nll": "NLL", "referral_accuracy_area": "referral accuracy",
    "referral_auroc_area": "referral AUROC", "failure_auroc": "failure AUROC",
}  # fmt: skip
REPLICATES = 300
PAGE = Path(__file__).resolve().parents[1]


class Study:
    """The predictions of all methods, and what they are scored on."""

    def __init__(self, out: Path) -> None:
        self.records = open_prepared(out / "data").records
        self.label = (self.records.grade >= 2).astype(np.int8)
        self.patient, patients = cluster_codes(self.records.patient_id)
        weights = [replicate_weight(self.patient, patients, 0, k) for k in range(REPLICATES)]
        self.weights = np.stack([np.ones(len(self.label)), *weights])
        test, every = self.records.split == "test", np.arange(len(self.label))
        cells, rows = [np.full(len(every), "")], [every]
        for damage, _, some in damaged_parts(self.records.split):
            cells.append(np.full(len(some), cell_of(damage.kind, damage.strength)))
            rows.append(some)
        self.cell, self.row = np.concatenate(cells), np.concatenate(rows)
        of_test = test[self.row]
        self.sets: dict[str, list[NDArray[np.intp]]] = {
            "in domain": [np.flatnonzero(self.cell == "")],
            "damaged": [np.flatnonzero(self.cell == cell_of(kind, EVERYWHERE)) for kind in KINDS],
            "strength 0": [np.flatnonzero((self.cell == "") & of_test)],
        }
        for strength in STRENGTHS:
            self.sets[f"strength {strength}"] = [
                np.flatnonzero((self.cell == cell_of(kind, strength)) & of_test) for kind in KINDS
            ]
        # Method -> set -> (runs, parts, scores, 1 + replicates).
        self.found: dict[str, dict[str, Floats]] = {}
        self.runs: dict[str, dict[int, Mapping[str, Floats]]] = {}
        self.calibration: dict[str, dict[str, tuple[float, float, float]]] = {}
        for label in METHODS:
            stem = f"{label.replace(' ', '-')}-"
            files = {
                int(file.stem.removeprefix(stem)): file for file in (out / "heads").glob(f"{stem}[0-9]*.npz")
            }
            self.runs[label] = {number: dict(np.load(files[number])) for number in sorted(files)}
        self.runs = {label: found for label, found in self.runs.items() if found}
        self._pool()
        for label, found in self.runs.items():
            self.found[label] = {name: self._scored(found, parts) for name, parts in self.sets.items()}
            self.calibration[label] = {
                name: self._calibrated(found, self.sets[name]) for name in ("in domain", "damaged")
            }

    def _pool(self) -> None:
        """Ensembles of the seeds that have the same folds; equally many members in each."""
        for label in POOLED:
            groups: dict[int, list[Mapping[str, Floats]]] = {}
            for number, one in self.runs.get(label, {}).items():
                groups.setdefault(division_of(number), []).append(one)
            members = min((len(group) for group in groups.values()), default=0)
            if members > 1:
                self.runs[f"ensemble of {members} {label}"] = {
                    k: {name: np.mean([one[name] for one in group[:members]], axis=0) for name in group[0]}
                    for k, group in groups.items()
                }

    def _cases(self, one: Mapping[str, Floats], at: NDArray[np.intp]) -> Cases:
        own = one["own"][at]
        uncertainty = entropy(one["mean"][at]) if np.isnan(own).any() else own
        rows = self.row[at]
        return Cases(self.label[rows], one["mean"][at], uncertainty, patient=self.patient[rows])

    def _scored(self, found: Mapping[int, Mapping[str, Floats]], parts: Sequence[NDArray[np.intp]]) -> Floats:
        table = np.full((len(found), len(parts), len(NAMES), REPLICATES + 1), np.nan)
        for r, one in enumerate(found.values()):
            for p, at in enumerate(parts):
                cases = self._cases(one, at)
                batch = Batch(cases, self.weights[:, self.row[at]][:, cases.order])
                for s, name in enumerate(NAMES):
                    table[r, p, s] = score_rows(SCORES[name], batch)
        return table

    def _calibrated(
        self, found: Mapping[int, Mapping[str, Floats]], parts: Sequence[NDArray[np.intp]]
    ) -> tuple[float, float, float]:
        """Debiased calibration error of P(referable) with the ends of its closed-form interval, means over runs and parts."""
        values = []
        for one in found.values():
            for at in parts:
                weighted = Weighted(self._cases(one, at), np.ones(len(at)))
                values.append([calibration_error_of(weighted), *calibration_error_interval(weighted)])
        mean = np.mean(values, axis=0)
        return float(mean[0]), float(mean[1]), float(mean[2])

    def draws(self, method: str, name: str, score: str) -> Floats:
        """(1 + replicates,) the score, mean over runs and parts; the first is the value itself."""
        return np.asarray(np.nanmean(self.found[method][name][:, :, list(NAMES).index(score)], axis=(0, 1)))


def interval(draws: Floats, digits: int = 3) -> str:
    """0.960 [0.941, 0.972]."""
    low, high = np.nanpercentile(draws[1:], [2.5, 97.5])
    return f"{draws[0]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(study: Study, name: str) -> str:
    """The scores of every method on one set."""
    head = ["method", *list(NAMES.values())[:3], "calibration error", *list(NAMES.values())[3:5]]
    lines = [head, ["---"] * len(head)]
    for method in study.found:
        value, low, high = study.calibration[method][name]
        scores = [interval(study.draws(method, name, score)) for score in list(NAMES)[:5]]
        lines.append([method, *scores[:3], f"{value:.3f} [{low:.3f}, {high:.3f}]", *scores[3:]])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def against_map(study: Study, name: str) -> str:
    """Paired differences from MAP."""
    shown = ("auroc", "nll", "referral_accuracy_area", "referral_auroc_area")
    head = ["method", *(NAMES[score] for score in shown)]
    lines = [head, ["---"] * len(head)]
    for method in study.found:
        if method == "MAP":
            continue
        cells = []
        for score in shown:
            draws = study.draws(method, name, score) - study.draws("MAP", name, score)
            low, high = np.nanpercentile(draws[1:], [2.5, 97.5])
            mark = "**" if low > 0 or high < 0 else ""
            cells.append(f"{mark}{draws[0]:+.3f} [{low:+.3f}, {high:+.3f}]{mark}")
        lines.append([method, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_kind(study: Study, method: str = "MAP") -> str:
    """AUROC and accuracy of one method by kind and strength, on the official test images."""
    head = ["damage", *(f"AUROC at {s}" for s in STRENGTHS), *(f"failure AUROC at {s}" for s in (1, 3, 5))]
    lines = [head, ["---"] * len(head)]
    for k, kind in enumerate(KINDS):

        def mean(strength: int, score: str, k: int = k) -> float:
            part = study.found[method][f"strength {strength}"][:, k, list(NAMES).index(score), 0]
            return float(part.mean())

        cells = [f"{mean(s, 'auroc'):.3f}" for s in STRENGTHS] + [
            f"{mean(s, 'failure_auroc'):.3f}" for s in (1, 3, 5)
        ]
        lines.append([f"`{kind}`", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims(study: Study) -> str:
    """The numbers behind the claims, one line each."""
    lines = []

    def add(what: str, draws: Floats) -> None:
        lines.append(f"- {what}: {interval(draws)}")

    for name in ("in domain", "damaged"):
        add(f"MAP, {name}: failure AUROC", study.draws("MAP", name, "failure_auroc"))
        gain = study.draws("MAP", name, "referral_accuracy_area") - study.draws("MAP", name, "accuracy")
        add(f"MAP, {name}: referral accuracy above accuracy (random referral: 0)", gain)
    scores = list(NAMES)
    clean = study.found["MAP"]["in domain"][:, 0].mean(axis=0)
    for k, kind in enumerate(KINDS):
        damaged = study.found["MAP"]["damaged"][:, k].mean(axis=0)
        for score in ("auroc", "accuracy", "referral_accuracy_area"):
            at = scores.index(score)
            add(f"MAP, {kind} at 3 less undamaged: {score}", damaged[at] - clean[at])
        add(f"MAP, {kind} at 3: failure AUROC", damaged[scores.index("failure_auroc")])
        worst = study.found["MAP"]["strength 5"][:, k, scores.index("failure_auroc")].mean(axis=0)
        add(f"MAP, {kind} at 5, 103 images: failure AUROC", worst)
    single = [method for method in study.found if not method.startswith("ensemble of")]
    before = np.stack([study.draws(method, "in domain", "auroc") for method in single])
    after = np.stack([study.draws(method, "damaged", "referral_accuracy_area") for method in single])
    places = [np.argsort(np.argsort(one, axis=0), axis=0) for one in (before, after)]
    same = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(places[0].T, places[1].T, strict=True)])
    add("rank correlation of methods, AUROC in domain and referral accuracy under damage", same)
    for method in single:
        missed = []
        for one in study.runs[method].values():
            for at in study.sets["damaged"]:
                cases = study._cases(one, at)
                certain = np.arange(len(at)) < len(at) // 2
                weights = study.weights[:, study.row[at]][:, cases.order] * (cases.label & cases.error)
                missed.append((weights * certain).sum(axis=1) / weights.sum(axis=1))
        add(
            f"{method}, damaged: share of the missed referable images among the more certain half",
            np.nanmean(missed, axis=0),
        )
    sensitivity = SCORES["sensitivity_at_specificity_80"].function
    for name in ("in domain", "damaged"):
        values = []
        for one in study.runs["MAP"].values():
            for at in study.sets[name]:
                cases = study._cases(one, at)
                values.append(
                    [
                        sensitivity(Weighted(cases, w))
                        for w in study.weights[:101, study.row[at]][:, cases.order]
                    ]
                )
        add(f"MAP, {name}: sensitivity at specificity 0.80", np.mean(values, axis=0))
    return "\n".join(lines)


def figure(study: Study, path: Path, chosen: Sequence[str]) -> None:
    """Scores of some methods by strength of the damage."""
    drawing, axes = canvas(720, 250, 1, 3)
    colours = ("#444444", "#c26a1b", "#2a6f97", "#7a4fa3", "#3d8f5f", "#b03a48")
    for axis, score in zip(axes[0], ("auroc", "nll", "referral_accuracy_area"), strict=True):
        for colour, method in zip(colours, chosen, strict=False):
            values = [study.draws(method, f"strength {s}", score)[0] for s in (0, *STRENGTHS)]
            axis.plot((0, *STRENGTHS), values, color=colour, label=method, marker="o", markersize=3)
        axis.set_xlabel("strength of the damage")
        axis.set_title(NAMES[score], fontsize=11)
        light_grid(axis)
    axes[0][0].legend(frameon=False, fontsize=8)
    save(drawing, path, ("png",), dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"))
    parser.add_argument("--figure", type=Path, default=PAGE / "docs" / "images" / "real-damage")
    options = parser.parse_args(arguments)
    study = Study(options.out)
    counts = {method: len(found) for method, found in study.runs.items()}
    parts = [
        f"runs: {json.dumps(counts)}, folds {FOLDS}",
        "## In domain", table(study, "in domain"), "## Under damage of strength 3", table(study, "damaged"),
        "## Differences from MAP, in domain", against_map(study, "in domain"),
        "## Differences from MAP, under damage of strength 3", against_map(study, "damaged"),
        "## MAP by kind and strength", by_kind(study), "## Claims", claims(study),
    ]  # fmt: skip
    write_bytes(options.out / "findings.md", "\n\n".join(parts).encode())
    content = {
        method: {
            name: {score: [float(x) for x in _summary(study.draws(method, name, score))] for score in NAMES}
            for name in study.sets
        }
        for method in study.found
    }
    write_json(options.out / "findings.json", content)
    shown = [
        m for m in ("MAP", "VBLL", "Laplace (evidence)", "IVON", "cyclical SGHMC", "DDU") if m in study.found
    ]
    figure(study, options.figure, shown)


def _summary(draws: Floats) -> tuple[float, ...]:
    return (draws[0], *np.nanpercentile(draws[1:], [2.5, 97.5]))


if __name__ == "__main__":
    main()
