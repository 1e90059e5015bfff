"""Rows of a result table, and processes that append them."""

from retinabench.experiments.many import Result, ResultTable

IDENTITY = {"version": "1.0", "protocol": 2, "fingerprint": "abc"}


def row(number, state="done", value=0.5, ended=0.0, **other):
    scores = {"auroc": value} if state == "done" else {}
    return Result(f"{number:012x}", state, f"map-{number:012x}", 1.0, 1, ended, scores=scores, **other)


def append(folder, first, count, told=None):
    """Append rows first … first + count - 1, and tell of each one that is written."""
    table = ResultTable(folder, IDENTITY)
    for number in range(first, first + count):
        table.add(row(number, value=number / 1e4))
        if told is not None:
            told.value = number
    table.close()
