"""The network of the lesion examinations: it learns, repeats itself, and answers region by region."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from retinabench.cli import main as cli
from retinabench.concepts.banks import lesion_images
from retinabench.concepts.examinees import trained_network
from retinabench.concepts.examinees.network import answer, network_examinee, train_network
from retinabench.core.errors import InputError, WorkError
from retinabench.methods.settings import Optimizer
from retinabench.metrics.classification import auroc
from retinabench.models.settings import ModelConfig

MODEL = ModelConfig(width=4, stem="small")


def coloured(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a red and a green patch, each in half of the pictures, at random places: (n, 16, 16, 3), (n, 2)."""
    random = np.random.default_rng(seed)
    pictures = random.integers(40, 90, (n, 16, 16, 3), dtype=np.uint8)
    truth = random.random((n, 2)) < 0.5
    for picture, present in zip(pictures, truth, strict=True):
        for channel in np.flatnonzero(present):
            row, column = random.integers(0, 11, 2)
            picture[row : row + 5, column : column + 5, channel] += 100
    return pictures, truth


def optimizer(epochs: int) -> Optimizer:
    return Optimizer(name="adam", lr=0.01, momentum=0.9, epochs=epochs, batch_size=16)


def test_a_network_learns_to_tell_two_concepts_apart():
    network = train_network(*coloured(96, 0), model=MODEL, optimizer=optimizer(10), seed=0)
    pictures, truth = coloured(100, 1)
    found = answer(network, pictures)
    assert found.shape == (100, 2)
    assert ((found > 0) & (found < 1)).all()
    for column in range(2):
        # Under guessing the standard error of an AUROC with 50 of either class is 0.058: this is five of them.
        assert auroc(truth[:, column].astype(np.int8), found[:, column]) > 0.79
    # The one concept does not answer for the other.
    assert auroc(truth[:, 0].astype(np.int8), found[:, 1]) < 0.79


def test_the_same_seed_gives_the_same_answers_and_another_does_not():
    pictures, truth = coloured(32, 0)
    first, again, other = (
        answer(train_network(pictures, truth, model=MODEL, optimizer=optimizer(2), seed=seed), pictures)
        for seed in (7, 7, 8)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_answers_do_not_depend_on_what_else_is_asked():
    pictures, truth = coloured(70, 0)
    network = train_network(pictures, truth, model=MODEL, optimizer=optimizer(1), seed=0)
    assert answer(network, pictures)[66:] == pytest.approx(answer(network, pictures[66:]), abs=1e-6)


def test_a_loss_that_explodes_is_said():
    wild = Optimizer(name="sgd", lr=1e30, epochs=3, batch_size=16, warmup=0)
    with pytest.raises(WorkError, match="lower the learning rate"):
        train_network(*coloured(32, 0), model=MODEL, optimizer=wild, seed=0)


def test_a_lazy_examinee_answers_as_the_table_does(tmp_path):
    images = lesion_images.drawn(12, seed=5, population="shifted", mask_size=32)
    samples = lesion_images.gather(images, np.arange(12), size=16, grid=2)
    network = train_network(samples.pictures, samples.truth, model=MODEL, optimizer=optimizer(1), seed=0)
    table = answer(network, samples.pictures)
    lazy = network_examinee(network, images, size=16, grid=2)
    for sample, concept in ((0, "microaneurysm"), (13, "haemorrhage"), (47, "new_vessels")):
        expected = table[sample, images.concepts.index(concept)]
        assert lazy(sample, concept) == pytest.approx(expected, abs=1e-6)


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
        trained_network.examine_network("synthetic", tmp_path, images=40, size=32, epochs=epochs)
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
        (["synthetic", "--source", "."], "drawn, not read"),
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
    assert trained_network._learnt(("x",), one, one, np.array([[0.2], [0.4]])) == {
        "x": {"trained_positives": 2, "questioned_positives": 2, "auroc": None}
    }


def test_unknown_names_get_a_cure():
    with pytest.raises(InputError, match="Did you mean 'synthetic'"):
        trained_network.known_lesions("synthetics", None, None, 0)
