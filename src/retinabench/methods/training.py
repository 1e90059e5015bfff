"""The one training loop of every method that trains by gradient descent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from retinabench.config import Optimizer, Run
from retinabench.data.loader import Batches
from retinabench.errors import WorkError
from retinabench.methods.base import Posterior, State, network_state, precision
from retinabench.methods.journal import Journal
from retinabench.methods.losses import cross_entropy
from retinabench.methods.schedules import learning_rate
from retinabench.models.stochastic import use_generator
from retinabench.scores.classification import auroc, nll
from retinabench.seeds import torch_generator


def train(
    model: nn.Module,
    batches: Batches,
    run: Run,
    journal: Journal,
    posterior: Posterior,
) -> State:
    """Train `model` for the run's epochs and return the chosen weights, which `model` then holds too.

    The loss is the (reweighted) cross-entropy. After each epoch `posterior`
    predicts the validation split, and the epoch is checkpointed: a killed training continues from there, and ends
    with the same bits on a CPU, since the order of the pictures and all noise depend on seed and epoch alone.

    Raises `WorkError` where the loss is no longer finite.
    """
    config = run.optimizer
    optimizer = make_optimizer(model, config)
    start, best = 0, -math.inf
    if saved := journal.resume():
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start, best = saved["epoch"], saved["best"]
    with journal.progress.track(journal.title, config.epochs * batches.steps, unit="steps") as advance:
        advance(start * batches.steps)
        for epoch in range(start, config.epochs):
            began = time.perf_counter()
            use_generator(model, torch_generator(batches.device, run.seed, "noise", epoch))
            loss = _epoch(model, batches, run, optimizer, epoch, advance)
            scores = _validate(posterior, batches, run, epoch)
            criterion = {"auroc": scores["auroc"], "nll": -scores["nll"], "last": float(epoch)}[config.select]
            if criterion > best:
                best = criterion
                journal.keep_best(network_state(model))
            rate = learning_rate((epoch + 1) * batches.steps - 1, batches.steps, config)
            row = {
                "epoch": epoch + 1,
                "lr": rate,
                "loss": loss,
                **{f"validation_{k}": v for k, v in scores.items()},
            }
            row["seconds"] = round(time.perf_counter() - began, 3)
            state = {"model": network_state(model), "optimizer": optimizer.state_dict()}
            journal.checkpoint(row, {**state, "epoch": epoch + 1, "best": best})
    chosen = journal.best()
    model.load_state_dict(chosen)
    return chosen


def make_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or Adam; the L2 term acts on weights of two or more axes, not on biases and norms.

    `weight_decay = 2 * l2` puts the gradient of `l2 * Σ w²` into the loss's gradient (it is not decoupled).
    """
    decay = 2 * config.l2 if config.l2_acts else 0.0
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, betas=(config.momentum, 0.999))
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)


def _epoch(
    model: nn.Module,
    batches: Batches,
    run: Run,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    advance: Callable[[int], None],
) -> float:
    """Take one step per batch; return the mean loss over the epoch's images."""
    config = run.optimizer
    model.train()
    total = torch.zeros((), dtype=torch.float64, device=batches.device)
    step = epoch * batches.steps
    for images, labels in batches.epoch(epoch):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, batches.steps, config)
        with precision(run, batches.device):
            logits = model(images)
        loss = cross_entropy(logits, labels, config.reweight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # missing in torch's stubs
        optimizer.step()
        total += loss.detach() * len(labels)
        step += 1
        advance(1)
    mean = float(total) / len(batches.train)
    if not math.isfinite(mean):
        raise WorkError(
            f"the loss is {mean} in epoch {epoch + 1} at learning rate {optimizer.param_groups[0]['lr']:.3g}. "
            "Lower optimizer.lr, or lengthen optimizer.warmup."
        )
    return mean


def _validate(posterior: Posterior, batches: Batches, run: Run, epoch: int) -> dict[str, float]:
    """AUROC and NLL of the predictive mean on the validation split."""
    generator = torch_generator(batches.device, run.seed, "validate", epoch)
    means, labels = [], []
    for images, truth in batches.held_out():
        with precision(run, batches.device):
            probs = posterior.predict(images, run.method.samples, generator)
        means.append(probs[..., 1].mean(dim=0).cpu())
        labels.append(truth.cpu())
    prob = torch.cat(means).double().numpy()
    label = torch.cat(labels).numpy().astype(np.int8)
    return {"auroc": float(auroc(label, prob)), "nll": float(nll(label, prob))}
