"""The rows of the five papers in docs/papers.md: each has a command that exists, a status, and a test that runs it at small size."""

import re
import shlex
from pathlib import Path

import pytest

from conformance.test_documentation import test_a_command_parses as check_command

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
STATUS = ("works", "needs data", "needs data and a GPU")
TEXTS = 5
# First words of a command that works -> the test that runs it, and words of that test's file.
RUN_BY = {
    "reproduce country --draw": ("cli/test_reproduce.py", '"--draw"'),
    "benchmark demo": ("cli/test_studies.py", '"benchmark", str(file)'),
    "benchmark benchmarks/studies": ("cli/test_reproduce.py", "small_2019.toml"),
    "report runs/*": ("reports/papers/test_write.py", "--tables"), "score": ("cli/test_scoring.py", '"score"'),
    "train --data data/triage": ("cli/test_tables.py", '"train"'), "train": ("cli/test_main.py", '"train"'),
    "transfer": ("cli/test_clinical.py", '"transfer"'), "clinic": ("cli/test_clinical.py", '"clinic"'),
    "track": ("integrations/test_trackers.py", '"track"'), "tune": ("cli/test_studies.py", '"tune"'),
    "uci": ("experiments/test_uci.py", '"uci"'), "prepare table": ("data/test_tables.py", '"prepare", "table"'),
    "fidelity tasks": ("cli/test_fidelity.py", '"tasks"'), "fidelity score": ("cli/test_fidelity.py", '"score"'),
    "fidelity run": ("cli/test_fidelity.py", '"run"'),
    "fidelity tune": ("fidelity/submissions/test_entries.py", "tune"),
    "fidelity reference": ("cli/test_fidelity.py", '"reference"'),
    "fidelity board": ("cli/test_fidelity.py", '"board"'), "examine": ("cli/test_concepts.py", '"examine"'),
}  # fmt: skip
ROWS = re.findall(r"^\| ([^|]+) \| `retinabench ([^`]+)` \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def test_every_text_has_rows_and_none_lacks_more_than_data_and_a_gpu():
    text = PAGE.read_text(encoding="utf-8").partition("## Every row")[2]
    assert text.count("\n### ") == TEXTS
    assert len(ROWS) == len(re.findall(r"^\| (?!row |---)", text.replace("|---", "---"), re.MULTILINE))
    assert {status for *_, status in ROWS} <= set(STATUS)


@pytest.mark.parametrize(("row", "command", "status"), ROWS, ids=[row for row, *_ in ROWS])
def test_a_row_s_command_exists_and_is_run_by_a_test(row, command, status):
    check_command(shlex.split(command))
    if status == "works":
        file, words = next(found for start, found in RUN_BY.items() if command.startswith(start))
        assert words in (ROOT / "tests" / file).read_text(encoding="utf-8")
