"""One self-contained page about a monitor."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from retinabench.core.files import write_bytes
from retinabench.metrics.guarantees.risks import PER
from retinabench.metrics.monitoring.result import Monitoring
from retinabench.reports.monitoring.figures import evidence_panel, window_panel
from retinabench.reports.monitoring.tables import (
    PACKAGE,
    evidence_table,
    expected_note,
    expected_table,
    findings,
    goal_text,
    headline,
    windows_note,
    windows_table,
)
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.number_format import percent
from retinabench.reports.toolkit.pages import Fact
from retinabench.reports.toolkit.style import LegendEntry, Panel, mark

CONTENTS = [("verdict", "Verdict"), ("evidence", "Evidence"), ("time", "Over time"), ("settings", "Settings")]


def write_page(found: Monitoring, out: Path) -> Path:
    """Write `index.html` into a folder and return its path."""
    path = out / "index.html"
    write_bytes(path, page(found).encode())
    return path


def page(found: Monitoring) -> str:
    """Return the page as HTML: no script, nothing from the network, every text escaped."""
    days = [one.start for one in found.windows]
    context = {
        "title": headline(found),
        "m": found,
        "days": f"{min(found.drift.day)} to {max(found.drift.day)}",
        "contents": CONTENTS,
        "findings": findings(found),
        "evidence": evidence_table(found),
        "expected": expected_table(found),
        "expected_note": expected_note(found),
        "windows": windows_table(found),
        "windows_note": windows_note(found),
        "legend": _legend(found),
        "evidence_panels": _evidence_panels(found),
        "window_panels": _window_panels(found, np.array(days, "datetime64[D]")),
        "settings": _settings(found),
    }
    return pages.render("monitoring.html.j2", context, package=PACKAGE)


def _legend(found: Monitoring) -> list[LegendEntry]:
    entries = [LegendEntry(goal_text(one.name), mark(k + 1)) for k, one in enumerate(found.risks)]
    return [LegendEntry("all goals together", mark(0)), *entries] if len(entries) > 1 else entries


def _evidence_panels(found: Monitoring) -> list[Panel]:
    paths = [(mark(k + 1), one) for k, one in enumerate(found.risks)]
    if len(paths) > 1:
        paths.insert(0, (mark(0), found.combined))
    charts = [
        ("Against the certified goals", evidence_panel(paths, found.combined.needed), "risks"),
        ("Of drift, without labels", evidence_panel([(mark(0), found.drift)], found.drift.needed), "drift"),
    ]
    text = "Evidence after each day, on a logarithmic axis"
    return [
        Panel(name, to_svg(figure, f"evidence-{key}", title=name, description=text))
        for name, figure, key in charts
    ]


def _window_panels(found: Monitoring, start: np.ndarray) -> list[Panel]:
    charts = [
        ("Referred", window_panel(start, [one.referred for one in found.windows], "share of images")),
        (
            "Calibration in the large",
            window_panel(start, [one.calibration for one in found.windows], "observed − predicted", 0.0),
        ),
    ]
    for goal in found.certified.goals:
        values = [one.risks[str(goal)] for one in found.windows]
        charts.append((goal_text(goal), window_panel(start, values, goal.spec.heading, goal.value)))
    text = f"A value with its 95 % interval per {found.unit}"
    return [
        Panel(name, to_svg(figure, f"window-{k}", title=name, description=text))
        for k, (name, figure) in enumerate(charts)
    ]


def _settings(found: Monitoring) -> list[Fact]:
    one = found.certified
    referred = f"uncertainty ({one.uncertainty}) above {one.threshold:.6g}"
    if math.isinf(one.threshold):
        referred = "no image" if one.threshold > 0 else "every image"
    rule = "above 0.5" if one.decision == 0.5 else f"of {one.decision:.4g} and more"
    facts = [
        Fact("Certified goals", ", ".join(map(goal_text, one.goals))),
        Fact("Estimand", PER[one.per]),
        Fact("Referred", referred),
        Fact("Called referable", f"probability {rule}"),
        Fact(
            "Rate of false alarms",
            f"at most {percent(found.level)} over all time, for each of the two alarms",
        ),
    ]
    return facts + [Fact("Note", note) for note in found.notes]
