"""Cards: what is accepted, and that a stranger's text cannot be more than text."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.reports.leaderboard.card import FILE, card_toml, is_address, read_card
from support.board_entries import CARD

GOOD = CARD.format(name="noise", title='A "quoted" \\\\ title', deterministic="true").replace(
    '"quoted"', '\\"quoted\\"'
)


def test_a_card_is_read_back_from_its_own_text(tmp_path) -> None:
    (tmp_path / FILE).write_text(GOOD + '[images_sha256]\n"retinabench-idrid-1" = "ab"\n')
    card = read_card(tmp_path)
    assert card.title == 'A "quoted" \\ title'
    (tmp_path / FILE).write_text(card_toml(card))
    assert read_card(tmp_path) == card
    assert card_toml(read_card(tmp_path)) == card_toml(card)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("https://example.org/noise", "javascript:alert(1)", "code: is no address"),
        ("https://example.org/noise", "", "code is empty"),
        ('"noise"', '"../etc"', "name: use small letters"),
        ("A. Stranger", "\\u202e", "authors: holds control characters"),
        ('tuned_on = "nothing"', 'tuned_on = "test"', "tuned_on is the test images"),
        ('tuned_on = "nothing"', 'tuned_on = "luck"', "tuned_on"),
        ("hours = 0.5", "hours = inf", "hours"),
        ("hours = 0.5", "hours = 0.5\nhuors = 1", "unknown key 'huors'. Did you mean 'hours'"),
        ("hours = 0.5", "", "hours: is missing"),
        ("hours = 0.5", "hours = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    (tmp_path / FILE).write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        read_card(tmp_path)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_card_that_is_missing_large_or_a_link_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"holds no card\.toml"):
        read_card(tmp_path)
    (tmp_path / FILE).write_text("x = '" + "a" * 70_000 + "'")
    with pytest.raises(InputError, match="larger than 64 KB"):
        read_card(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="link that leads out"):
        read_card(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "http://a.org",
        "https://",
        "https://a b.org",
        'https://a.org/"onclick="',
        "https://good@evil.org",
        "//a.org",
        "https://[x",
    ],
)
def test_only_plain_https_addresses_are_linked(text: str) -> None:
    assert is_address("https://a.org/b?c=d#e")
    assert not is_address(text)
