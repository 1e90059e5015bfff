"""Tables for the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from retinabench.reports.evaluation.terminal import scores_table


def test_scores_table(written):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(scores_table(written.records))
    console.print(scores_table([{**written.records[0], "entry": "[red]x[/red]"}]))
    text = console.export_text()
    auroc = written.records[0]["sets"]["shifted"]["scores"]["auroc"]
    assert f"{auroc['value']:.3f}" in text
    assert f"{auroc['low']:.3f}–{auroc['high']:.3f}" in text
    assert "…" not in text
    assert "±" in text
    assert "oracle referral" in text
    assert "[red]x[/red]" in text
