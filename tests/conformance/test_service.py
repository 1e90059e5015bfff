"""Three years of a service at small size, by the commands alone: every alarm comes, and at its time."""

import sys
from pathlib import Path

import pytest
from markupsafe import Markup

from retinabench.reports.toolkit import figures
from torture.running import save_blank

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "service"))
from service import CAMERA, FAULT, serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    # Drawing the figures of 36 pages takes most of the time, and nothing looks at them.
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(figures, "to_svg", lambda *figure, **text: Markup())
        monkeypatch.setattr(figures.Figure, "savefig", save_blank)
        return serve(tmp_path_factory.mktemp("service"), patients=900, every=30)


def first(said, command, text, since=0):
    later = (one for one in said if one["command"] == command and one["month"] >= since and text in one["first"])
    return next((one["month"] for one in later), None)


def test_the_first_year_is_quiet_and_every_patient_has_an_action(said):
    early = [one for one in said if one["month"] < CAMERA]
    assert {one["code"] for one in early} == {0}
    assert all("need no referral" in one["first"] for one in early if one["command"] == "apply")
    watched = [one for one in early if one["command"] == "monitor" and one["month"] < CAMERA - 1]
    assert all(one["first"].startswith("No alarm: neither the labels") for one in watched)


def test_a_new_camera_is_seen_at_once_and_a_new_certificate_ends_the_alarm(said):
    assert first(said, "apply", "Alarm: since") in (CAMERA, CAMERA + 1)
    assert CAMERA <= first(said, "monitor", "Alarm: the labels refute the certificate") <= CAMERA + 2
    assert [one["code"] for one in said if one["command"] == "transfer"] == [0, 0]
    after = [one for one in said if CAMERA + 4 <= one["month"] < FAULT]
    assert {one["code"] for one in after} == {0}


def test_a_silent_failure_of_one_site_is_named(said):
    month = first(said, "monitor", "missed for “site: B”", since=CAMERA + 4)
    assert month is not None
    assert FAULT <= month <= FAULT + 6


def test_the_status_says_that_both_certificates_are_over(said):
    assert said[-1]["command"] == "status"
    assert said[-1]["code"] == 4
    replaced = "first/transfer.json: replaced by second/transfer.json after alarm: "
    replaced += " watched labels or drift speak against it"
    assert said[-1]["first"].startswith(replaced)
