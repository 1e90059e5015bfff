"""The network of the lesion examinations: it learns, repeats itself, and answers region by region."""

import csv
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.metrics import roc_auc_score

from retinabench.cli import main as cli
from retinabench.concepts import answer_bank
from retinabench.concepts.banks import masks
from retinabench.concepts.examine import ExamineOptions
from retinabench.concepts.trained_answers import NetworkOptions

pytestmark = pytest.mark.usefixtures("undrawn")


def test_the_command_trains_answers_and_examines(tmp_path, capsys):
    words = ["lesions", "synthetic", "--images", "40", "--size", "16", "--epochs", "1", "--quiet"]
    assert cli.run([*words, "--out", str(tmp_path / "a")]) == 0
    assert cli.run([*words, "--out", str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert "60 questions asked" in said  # 12 of 40 images, 5 concepts
    for name in ("answers.csv", "truth.csv", "training.csv", "network.json", "index.html", "examination.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with open(tmp_path / "a" / "truth.csv", newline="") as handle:
        questioned = {row.pop("image_id"): row for row in csv.DictReader(handle)}
    with open(tmp_path / "a" / "training.csv", newline="") as handle:
        trained_on = {row["image_id"] for row in csv.DictReader(handle)}
    assert not trained_on & set(questioned)
    assert len(trained_on) + len(questioned) == 40
    images = masks.drawn(40)
    for name, row in questioned.items():
        truth = images.truth[images.sample_id == name][0]
        assert [row[c] == "1" for c in images.concepts] == truth.tolist()
    with open(tmp_path / "a" / "answers.csv", newline="") as handle:
        said = {row.pop("image_id"): row for row in csv.DictReader(handle)}
    for name, one in json.loads((tmp_path / "a" / "network.json").read_text())["concepts"].items():
        present = np.array([row[name] == "1" for row in questioned.values()])
        probs = [float(said[image][name]) for image in questioned]
        assert one["questioned_positives"] == present.sum()
        assert one["auroc"] == (pytest.approx(roc_auc_score(present, probs)) if present.any() else None)


def test_a_network_that_cannot_be_built_leaves_the_folder_to_another(tmp_path, capsys):
    weights, out = tmp_path / "other.safetensors", tmp_path / "out"
    save_file({"layer.weight": torch.zeros(2)}, weights)
    words = ["lesions", "synthetic", "--images", "20", "--size", "16", "--epochs", "1", "--quiet", "--out", str(out)]
    assert cli.run([*words, "--examinee", "resnet18", "--weights", str(weights)]) == 2
    assert "lacks" in capsys.readouterr().err
    assert cli.run([*words, "--examinee", "resnet18"]) == 0


def test_a_second_network_is_not_given_the_answers_of_the_first(tmp_path):
    images = masks.drawn(20)
    for epochs in (1, 2):
        network = NetworkOptions(images=20, size=16, epochs=epochs)
        answer_bank.examine_images("synthetic", None, tmp_path, network, ExamineOptions())
        with open(tmp_path / "answers.csv", newline="") as handle:
            said = [[float(row[c]) for c in images.concepts] for row in csv.DictReader(handle)]
        found = json.loads((tmp_path / "examination.json").read_text())
        yes = sum(one["counts"]["tp"] + one["counts"]["fp"] for one in found["concepts"].values())
        assert yes == (np.array(said) >= 0.5).sum()
        bins = np.array([one["bins"] for one in found["concepts"].values()])
        assert bins.reshape(5, 2, 50).sum(axis=1).tolist() == [
            np.bincount(np.minimum((50 * column).astype(int), 49), minlength=50).tolist() for column in np.array(said).T
        ]


def test_synthetic_examinees_need_no_network(tmp_path, capsys):
    words = ["examine", "--bank", "synthetic", "--images", "100", "--examinee", "biased-1", "--questions", "30"]
    out = tmp_path / "out"
    assert cli.run([*words, "--quiet", "--out", str(out)]) == 0
    assert "30 of 150 questions asked" in capsys.readouterr().out
    assert not (out / "samples").exists()
    # The same questions as a table, by the same examinee.
    table = ["examine", "--truth", str(out / "truth.csv"), "--examinee", "biased-1", "--questions", "30"]
    assert cli.run([*table, "--quiet", "--out", str(tmp_path / "table")]) == 0
    first, second = (json.loads((tmp_path / k / "examination.json").read_text()) for k in ("out", "table"))
    assert first["concepts"] == second["concepts"]
