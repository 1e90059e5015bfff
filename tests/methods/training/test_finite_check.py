"""A training that diverges ends with its step and term."""

from __future__ import annotations

import pytest
import torch

from retinabench.core.errors import WorkError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods import map as map_method
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.models.build import build_model
from support.helpers import make_prepared

LENET = ["model.name=lenet", "optimizer.epochs=2", "optimizer.batch_size=16", "optimizer.lr=0.05",
         "optimizer.warmup=0.5", "optimizer.augment=false"]  # fmt: skip


CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


def trained(prepared, *words, penalty=None):
    """Train MAP; return its history and its weights."""
    run = load_run(None, [*LENET, *words], data=prepared)
    batches = make_batches(run, load_task(run.data, run.task), CPU)
    posterior = map_method.build(build_model(run.model, run.seed), run, Bernoulli())
    likelihood = likelihood_only(posterior.model, batches, run, Bernoulli())

    def penalised(images, labels, batch):
        return likelihood(images, labels, batch) | {"penalty": penalty(posterior.model, batch.step)}

    checkpoint = Checkpoint()
    train(posterior, batches, run, checkpoint, objective=penalised if penalty else likelihood)
    return checkpoint.history, posterior.state()


def ridge(model, step):
    return 1e-3 * sum(p.square().sum() for p in model.parameters())


def test_a_rate_that_is_too_high_is_named_with_step_and_term(prepared):
    with pytest.raises(WorkError) as caught:
        trained(prepared, "optimizer.lr=1e12", "optimizer.warmup=0", "optimizer.momentum=0.5")
    said = str(caught.value)
    assert "'cross_entropy'" in said
    # The first step is still finite; the second or third is not.
    assert "at step 2 " in said or "at step 3 " in said
    assert "Lower optimizer.lr" in said
    assert "bfloat16" not in said


def test_a_penalty_that_breaks_first_is_named(prepared):
    def breaks_at_five(model, step):
        return ridge(model, step) * (float("inf") if step == 5 else 1.0)

    with pytest.raises(
        WorkError, match=r"'penalty' is not finite at step 6 \(epoch 2\).*penalty of the method"
    ):
        trained(prepared, penalty=breaks_at_five)


def test_a_loss_that_starts_broken_points_at_the_data(prepared):
    def broken(model, step):
        return ridge(model, step) * float("nan")

    with pytest.raises(WorkError, match=r"at step 1 \(epoch 1\).*No step was taken yet.*bfloat16"):
        trained(prepared, "optimizer.precision=bfloat16", penalty=broken)


def test_a_long_epoch_is_not_waited_for_on_a_cpu(prepared):
    seen = []

    def broken(model, step):
        seen.append(step)
        return ridge(model, step) * float("nan")

    with pytest.raises(WorkError, match="at step 1 "):
        trained(prepared, "optimizer.batch_size=1", penalty=broken)
    assert len(seen) == 50  # of 64
