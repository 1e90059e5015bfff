import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.data.prepared import open_prepared
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from support.helpers import TINY, make_prepared

SHORT = {"optimizer.epochs": 6, "optimizer.batch_size": 32, "optimizer.lr": 0.05}


class Retinas(Dataset):
    """The images of a prepared folder, as a user's data set with their ids and grades; `keep` names the columns."""

    def __init__(self, folder, keep=("image_id", "patient_id", "grade", "split", "domain")):
        self.data, self.keep = open_prepared(folder), keep

    def __len__(self):
        return len(self.data)

    def __getitem__(self, number):
        image = torch.from_numpy(self.data.images([number])[0]).permute(2, 0, 1).float() / 255
        columns = {name: getattr(self.data.records, name)[number] for name in self.keep}
        return {"image": image, "label": int(self.data.label[number]), **columns}


def network():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        pooled = nn.Conv2d(3, 8, 3, stride=2), nn.LeakyReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*pooled, nn.Linear(8, 1))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("data") / "retinas")


@pytest.mark.parametrize("method", ["dropout", "ensemble"])
def test_predictions_are_those_of_the_command(method, prepared, tmp_path):
    words = [*TINY, "model.inputs=unit"]
    run = load_run(None, [*words, f"method.name={method}"], data=str(prepared))
    expected = rb.read_predictions(execute(run, tmp_path, Resources("cpu")) / "predictions.parquet")
    settings = {key: value for key, _, value in (word.partition("=") for word in words)}
    settings = {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    loader = DataLoader(Retinas(prepared), batch_size=8, num_workers=int(method == "dropout"), shuffle=True)
    found = rb.train(method, loader, settings=settings, device="cpu")
    assert found.predictions.image_id.tolist() == expected.image_id.tolist()
    assert found.predictions.split.tolist() == expected.split.tolist()
    np.testing.assert_allclose(found.predictions.probs, expected.probs, atol=1e-6)
    assert (found.posterior is None) == (len(found.members) > 1) == (method == "ensemble")


def test_an_own_network_learns_and_tests_other_patients(prepared):
    dataset, images = Retinas(prepared, ("image_id", "patient_id")), open_prepared(prepared).records
    model, before = network(), torch.get_rng_state()
    found = rb.train("mfvi", dataset, model=model, settings=SHORT | {"optimizer.epochs": 40})
    assert torch.equal(torch.get_rng_state(), before)
    predictions = found.predictions
    assert rb.score(predictions, bootstrap=0)["in_domain"].auroc.value > 0.9
    assert set(predictions.image_id) <= set(images.image_id)
    patient = {part: set(predictions.patient_id[predictions.split == part]) for part in ("validation", "test")}
    assert patient["validation"].isdisjoint(patient["test"])
    trained_on = set(images.patient_id) - patient["validation"] - patient["test"]
    assert len(trained_on) == pytest.approx(0.64 * len(set(images.patient_id)), abs=2)
    assert [row["epoch"] for row in found.history] == list(range(1, 41))
    row = int(np.flatnonzero(images.image_id == predictions.image_id[0])[0])
    again = found.posterior.predict(dataset[row]["image"][None], 500, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(again[..., 1].mean(), predictions.prob[0], atol=0.1)


def test_own_validation_and_test_data_and_a_folder_that_is_kept(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 4, generator=generator)
    labels = 4 * (inputs[:, 0] > 0).long()  # grades
    whole = TensorDataset(inputs, labels)
    parts = [Subset(whole, range(*ends)) for ends in ((0, 200), (200, 250), (250, 300))]
    call = {"model": lambda: nn.Linear(4, 1), "validation": parts[1], "test": parts[2]}
    call |= {"settings": SHORT, "out": tmp_path}
    found = rb.train("ensemble", parts[0], **call)
    assert found.predictions.grade.tolist() == labels[200:].tolist()
    assert (found.predictions.split == "test").sum() == 50
    assert rb.score(found.predictions, bootstrap=0)["in_domain"].auroc.value > 0.95
    weights = [one.posterior.state()["weight"] for one in found.members]
    assert not torch.equal(weights[0], weights[1])
    (metrics, *_) = sorted(tmp_path.glob("*/metrics.jsonl"))
    written = metrics.stat().st_mtime_ns
    again = rb.train("ensemble", parts[0], **call)  # finished before
    np.testing.assert_array_equal(again.predictions.probs, found.predictions.probs)
    assert metrics.stat().st_mtime_ns == written
    other = rb.train("ensemble", parts[0], **call | {"model": lambda: nn.Linear(4, 1, bias=False)})
    assert not np.array_equal(other.predictions.probs, found.predictions.probs)


ITEMS = TensorDataset(torch.randn(60, 4, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 2)


@pytest.mark.parametrize(
    ("dataset", "options", "match"),
    [
        (DataLoader(ITEMS, sampler=WeightedRandomSampler([1.0] * 60, 60)), {}, "WeightedRandomSampler"),
        (ITEMS, {"model": nn.Linear(4, 2)}, r"Linear' gives \(2, 2\) for 2 images"),
        (ITEMS, {"model": nn.Linear(5, 1)}, r"does not take inputs of shape \(2, 4\)"),
        (ITEMS, {"model": nn.Linear(4, 1), "method": "ensemble"}, "function that makes a network"),
        (ITEMS, {"model": nn.Linear(4, 1), "method": "tta"}, "needs images"),
        (TensorDataset(torch.zeros(60, 4, dtype=torch.uint8), torch.arange(60) % 2), {}, "inputs are torch.uint8"),
        (TensorDataset(torch.zeros(60, 4), torch.arange(60) / 60), {}, "grades 0 to 4"),
        (TensorDataset(torch.zeros(60, 4), torch.zeros(60)), {}, "one class only"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_named(dataset, options, match):
    with pytest.raises(InputError, match=match):
        rb.train(**{"method": "map", "dataset": dataset, "model": nn.Linear(4, 1), "settings": SHORT, **options})
