"""Table 1 of Filos et al. 2019 as printed: AUC and accuracy in percent, with 50, 70 and 100 % of the images retained.

The text and Figure 5 call the number behind ± a standard error; the leaderboard's files of the released code call it `std`.
"""

from __future__ import annotations

from retinabench.reports.toolkit.number_format import NumberFormat
from retinabench.reports.toolkit.tables import Cell, Row

_PERCENT = NumberFormat(1)
PRINTED = {
    "in_domain": {
        "mc_dropout": "87.8 1.1  91.3 0.7  85.2 0.9  87.1 0.9  82.1 0.9  84.5 0.9",
        "mfvi": "86.6 1.1  88.1 1.1  84.0 1.0  85.0 1.0  82.1 1.2  84.3 0.7",
        "deep_ensemble": "87.2 0.9  89.9 0.9  84.9 0.8  86.1 1.0  81.8 1.1  84.6 0.7",
        "deterministic": "84.9 1.1  86.1 0.6  82.3 1.2  84.9 0.5  82.0 1.0  84.2 0.6",
        "ensemble_mc_dropout": "88.1 1.2  92.4 0.9  85.4 1.0  88.1 1.0  82.5 1.1  85.3 1.0",
        "random": "81.8 1.2  84.8 0.9  82.0 1.3  84.3 0.7  82.0 0.9  84.2 0.5",
    },
    "shifted": {
        "mc_dropout": "79.9 0.3  84.1 1.5  76.8 0.2  79.9 1.7  74.0 0.4  78.6 1.7",
        "mfvi": "77.8 0.1  81.1 0.3  75.5 0.0  78.6 0.2  74.5 0.3  77.2 0.1",
        "deep_ensemble": "80.8 0.7  84.3 0.7  78.5 0.6  80.4 0.8  76.2 0.9  78.8 0.5",
        "deterministic": "76.3 0.5  77.5 1.2  73.5 0.6  77.7 1.1  73.8 0.4  76.5 1.2",
        "ensemble_mc_dropout": "82.3 1.2  87.1 1.3  79.8 1.0  82.8 1.4  77.2 1.1  79.4 1.4",
        "random": "74.1 1.2  76.9 1.3  74.3 1.3  76.4 1.0  74.4 0.9  76.9 0.0",
    },
}
"""Set -> name of the method's file -> AUC ±, accuracy ± at 50, 70 and 100 % retained."""


def with_printed(rows: list[Row], files: list[str], set_name: str) -> list[Row]:
    """Put the printed values below the row of each method that the paper has."""
    found = []
    for row, file in zip(rows, files, strict=True):
        found.append(row)
        if (printed := PRINTED[set_name].get(file)) is not None:
            numbers = [float(word) for word in printed.split()]
            cells = [
                Cell.number(value, error=error, form=_PERCENT)
                for value, error in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            found.append(Row(f"{row.label}, printed in 2019", cells, control=True))
    return found
