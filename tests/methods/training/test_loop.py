"""The training loop on nets without batch norm, where how a batch is cut must not matter."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError, WorkError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.methods import map as map_method
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy
from retinabench.methods.training.posterior import precision
from retinabench.models.build import build_model
from support.helpers import make_prepared
from support.trainings import CPU, LENET, ridge, trained


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


@pytest.mark.parametrize("parts", [2, 3, 16])
@pytest.mark.parametrize("reweight", ["minibatch", "none"])
def test_a_batch_in_parts_is_the_batch(prepared, parts, reweight):
    """Class weights of the whole batch, a penalty once; float32 sums in another order differ near 1e-7."""
    words = [f"optimizer.reweight={reweight}", "optimizer.select=last"]
    whole, cut = (trained(prepared, *words, f"optimizer.accumulate={n}", penalty=ridge) for n in (1, parts))
    for one, other in zip(whole[0], cut[0], strict=True):
        for term in ("loss", "loss_cross_entropy", "loss_penalty", "validation_nll"):
            assert one[term] == pytest.approx(other[term], rel=1e-6), term
    for name, tensor in whole[1].items():
        assert torch.allclose(tensor, cut[1][name], atol=1e-6), name


def test_class_shares_of_a_part_alone_would_be_another_loss():
    labels = torch.tensor([1.0, 0, 0, 0])
    assert class_weights(labels[:2], labels[:2].mean()).tolist() == [1.0, 1.0]
    whole = BatchInfo.of(labels)
    assert class_weights(labels[:2], whole.positive_share).tolist() == pytest.approx([2.0, 2 / 3])


def test_batch_norm_never_gets_a_part_of_one_image(prepared):
    words = ["model.name=resnet18", "model.width=4", "model.stem=small", "optimizer.batch_size=21"]
    # 64 images in batches of 21, 21, 22: ten parts of two or three images.
    history, _ = trained(prepared, *words, "optimizer.accumulate=16")
    assert np.isfinite(history[-1]["loss"])


@pytest.mark.parametrize("method", ["map", "dropout"])
def test_losses_are_float32_under_bfloat16(prepared, method):
    run = load_run(None, [*LENET, f"method={method}", "optimizer.precision=bfloat16"], data=prepared)
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    model = build_model(run.model, run.seed)
    images, labels = next(batches.epoch(0))
    with precision(run, CPU):
        assert model(images).dtype == torch.bfloat16
    terms = likelihood_only(model, batches, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    assert {name: term.dtype for name, term in terms.items()} == {"cross_entropy": torch.float32}
    # Eight significant bits of the logits, none of the loss's: 2^-8 of a loss near 0.7.
    full = cross_entropy(model(images), labels, Bernoulli(), "minibatch", BatchInfo.of(labels)).detach()
    assert float(terms["cross_entropy"].detach()) == pytest.approx(float(full), rel=4e-3)


class Overflow(nn.Module):
    """Finite in training, and broken when it predicts."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * (1.0 if self.training else float("nan"))


def test_predictions_that_are_no_numbers_end_the_training(prepared):
    run = load_run(None, LENET, data=prepared)
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    posterior = map_method.build(Overflow(build_model(run.model, run.seed)), run, Bernoulli())
    with pytest.raises(WorkError, match="after epoch 1 the network predicts values that are not finite"):
        train(posterior, batches, run, Checkpoint())


def test_an_auroc_that_is_undefined_cannot_choose(prepared, monkeypatch):
    monkeypatch.setattr("retinabench.methods.training.prediction.auroc", lambda label, prob: float("nan"))
    with pytest.raises(InputError, match=r"one class only.*optimizer\.select=nll"):
        trained(prepared)
    history, _ = trained(prepared, "optimizer.select=nll")
    assert len(history) == 2


def test_accumulation_from_the_command_s_words(prepared, tmp_path):
    words = [*LENET, "optimizer.accumulate=4", "optimizer.select=nll"]
    folder = execute(load_run(None, words, data=prepared), tmp_path, Resources("cpu"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
