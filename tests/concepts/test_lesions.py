"""The network of the lesion examinations: it learns, repeats itself, and answers region by region."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from retinabench.cli import main as cli
from retinabench.concepts import lesions
from retinabench.concepts.banks import lesion_images
from retinabench.core.errors import InputError


def test_the_command_trains_answers_and_examines(tmp_path, capsys):
    words = ["lesions", "synthetic", "--images", "40", "--size", "32", "--epochs", "1", "--quiet"]
    assert cli.run([*words, "--out", str(tmp_path / "a")]) == 0
    assert cli.run([*words, "--out", str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert "60 questions asked" in said  # 12 of 40 images, 5 concepts
    for name in (
        "answers.csv",
        "truth.csv",
        "training.csv",
        "network.json",
        "index.html",
        "examination.json",
    ):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with open(tmp_path / "a" / "truth.csv", newline="") as handle:
        questioned = {row.pop("image_id"): row for row in csv.DictReader(handle)}
    with open(tmp_path / "a" / "training.csv", newline="") as handle:
        trained_on = {row["image_id"] for row in csv.DictReader(handle)}
    assert not trained_on & set(questioned)
    assert len(trained_on) + len(questioned) == 40
    images = lesion_images.drawn(40)
    for name, row in questioned.items():
        truth = images.truth[images.sample_id == name][0]
        assert [row[c] == "1" for c in images.concepts] == truth.tolist()
    found = json.loads((tmp_path / "a" / "network.json").read_text())
    assert found["concepts"]["microaneurysm"]["questioned_positives"] == sum(
        row["microaneurysm"] == "1" for row in questioned.values()
    )


def test_a_second_network_is_not_given_the_answers_of_the_first(tmp_path):
    images = lesion_images.drawn(40)
    for epochs in (1, 2):
        lesions.examine_lesions("synthetic", tmp_path, images=40, size=32, epochs=epochs)
        with open(tmp_path / "answers.csv", newline="") as handle:
            said = [[float(row[c]) for c in images.concepts] for row in csv.DictReader(handle)]
        found = json.loads((tmp_path / "examination.json").read_text())
        yes = sum(one["counts"]["tp"] + one["counts"]["fp"] for one in found["concepts"].values())
        assert yes == (np.array(said) >= 0.5).sum()
        bins = np.array([one["bins"] for one in found["concepts"].values()])
        assert bins.reshape(5, 2, 50).sum(axis=1).tolist() == [
            np.bincount(np.minimum((50 * column).astype(int), 49), minlength=50).tolist()
            for column in np.array(said).T
        ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eyepacs"], "no lesions are known of 'eyepacs'"),
        (["idrid"], "Name it with --source DIR"),
        (["idrid", "--source", "nowhere"], "is not a folder"),
        (["idrid", "--source", ".", "--images", "50"], "--images is for synthetic data only"),
        (["synthetic", "--source", "."], "rendered, not read"),
        (["synthetic", "--images", "5"], "too few"),
        (["synthetic", "--images", "20", "--size", "9"], "--size is at least 16"),
        (
            ["synthetic", "--images", "20", "--grid", "64"],
            "--size is at least 16, and --size times --grid at most 2048",
        ),
    ],
)
def test_wrong_options_are_one_line(words, message, tmp_path, capsys):
    assert cli.run(["lesions", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_auroc_is_none_where_a_class_is_missing():
    one = lesion_images.Samples(
        np.array(["a", "b"]), np.array([[True], [True]]), np.zeros((2, 4, 4, 3), np.uint8)
    )
    assert lesions._learnt(("x",), one, one, np.array([[0.2], [0.4]])) == {
        "x": {"trained_positives": 2, "questioned_positives": 2, "auroc": None}
    }


def test_unknown_names_get_a_hint():
    with pytest.raises(InputError, match="Did you mean 'synthetic'"):
        lesions.known_lesions("synthetics", None, None, 0)
