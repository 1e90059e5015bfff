"""What `retinabench monitor` prints, within 80 columns."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from retinabench.metrics.monitoring.result import Monitoring
from retinabench.reports.monitoring.sentences import expected_note, findings, headline
from retinabench.reports.monitoring.tables import evidence_table, expected_table, windows_table
from retinabench.reports.toolkit.terminal import to_terminal

LATEST = 6


def monitor_tables(found: Monitoring) -> Group:
    """Return the headline, the tables and what they mean."""
    tables = [evidence_table(found), windows_table(found, LATEST), expected_table(found)]
    said = [f"{one.lead} {one.text}" for one in findings(found)]
    if found.expected is not None:
        said.append(expected_note(found))
    shown = Group(*(to_terminal(one) for one in tables if one is not None))
    return Group(Text(headline(found), style="bold"), shown, Text("\n".join(said)))
