import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.frozen.definition import frozen_benchmark, truth_of
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard import submission as module
from retinabench.reports.leaderboard import submission as submission_module
from retinabench.reports.leaderboard.submission import CARD as FILE
from retinabench.reports.leaderboard.submission import MANIFEST, card_toml, is_address, pack, read_card, read_submission
from support.board_entries import CARD, NAME, noisy, submission

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
        ("https://example.org/noise", "javascript:alert(1)", "code: is not an address"),
        ("https://example.org/noise", "", "code is empty"), ('"noise"', '"../etc"', "name: use small letters"),
        ("A. Stranger", "\\u202e", "authors: holds control characters"),
        ('tuned_on = "nothing"', 'tuned_on = "test"', "tuned_on is the test images"),
        ('tuned_on = "nothing"', 'tuned_on = "luck"', "tuned_on"), ("hours = 0.5", "hours = inf", "hours"),
        ("hours = 0.5", "hours = 0.5\nhuors = 1", "unknown key 'huors'. Did you mean 'hours'"),
        ("hours = 0.5", "", "hours: is missing"), ("hours = 0.5", "hours = ", "is not TOML"),
    ],
)  # fmt: skip
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


def test_only_plain_https_addresses_are_linked() -> None:
    assert is_address("https://a.org/b?c=d#e")
    no = "http://a.org", "https://", "https://a b.org", 'https://a.org/"x="'
    no += "https://good@evil.org", "//a.org", "https://[x"
    assert not any(map(is_address, no))


BENCHMARK, SEED = frozen_benchmark(NAME), f"{NAME}/seed-0.parquet"


def with_rows(ids, split="validation"):
    """The test images, and one more row for each id."""
    good, truth = noisy(1.0), truth_of(NAME)
    rows = np.searchsorted(truth.image_id, ids)
    return Predictions(
        [*good.image_id, *ids], [*good.label, *truth.label[rows]], [*good.prob, *([0.4] * len(ids))],
        domain=[*good.domain, *truth.domain[rows]], split=[*good.split, *([split] * len(ids))],
    )  # fmt: skip


def test_a_good_file_gets_the_order_grades_and_patients_of_the_truth(tmp_path) -> None:
    good, truth = noisy(1.0), truth_of(NAME)
    shuffled = good.take(np.random.default_rng(0).permutation(len(good)))
    sampled = replace(shuffled, probs=np.repeat(shuffled.probs, 4, axis=1))
    write_predictions(sampled, tmp_path / "a.parquet")
    found = submission_module.checked(read_predictions(tmp_path / "a.parquet"), BENCHMARK)
    assert np.array_equal(found.image_id, truth.image_id[truth.test])
    assert np.array_equal(found.patient_id, truth.patient_id[truth.test])
    assert found.samples == 1
    assert np.array_equal(found.prob, good.prob), "the mean over the samples, exactly"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda p: p.take(np.arange(len(p) - 2)), "lacks 2 of the 1,000 test images"),
        (lambda p: replace(p, label=1 - p.label, grade=None), "column 'label'"),
        (lambda p: replace(p, domain=np.full(len(p), "in_domain")), "column 'domain'"),
        (lambda p: replace(p, split=np.full(len(p), "validation")), "column 'split'"),
        (lambda p: replace(p, image_id=[f"x{k}" for k in range(len(p))]), "is not an image of"),
        (lambda p: replace(p, probs=p.label.astype(float)), "every probability is the image's label"),
        (lambda p: replace(p, metadata={"threshold_chosen_on": "test split"}), "chosen on the test images"),
        (lambda p: replace(p, metadata={"temperature": {"fitted": ["val", "test"]}}), "chosen on the test images"),
    ],
)
def test_what_is_wrong_is_named(change, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        submission_module.checked(change(noisy(1.0)), BENCHMARK)


def test_a_training_image_is_refused_even_as_validation() -> None:
    with pytest.raises(InputError, match="of the train split"):
        submission_module.checked(with_rows(["in_domain-000001"]), BENCHMARK)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path) -> None:
    with (tmp_path / "seed-0.csv").open("wb") as handle:
        handle.truncate(submission_module.MOST_BYTES + 1)
    with pytest.raises(InputError, match="a submission's file may have 64"):
        submission_module.check_size(tmp_path / "seed-0.csv")


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    assert module.find_submissions(tmp_path / "out") == [first]


def test_a_file_that_was_changed_after_packing_is_named(good, tmp_path) -> None:
    packed = pack(good, tmp_path / "out")
    (packed / "card.toml").write_text((packed / "card.toml").read_text().replace("Noise", "Better"))
    with pytest.raises(InputError, match=r"card\.toml: was changed after"):
        read_submission(packed)
    (packed / MANIFEST).write_text('{"schema": "retinabench.submission/1", "sha256": {"../../x": "0"}}')
    with pytest.raises(InputError, match=r"submission\.json: '\.\./\.\./x' is missing"):
        read_submission(packed)
    (packed / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not a list of hashes"):
        read_submission(packed)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda folder: (folder / "run.sh").write_text("x"), "which is not part of a submission"),
        (lambda folder: (folder / NAME).rename(folder / f"{NAME}i"), "is named after no benchmark"),
        (lambda folder: (folder / NAME / "seed-1.csv").symlink_to("/etc/hostname"), "holds 'seed-1.csv'"),
        (lambda folder: (folder / "link").symlink_to(folder / NAME), "is a link"),
        (lambda folder: shutil.copy(folder / SEED, folder / NAME / "seed-00.parquet"), "seed 0 twice"),
        (lambda folder: shutil.copy(folder / SEED, folder / NAME / "seed-1.parquet"), "same predictions"),
        (lambda folder: shutil.rmtree(folder / NAME), "holds no predictions"),
    ],
)
def test_strange_files_are_refused(good, harm, problem: str) -> None:
    harm(good)
    with pytest.raises(InputError, match=problem):
        read_submission(good)


def test_seeds_are_asked_for_unless_there_is_no_randomness(good) -> None:
    card = good / "card.toml"
    card.write_text(card.read_text().replace("deterministic = true", "deterministic = false"))
    with pytest.raises(InputError, match=r"holds 1 seeds; .* asks for 3 to 100"):
        read_submission(good)


def test_the_key_changes_with_card_and_predictions(good, tmp_path) -> None:
    key = read_submission(good).key
    assert key.startswith("noise-")
    assert read_submission(submission(tmp_path / "b", noisy(1.0, seed=1))).key != key
    assert read_submission(submission(tmp_path / "c", noisy(1.0), title="Other")).key != key
