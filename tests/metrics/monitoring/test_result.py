"""What a monitor found: alarms, records and JSON, of paths that are made up."""

import json
from dataclasses import replace

import numpy as np
import pytest

from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.result import Evidence, Monitoring, Window
from retinabench.metrics.proportions import Interval

DAYS = np.array(["2026-01-01", "2026-01-05"], "datetime64[D]")


def path(name, values, alarm=None):
    return Evidence(name, DAYS, np.asarray(values, float), 20.0, alarm, 7)


RISK = Interval(0.1, 0.05, 0.2)
WINDOW = Window(
    "2026-01-01", 9, 5, 4, Interval(0.3, 0.2, 0.4), Interval(0.01, -0.1, 0.1), {"selective_risk": RISK}
)
FOUND = Monitoring(
    Certified(0.2, 0.5, "entropy", (), "image", 2), 0.05, 9, 5, 4, {"selective_risk": RISK},
    (path("selective_risk", [0.5, 3.5], DAYS[1]), path("sensitivity", [0, 0])),
    path("combined", [0.2, 2.5]), path("drift", [0, 0.1]), 30, "month", (WINDOW,), None, ("a note",),
)  # fmt: skip


def test_the_wealth_is_the_exponential_of_the_last_value():
    assert path("x", [1, 2.5]).wealth == pytest.approx(np.exp(2.5))
    assert np.isfinite(path("x", [0, 1e4]).wealth)
    content = path("x", [3.0, 2.5], DAYS[0]).to_dict()
    assert (content["log_wealth"], content["largest_log_wealth"], content["alarm"]) == (
        2.5,
        3.0,
        "2026-01-01",
    )
    assert content["path"] == [["2026-01-01", 3.0], ["2026-01-05", 2.5]]


def test_an_alarm_is_one_of_the_combined_evidence_or_of_drift():
    assert not FOUND.alarm
    assert FOUND.broken == ("selective_risk",)  # its own limit alone raises none
    assert replace(FOUND, drift=path("drift", [0, 9], DAYS[1])).alarm
    assert replace(FOUND, combined=path("combined", [0, 9], DAYS[1])).alarm


def test_records_and_json_hold_the_windows():
    (row,) = FOUND.records()
    assert row == {
        "start": "2026-01-01", "images": 9, "patients": 5, "labelled": 4, "referred": 0.3, "calibration": 0.01,
        "selective_risk": 0.1,
    }  # fmt: skip
    content = json.loads(json.dumps(FOUND.to_dict(), allow_nan=False))
    assert content["windows"][0]["risks"]["selective_risk"]["high"] == 0.2
    assert content["drift"]["reference_patients"] == 30
    assert (content["alarm"], content["expected"], content["notes"]) == (False, None, ["a note"])
