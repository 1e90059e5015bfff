"""Predictions of raw outputs of every shape, and their scores."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import retinabench as rb
from retinabench.core.errors import InputError

N = 23


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(N, 4)


LABEL = torch.arange(N) % 2


def network(outputs, dropout=0.0):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, outputs))


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_probabilities_are_the_model_s_own(images, outputs):
    model, label = network(outputs, dropout=0.5), LABEL if outputs < 5 else torch.arange(N) % 5
    model.train()
    found = rb.predict_torch(model, DataLoader(TensorDataset(images, label), batch_size=8))
    assert model.training
    with torch.no_grad():
        logits = model.eval()(images).double()
    own = logits.sigmoid()[:, 0] if outputs == 1 else logits.softmax(1)[:, 1 if outputs == 2 else 2 :].sum(1)
    np.testing.assert_allclose(found.prob, own.numpy(), atol=1e-7)
    ending = nn.Sequential(nn.Sigmoid(), nn.Flatten(0)) if outputs == 1 else nn.Softmax(1)
    again = rb.predict_torch(nn.Sequential(model, ending), [(images, label)], outputs="probabilities")
    np.testing.assert_allclose(again.prob, found.prob, atol=1e-7)
    assert found.label.tolist() == (label >= (2 if outputs == 5 else 1)).int().tolist()


def test_three_classes_need_to_know_which_are_referable(images):
    batches = [(images, torch.arange(N) % 3)]
    model = network(3)
    found = rb.predict_torch(model, batches, referable_from=1)
    assert found.label.tolist() == [min(k % 3, 1) for k in range(N)]
    np.testing.assert_allclose(found.prob, model(images).softmax(1)[:, 1:].sum(1).detach().numpy(), atol=1e-7)
    with pytest.raises(InputError, match="not said which are referable"):
        rb.predict_torch(network(3), batches)


def test_columns_stand_in_the_third_place_or_in_a_dictionary(images):
    known = {"image_id": [f"i{k}" for k in range(N)], "patient_id": [f"p{k // 2}" for k in range(N)]}
    model = network(1)
    three = rb.predict_torch(model, [(images, LABEL, known)])
    named = rb.predict_torch(
        lambda_module(lambda x: SimpleNamespace(logits=model(x))), [{"pixel_values": images, "labels": LABEL, **known}]
    )
    for found in (three, named):
        assert found.image_id.tolist() == known["image_id"]
        assert found.patient_id.tolist() == known["patient_id"]
    assert three.prob.tolist() == named.prob.tolist()


def test_samples_are_of_dropout_or_of_members(images):
    model, batches = network(1, dropout=0.5), [(images, LABEL)]
    state = torch.get_rng_state()
    one = rb.predict_torch(model, batches, samples=50, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert one.probs.shape == (N, 50)
    assert np.std(one.probs, axis=1).min() > 0.01
    assert np.array_equal(one.probs, rb.predict_torch(model, batches, samples=50, seed=3).probs)
    assert not np.array_equal(one.probs, rb.predict_torch(model, batches, samples=50, seed=4).probs)
    both = rb.predict_torch([model, network(1)], batches)
    assert both.probs.shape == (N, 2)
    with pytest.raises(InputError, match="need dropout layers"):
        rb.predict_torch(nn.Linear(4, 1), batches, samples=2)


def test_the_scores_are_those_of_the_predictions(images):
    model = network(1)
    scores = rb.evaluate_torch(model, [(images, LABEL)], bootstrap=20, seed=1)
    again = rb.score(rb.predict_torch(model, [(images, LABEL)]), bootstrap=20, seed=1)
    assert scores.to_dict() == again.to_dict()


def lambda_module(function):
    module = nn.Module()
    module.forward = function
    return module


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        (nn.Linear(4, 1), torch.zeros(3, 4), "batch 1 is a Tensor without inputs and label"),
        (nn.Linear(4, 1), {"label": torch.zeros(3)}, "without inputs and label"),
        (lambda_module(lambda x: x.sum()), (torch.zeros(3, 4), torch.zeros(3)), r"the model returned \(\)"),
        (lambda_module(lambda x: "no"), (torch.zeros(3, 4), torch.zeros(3)), "the model returned str"),
        (nn.Linear(4, 1), (torch.zeros(3, 4), torch.zeros(2)), "label has 2 values for 3 images"),
        (nn.Linear(4, 1), (torch.full((3, 4), torch.nan), torch.zeros(3)), "logits"),
    ],
)
def test_a_batch_or_output_of_another_form_is_one_line(model, batch, message):
    with pytest.raises(InputError, match=message):
        rb.predict_torch(model, [batch])


@pytest.mark.parametrize("columns", [1, 5])
def test_probabilities_are_not_taken_for_logits_without_a_word(columns):
    """A network that ends in a sigmoid had sensitivity 1 and specificity 0; one of five grades needs grades."""
    x = torch.linspace(-2, 2, 40)[:, None].repeat(1, columns)
    label = (x[:, 0] > 0).long()
    with pytest.raises(InputError, match="probabilities" if columns == 1 else "five outputs"):
        rb.predict_torch(nn.Sigmoid() if columns == 1 else nn.Identity(), [(x, label)])
    if columns == 1:
        right = rb.evaluate_torch(nn.Sigmoid(), [(x, label)], outputs="probabilities", bootstrap=0)["in_domain"]
        assert (right.sensitivity.value, right.specificity.value) == (1, 1)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_tensor_without_ordinary_numbers_is_one_line(kind):
    label = torch.ones(3).to_sparse() if kind == "sparse" else torch.ones(3, device="meta")
    with pytest.raises(InputError, match=kind):
        rb.predict_torch(nn.Identity(), [(torch.ones(3, 1), label)])


def test_rows_of_a_table_are_named_by_their_patients():
    table = torch.arange(8.0).reshape(4, 2)
    y, patient = torch.tensor([0, 1]), torch.tensor([101, 102])
    batches = [{"x": table[k : k + 2], "y": y, "patient_id": patient + k} for k in (0, 2)]
    found = rb.predict_torch(nn.Linear(2, 1), batches)
    assert found.image_id.tolist() == found.patient_id.tolist() == ["101", "102", "103", "104"]
    twice = [{**batch, "patient_id": torch.tensor([7, 7])} for batch in batches]
    assert rb.predict_torch(nn.Linear(2, 1), twice).image_id.tolist() == ["1", "2", "3", "4"]
