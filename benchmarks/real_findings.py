"""Scores, tables and the figure of docs/results.md from what `real.py` computed.

    python benchmarks/real_findings.py --out results-real               # writes the tables, the figure and findings.json
    python benchmarks/real_findings.py --out results-real --add         # adds the fine-tuned networks to real_finetuned.npz
    python benchmarks/real_findings.py --out results-real --recorded    # what the tables say by strength; trains no network

Every mean is over runs (and kinds of damage), and every interval a 95 % percentile interval over bootstrap replicates that draw patients,
divisions and the seeds of each division, with replacement. All methods have the same replicates, so that differences are paired. Of one run
an interval holds the variation of the patients alone; two divisions tell little about the variation between divisions.

`real_finetuned.npz` records what the fine-tuned networks predict for the official test images: `names` (R,) method and number, such as
``MC-dropout-0``; `position` (M,) places of the images in the order of `real.cells`; `mean` (R, M) P(referable); `own/NAME` (M,) the own
uncertainty of a method that has one, in place of the entropy. `--recorded` takes the fine-tuned networks from there.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from real import EVERYWHERE, METHODS, POOLED, REPEATS, TTA, cells, division_of
from toolkit import parse

from retinabench.core.files import atomic_write, write_bytes, write_json
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import json_content
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS
from retinabench.metrics.calibration import calibration_error_interval, calibration_error_of
from retinabench.metrics.image_sets import binary_entropy
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, Weighted, cluster_codes, replicate_weight
from retinabench.reports.toolkit.figures import canvas, light_grid, save

Floats = NDArray[np.float64]
Rows = list[list[str]]  # of a table, the head first
NAMES = {
    "auroc": "AUROC", "accuracy": "accuracy", "nll": "NLL", "referral_accuracy_area": "referral accuracy",
    "referral_auroc_area": "referral AUROC", "failure_auroc": "failure AUROC",
}  # fmt: skip
SHOWN = ("auroc", "nll", "referral_accuracy_area")  # where a table or figure has no room for more
REPLICATES, MOST_SEEDS = 300, 20
MAIN = ("in domain", "damaged")
TITLES = {"damaged": f"damage of strength {EVERYWHERE}"}  # of sets, where not their names
TRUNKS = {"": "heads", ", fine-tuned": "finetuned", ", from scratch": "scratch"}  # suffix of a method -> folder
DRAWN = ("MAP", "VBLL", "Laplace (evidence)", "IVON", "tuned SGLD", "DDU")  # by strength of the damage
COLOURS = ("#444444", "#c26a1b", "#2a6f97", "#7a4fa3", "#3d8f5f", "#b03a48")
BY_STRENGTH, FROM_MAP = "real-damage-by-strength", "real-differences-from-map"  # names of tables
BETWEEN = "real-differences-between-trunks"
PAGE = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("real_finetuned.npz")


def test_positions(split: NDArray[np.str_]) -> NDArray[np.intp]:
    """Return the places of the official test images in the order of `real.cells`; `split` is that of each image (N,)."""
    return np.flatnonzero(split[np.concatenate([cell.rows for cell in cells(split)])] == "test")


def recorded(file: Path, length: int) -> Iterator[tuple[str, dict[str, NDArray[np.float64]]]]:
    """Yield the names of a record with their columns: mean and own uncertainty (`length`,), NaN where a run has no prediction."""
    content = np.load(file, allow_pickle=False)
    for name, mean in zip(content["names"].tolist(), content["mean"], strict=True):
        found = {key: np.full(length, np.nan) for key in ("mean", "own")}
        found["mean"][content["position"]] = mean
        if f"own/{name}" in content:
            found["own"][content["position"]] = content[f"own/{name}"]
        yield name, found


def add(file: Path, folder: Path, position: NDArray[np.intp]) -> int:
    """Add the finished runs of a folder, at the places `position` (M,), to a record, in place of older ones; return how many it holds."""
    mean: dict[str, NDArray[np.float32]] = {}
    own: dict[str, NDArray[np.float32]] = {}
    if file.is_file():
        content = np.load(file, allow_pickle=False)
        mean |= dict(zip(content["names"].tolist(), content["mean"], strict=True))
        own |= {name: content[name] for name in content.files if name.startswith("own/")}
    for path in folder.glob("*.npz"):
        found = np.load(path, allow_pickle=False)
        if not np.isnan(found["mean"][position]).any():
            mean[path.stem] = found["mean"][position].astype(np.float32)
            if not np.isnan(found["own"][position]).any():
                own[f"own/{path.stem}"] = found["own"][position].astype(np.float32)
    names = sorted(mean)
    table = np.stack([mean[name] for name in names])
    with atomic_write(file) as sink:
        np.savez_compressed(sink, names=np.array(names), position=position, mean=table, **own)
    return len(names)


class Study:
    def __init__(self, out: Path, record: Path | None = None) -> None:
        self.records = open_prepared(out / "data").records
        self.label = (self.records.grade >= 2).astype(np.int8)
        self.patient, patients = cluster_codes(self.records.patient_id)
        weights = [replicate_weight(self.patient, patients, 0, k) for k in range(REPLICATES)]
        self.weights = np.stack([np.ones(len(self.label)), *weights])
        # Of a replicate: for each division drawn its own number and those of its seeds.
        self._uniform = numpy_generator(0, "divisions and seeds").random((REPLICATES, REPEATS, 1 + MOST_SEEDS))
        every = cells(self.records.split)
        damage = np.concatenate([np.full(len(cell.rows), cell.damage) for cell in every])
        self.row = np.concatenate([cell.rows for cell in every])
        of_test = self.records.split[self.row] == "test"
        self.sets: dict[str, list[NDArray[np.intp]]] = {"in domain": [np.flatnonzero(damage == "")]}
        self.sets["damaged"] = [np.flatnonzero(damage == f"{kind}-{EVERYWHERE}") for kind in KINDS]
        self.sets["strength 0"] = [np.flatnonzero((damage == "") & of_test)]
        for strength in STRENGTHS:
            damages = [f"{kind}-{strength}" for kind in KINDS]
            self.sets[f"strength {strength}"] = [np.flatnonzero((damage == one) & of_test) for one in damages]
        if record:
            self.sets = {name: parts for name, parts in self.sets.items() if name not in MAIN}
        # Method -> set -> (runs, parts, scores, 1 + replicates).
        self.found: dict[str, dict[str, Floats]] = {}
        self.runs: dict[str, dict[int, Mapping[str, Floats]]] = {}
        self.calibration: dict[str, dict[str, list[float]]] = {}
        for suffix, folder in TRUNKS.items():
            found = {file.stem: dict(np.load(file, allow_pickle=False)) for file in (out / folder).glob("*.npz")}
            if record and folder == "finetuned":
                found = dict(recorded(record, len(self.row)))
            for label in (*METHODS, TTA, "LoRA ensemble"):
                stem = f"{label.replace(' ', '-')}-"
                ends = [name.removeprefix(stem) for name in found if name.startswith(stem)]
                numbers = sorted(int(number) for number in ends if number.isdigit())
                if numbers:
                    self.runs[label + suffix] = {n: found[f"{stem}{n}"] for n in numbers}
        self._pool()
        # Method -> set -> the numbers of the runs that predicted it.
        self.numbers: dict[str, dict[str, list[int]]] = {}
        for label, runs in self.runs.items():
            self.numbers[label] = {
                name: [n for n, one in runs.items() if not np.isnan(one["mean"][np.concatenate(parts)]).any()]
                for name, parts in self.sets.items()
            }
            self.found[label] = {
                name: self._scored([runs[n] for n in numbers], self.sets[name])
                for name, numbers in self.numbers[label].items()
                if numbers
            }
            self.calibration[label] = {
                name: self._calibrated(runs.values(), self.sets[name]) for name in MAIN if name in self.found[label]
            }

    def _pool(self) -> None:
        """Ensembles of the seeds that have the same folds; equally many members in each."""
        for label in [label for label in self.runs if label.partition(",")[0] in POOLED]:
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
        uncertainty = binary_entropy(one["mean"][at]) if np.isnan(own).any() else own
        rows = self.row[at]
        return Cases(self.label[rows], one["mean"][at], uncertainty, patient=self.patient[rows])

    def _scored(self, found: Sequence[Mapping[str, Floats]], parts: Sequence[NDArray[np.intp]]) -> Floats:
        table = np.full((len(found), len(parts), len(NAMES), REPLICATES + 1), np.nan)
        for (r, one), (p, at) in product(enumerate(found), enumerate(parts)):
            cases = self._cases(one, at)
            w = Weighted(cases, self.weights[:, self.row[at]][:, cases.order])
            table[r, p] = [SCORES[name](w) for name in NAMES]
        return table

    def _calibrated(self, found: Iterable[Mapping[str, Floats]], parts: Sequence[NDArray[np.intp]]) -> list[float]:
        """Debiased calibration error of P(referable) with the ends of its closed-form interval, means over runs and parts."""
        weighted = [Weighted(self._cases(one, at), np.ones(len(at))) for one, at in product(found, parts)]
        return np.mean([[calibration_error_of(w), *calibration_error_interval(w)] for w in weighted], axis=0).tolist()

    def draws(self, method: str, name: str, score: str) -> Floats:
        """(1 + replicates,) the score, mean over parts, then over all runs or over those that a replicate draws."""
        of_run = np.nanmean(self.found[method][name][:, :, list(NAMES).index(score)], axis=1)
        groups: dict[int, list[int]] = {}
        for place, number in enumerate(self.numbers[method][name]):
            groups.setdefault(division_of(number), []).append(place)
        rows = list(groups.values())
        found = np.empty(REPLICATES + 1)
        found[0] = of_run[:, 0].mean()
        for k, uniform in enumerate(self._uniform, start=1):  # the same for all methods
            of_division = [rows[int(u * len(rows))] for u in uniform[: len(rows), 0]]
            pairs = [(group, u) for group, u in zip(of_division, uniform, strict=False)]
            drawn = [group[int(u * len(group))] for group, more in pairs for u in more[1 : 1 + len(group)]]
            found[k] = of_run[drawn, k].mean()
        return found


def summary(draws: Floats) -> list[float]:
    return [float(draws[0]), *np.nanpercentile(draws[1:], [2.5, 97.5]).tolist()]


def interval(draws: Floats, sign: str = "") -> str:
    return "{:S.3f} [{:S.3f}, {:S.3f}]".replace("S", sign).format(*summary(draws))


def cells_of(study: Study, method: str, name: str, scores: Iterable[str] = SHOWN, less: str = "") -> list[str]:
    """Scores of a method on a set with their intervals, or their differences from another method `less`."""
    others = [study.draws(less, name, one) if less else np.zeros(REPLICATES + 1) for one in scores]
    return [interval(study.draws(method, name, one) - other) for one, other in zip(scores, others, strict=True)]


def table(study: Study, name: str) -> Rows:
    lines = [["method", "runs", *list(NAMES.values())[:3], "calibration error", *list(NAMES.values())[3:5]]]
    for method in [one for one, found in study.found.items() if not trunk_of(one) and name in found]:
        value, low, high = study.calibration[method][name]
        scores = cells_of(study, method, name, list(NAMES)[:5])
        error = f"{value:.3f} [{low:.3f}, {high:.3f}]"
        lines.append([method, str(len(study.runs[method])), *scores[:3], error, *scores[3:]])
    return lines


def by_trunk(study: Study) -> Rows:
    shown = {"in domain": ("auroc", "nll", "accuracy", "referral_accuracy_area"), "damaged": SHOWN}
    titles = [f"{NAMES[s]}{', damaged' * (name == 'damaged')}" for name, scores in shown.items() for s in scores]
    lines = [["method", "trunk", "runs", *titles]]
    names = dict.fromkeys(one.removesuffix(trunk_of(one)) for one in study.found)
    for label, suffix in product(names, TRUNKS):
        if (method := label + suffix) in study.found:
            line = [label, suffix[2:] or "frozen", str(len(study.runs[method]))]
            for name, scores in shown.items():
                known = name in study.found[method]
                line += cells_of(study, method, name, scores) if known else [""] * len(scores)
            lines.append(line)
    return lines


def between_trunks(study: Study) -> Rows:
    """Paired differences of every method from itself on the frozen trunk: the same patients and divisions in each replicate."""
    lines = [["set", "method", "trunk", "runs", *(NAMES[score] for score in SHOWN)]]
    for name, method in product(study.sets, study.found):
        suffix = trunk_of(method)
        frozen = method.removesuffix(suffix)
        if suffix and name in study.found[method] and name in study.found.get(frozen, {}):
            number = str(len(study.numbers[method][name]))
            lines.append([name, frozen, suffix[2:], number, *cells_of(study, method, name, less=frozen)])
    return lines


def by_strength(study: Study) -> Rows:
    lines = [["method", "trunk", "strength", "runs", *(NAMES[score] for score in SHOWN)]]
    for method, strength in product(study.found, (0, *STRENGTHS)):
        suffix, name = trunk_of(method), f"strength {strength}"
        if name in study.found[method]:
            label, number = method.removesuffix(suffix), str(len(study.numbers[method][name]))
            lines.append([label, suffix[2:] or "frozen", str(strength), number, *cells_of(study, method, name)])
    return lines


def per_set(study: Study, names: Iterable[str], rows_of: Callable[[Study, str], Rows]) -> Rows:
    parts = [(TITLES.get(name, name), rows_of(study, name)) for name in names]
    return [["set", *parts[0][1][0]], *([title, *row] for title, rows in parts for row in rows[1:])]


def write_tables(study: Study, folder: Path) -> None:
    files = {
        "real": per_set(study, MAIN, table), FROM_MAP: per_set(study, study.sets, against_map),
        "real-damage-by-kind": by_kind(study), BY_STRENGTH: by_strength(study),
        "real-trunks": by_trunk(study), BETWEEN: between_trunks(study),
    }  # fmt: skip
    for name, rows in files.items():
        write_table(folder / f"{name}.csv", rows)


def write_table(file: Path, rows: Rows) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_bytes(file, text.getvalue().encode())


def replace_rows(file: Path, rows: Rows, keys: Sequence[str]) -> None:
    """Write rows into a table in place of those with the same values in the columns `keys`; all others stay."""
    at = [rows[0].index(key) for key in keys]
    with file.open(encoding="utf-8", newline="") as source:
        merged = {tuple(row[k] for k in at): row for row in (*csv.reader(source), *rows)}
    write_table(file, list(merged.values()))


def write_strengths(study: Study, folder: Path) -> None:
    from_map = per_set(study, study.sets, against_map)
    replace_rows(folder / f"{BY_STRENGTH}.csv", by_strength(study), ("method", "trunk", "strength"))
    replace_rows(folder / f"{FROM_MAP}.csv", from_map, ("set", "method"))
    replace_rows(folder / f"{BETWEEN}.csv", between_trunks(study), ("set", "method", "trunk"))


def trunk_of(method: str) -> str:
    return next((suffix for suffix in TRUNKS if suffix and method.endswith(suffix)), "")


def against_map(study: Study, name: str) -> Rows:
    shown = ("auroc", "nll", "referral_accuracy_area", "referral_auroc_area")
    lines = [["method", *(NAMES[score] for score in shown)]]
    for method in study.found:
        reference = f"MAP{trunk_of(method)}"
        if method == reference or reference not in study.found or name not in study.found[method]:
            continue
        differences = (study.draws(method, name, score) - study.draws(reference, name, score) for score in shown)
        lines.append([method, *(interval(one, "+") for one in differences)])
    return lines


def by_kind(study: Study, method: str = "MAP") -> Rows:
    lines = [["damage", *(f"AUROC at {s}" for s in STRENGTHS), *(f"failure AUROC at {s}" for s in (1, 3, 5))]]
    shown = [("auroc", s) for s in STRENGTHS] + [("failure_auroc", s) for s in (1, 3, 5)]
    parts = [study.found[method][f"strength {s}"][:, :, list(NAMES).index(score), 0].mean(axis=0) for score, s in shown]
    lines += [[kind, *(f"{part[k]:.3f}" for part in parts)] for k, kind in enumerate(KINDS)]
    return lines


def figure(study: Study, path: Path) -> None:
    drawing, axes = canvas(720, 470, 2, 3)
    for row, suffix in zip(axes, ("", ", fine-tuned"), strict=True):
        for axis, score in zip(row, SHOWN, strict=True):
            for colour, label in zip(COLOURS, DRAWN, strict=True):
                if f"strength {STRENGTHS[-1]}" in study.found.get(label + suffix, {}):
                    values = [study.draws(label + suffix, f"strength {s}", score)[0] for s in (0, *STRENGTHS)]
                    axis.plot((0, *STRENGTHS), values, color=colour, label=label, marker="o", markersize=3)
            axis.set_title(f"{NAMES[score]}, {suffix[2:] or 'frozen'}", fontsize=11)
            axis.tick_params(labelsize=9)
            light_grid(axis)
    for column, _ in enumerate(SHOWN):  # one scale for both trunks
        ends = [axes[row][column].get_ylim() for row in (0, 1)]
        for row in (0, 1):
            axes[row][column].set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        axes[1][column].set_xlabel("strength of the damage", fontsize=10)
    axes[0][0].legend(frameon=False, fontsize=8)
    save(drawing, path, ("png",), dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    figure_of, tables = PAGE / "docs" / "images" / "real-damage", PAGE / "docs" / "tables"
    places = {"out": Path("results-real"), "figure": figure_of, "tables": tables}
    options = parse(__doc__, arguments, **places, recorded=False, add=False)
    if options.add:
        position = test_positions(open_prepared(options.out / "data").records.split)
        print(f"{RECORD.name}: {add(RECORD, options.out / 'finetuned', position)} cross-validations")
        return
    study = Study(options.out, RECORD if options.recorded else None)
    figure(study, options.figure)
    if options.recorded:
        write_strengths(study, options.tables)
        return
    content = {
        method: {name: {one: summary(study.draws(method, name, one)) for one in NAMES} for name in sets}
        for method, sets in study.found.items()
    }
    write_json(options.out / "findings.json", json_content(content))
    write_tables(study, options.tables)


if __name__ == "__main__":
    main()
