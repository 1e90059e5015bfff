"""Trainings of MAP with a small network in memory, with or without a penalty beside the likelihood."""

import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods import map as map_method
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.models.build import build_model

LENET = ["model.name=lenet", "optimizer.epochs=2", "optimizer.batch_size=16", "optimizer.lr=0.05",
         "optimizer.warmup=0.5", "optimizer.augment=false", "optimizer.validation_share=1"]  # fmt: skip
CPU = torch.device("cpu")


def trained(prepared, *words, penalty=None):
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
