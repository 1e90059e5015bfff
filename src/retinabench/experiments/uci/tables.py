"""The comparison as CSV and Markdown: mean ± standard error over splits, beside the printed values."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from retinabench.core.atomic_files import write_bytes
from retinabench.data.datasets.uci import SETS
from retinabench.experiments.uci.published import GRID_SEARCH, PUBLISHED, Printed
from retinabench.experiments.uci.scores import Results, SetResult

MEASURES = {
    "log_likelihood": "Log-likelihood, nats per point (higher is better)",
    "rmse": "Root mean squared error, in the target's units (lower is better)",
    "matched_log_likelihood": "Log-likelihood of one Gaussian per point with the mixture's mean and variance",
}


def write_tables(found: Results, epochs: int, out: Path) -> list[Path]:
    """Write `uci.csv` and `uci.md` of all results; return their paths.

    Args:
        found: The results: {set: {method: content}}.
        epochs: Of training, for the notes.
        out: The folder.
    """
    write_bytes(out / "uci.csv", csv_table(found, epochs).encode())
    write_bytes(out / "uci.md", markdown(found, epochs).encode())
    return [out / "uci.csv", out / "uci.md"]


def mean_and_error(result: SetResult, measure: str) -> tuple[float, float]:
    """Return mean and standard error (sample standard deviation / √K) over the K splits."""
    values = result.values(measure)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def csv_table(found: Results, epochs: int) -> str:
    """One row per set and method."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    head = ["set", "method", "epochs", "splits", "points"]
    head += [f"{measure}{suffix}" for measure in MEASURES for suffix in ("", "_standard_error")]
    head += [f"published_{field}" for field in Printed._fields]
    writer.writerow(head)
    for name, by_method in found.items():
        for method, result in by_method.items():
            ours = [f"{value:.6g}" for measure in MEASURES for value in mean_and_error(result, measure)]
            writer.writerow(
                [
                    name,
                    method,
                    epochs,
                    len(result.splits),
                    result.points,
                    *ours,
                    *PUBLISHED[name][method],
                ]
            )
    return sink.getvalue()


def markdown(found: Results, epochs: int) -> str:
    """One table per measure: per method ours and the printed value, and the released grid search of MC dropout."""
    titles = {method: result.title for by_method in found.values() for method, result in by_method.items()}
    blocks = [
        f"{epochs} epochs. Ours: mean ± standard error over the random splits. Published: Table 2 of the 2019 paper, as "
        "printed. Grid search: the released MC dropout code's own table."
    ]
    for measure, title in MEASURES.items():
        printed = measure in Printed._fields
        head = ["set"]
        for method, name in titles.items():
            head += [name, "published"] if printed else [name]
            head += ["grid search"] if printed and method == "dropout" else []
        rows = [head, ["---"] * len(head)]
        for name, by_method in found.items():
            row = [SETS[name].title]
            for method in titles:
                ours = by_method.get(method)
                row.append("" if ours is None else plus_minus(*mean_and_error(ours, measure)))
                if printed:
                    row.append(_printed(PUBLISHED[name][method], measure))
                    row += [_printed(GRID_SEARCH[name], measure)] if method == "dropout" else []
            rows.append(row)
        lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        blocks.append(f"### {title}\n\n{lines}")
    return "\n\n".join(blocks) + "\n"


def plus_minus(mean: float, error: float) -> str:
    """Return `-2.46 ± 0.06`: two to five decimals, as many as the error's second digit needs."""
    if not math.isfinite(error):
        return f"{mean:.3g}"
    decimals = 2 if error <= 0 else min(max(1 - math.floor(math.log10(error)), 2), 5)
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


def _printed(value: Printed, measure: str) -> str:
    mean, spread = getattr(value, measure), getattr(value, f"{measure}_spread")
    return f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"
