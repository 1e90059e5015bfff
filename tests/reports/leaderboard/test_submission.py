"""A submission is checked as a whole, and packed to the same bytes every time."""

from __future__ import annotations

import json
import shutil

import pytest

from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import frozen_benchmark
from retinabench.reports.leaderboard.submission import MANIFEST, find_submissions, pack, read_submission
from support.board_entries import NAME, noisy, submission


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def good(tmp_path):
    return submission(tmp_path / "mine", noisy(1.0))


def test_packing_twice_or_packing_the_packed_gives_the_same_bytes(good, tmp_path) -> None:
    first = pack(good, tmp_path / "out")
    once = content(first)
    assert sorted(once) == ["card.toml", f"{NAME}/seed-0.parquet", MANIFEST]
    assert content(pack(good, tmp_path / "out")) == once
    assert content(pack(first, tmp_path / "again")) == once
    assert read_submission(first).key == read_submission(good).key == json.loads(once[MANIFEST])["key"]
    assert find_submissions(tmp_path / "out") == [first]


def test_another_submission_of_the_name_is_not_overwritten(good, tmp_path) -> None:
    pack(good, tmp_path / "out")
    other = submission(tmp_path / "other", noisy(0.5))
    with pytest.raises(InputError, match="another submission of this name"):
        pack(other, tmp_path / "out")
    with pytest.raises(InputError, match="over itself"):
        pack(good, good.parent)


def test_a_file_that_was_changed_after_packing_is_named(good, tmp_path) -> None:
    packed = pack(good, tmp_path / "out")
    (packed / "card.toml").write_text((packed / "card.toml").read_text().replace("Noise", "Better"))
    with pytest.raises(InputError, match=r"card\.toml: was changed after"):
        read_submission(packed)
    (packed / MANIFEST).write_text('{"schema": "retinabench.submission/1", "sha256": {"../../x": "0"}}')
    with pytest.raises(InputError, match=r"submission\.json: '\.\./\.\./x' is missing"):
        read_submission(packed)
    (packed / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(InputError, match="is no list of hashes"):
        read_submission(packed)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda folder: (folder / "run.sh").write_text("x"), "which is no part of a submission"),
        (lambda folder: (folder / NAME).rename(folder / f"{NAME}i"), "is named after no benchmark"),
        (lambda folder: (folder / NAME / "seed-1.csv").symlink_to("/etc/hostname"), "holds 'seed-1.csv'"),
        (lambda folder: (folder / "link").symlink_to(folder / NAME), "is a link"),
        (
            lambda folder: shutil.copy(folder / NAME / "seed-0.parquet", folder / NAME / "seed-00.parquet"),
            "seed 0 twice",
        ),
        (
            lambda folder: shutil.copy(folder / NAME / "seed-0.parquet", folder / NAME / "seed-1.parquet"),
            "same predictions",
        ),
        (lambda folder: shutil.rmtree(folder / NAME), "holds no predictions"),
    ],
)
def test_strange_files_are_refused(good, harm, problem: str) -> None:
    harm(good)
    with pytest.raises(InputError) as error:
        read_submission(good)
    assert problem in str(error.value)


def test_seeds_are_asked_for_unless_there_is_no_randomness(good) -> None:
    card = good / "card.toml"
    card.write_text(card.read_text().replace("deterministic = true", "deterministic = false"))
    with pytest.raises(InputError, match=r"holds 1 seeds; .* asks for 3 to 100"):
        read_submission(good)


def test_the_hash_of_the_images_is_compared(good) -> None:
    card, text = good / "card.toml", (good / "card.toml").read_text()
    assert "not verified" in read_submission(good).notes[0]
    card.write_text(f'{text}\n[images_sha256]\n{NAME} = "{frozen_benchmark(NAME).listing_sha256}"\n')
    assert not read_submission(good).notes
    card.write_text(f'{text}\n[images_sha256]\n{NAME} = "00"\n')
    with pytest.raises(InputError, match="images_sha256 of"):
        read_submission(good)


def test_the_key_changes_with_card_and_predictions(good, tmp_path) -> None:
    key = read_submission(good).key
    assert key.startswith("noise-")
    assert read_submission(submission(tmp_path / "b", noisy(1.0, seed=1))).key != key
    assert read_submission(submission(tmp_path / "c", noisy(1.0), title="Other")).key != key
