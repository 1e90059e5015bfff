import pytest

from retinabench.core.progress import QUIET, Bars


def test_quiet_progress_prints_nothing(capsys):
    with QUIET.track("Work", 3) as advance:
        advance(3)
    QUIET.say("a line")
    assert capsys.readouterr() == ("", "")


def test_bars_and_lines_are_on_standard_error(capsys):
    bars = Bars()
    with bars.track("Preparing", 3, unit="images") as advance:
        advance(1)
        advance(2)
    bars.say("note: [not markup]")
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3" in err
    assert "note: [not markup]" in err


def test_the_bar_of_failed_work_does_not_stay_above_its_error(capsys):
    def fail():
        with Bars().track("Preparing", 3, unit="images") as advance:
            advance(1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert "Preparing" not in capsys.readouterr().err
