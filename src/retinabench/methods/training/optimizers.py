"""The optimiser of a run, the parameters on which its L2 term acts, and its learning rate at every step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import TrainingState

if TYPE_CHECKING:
    from retinabench.methods.settings import Optimizer


ParameterGroup = dict[str, Any]
"""Parameters and the settings of their optimiser, as PyTorch keeps them."""


def parameter_groups(model: nn.Module, config: Optimizer) -> list[ParameterGroup]:
    """Return the trained parameters as an optimiser's groups: those on which the L2 term acts (`l2_on`), then the others.

    `weights` have two or more axes, biases and norms one. A parameter with the attribute `no_decay = True`, such as the
    log-scale of a posterior, belongs to neither and is never decayed. Parameters with an attribute `lr_factor`, such as
    those of a pretrained trunk, have groups of their own for each factor. No group is empty.
    """
    parts: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            kind = "weights" if parameter.ndim > 1 else "norms_and_biases"
            acts = config.l2_on in (kind, "everything") and not getattr(parameter, "no_decay", False)
            factor = float(getattr(parameter, "lr_factor", 1.0))
            parts.setdefault((acts, factor), []).append(parameter)
    groups: list[ParameterGroup] = []
    for acts, factor in sorted(parts, reverse=True):
        group = {"params": parts[acts, factor], "weight_decay": 2 * config.l2 if acts else 0.0}
        groups.append(group if factor == 1 else {**group, "lr_factor": factor})
    return groups


def make_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or Adam on `parameter_groups`.

    `weight_decay = 2 * l2` puts the gradient of `l2 * Σ w²` into the loss's gradient (it is not decoupled). On a GPU a step is
    one kernel for all parameters (`fused`).
    """
    groups = parameter_groups(model, config)
    fused = True if all(p.device.type == "cuda" for group in groups for p in group["params"]) else None
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, betas=(config.momentum, 0.999), fused=fused)
    return torch.optim.SGD(
        groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0, fused=fused
    )


def restore_optimizer(optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Give an optimiser the state of a checkpoint back, in place.

    Args:
        optimizer: The optimiser, as it was made for this network.
        state: What its `state_dict` returned.

    Raises:
        ValueError: The state belongs to an optimiser of other parameters, or something in it is of another kind.
    """
    own = [{**group} for group in optimizer.param_groups]
    begun = {parameter: dict(values) for parameter, values in optimizer.state.items()}
    optimizer.load_state_dict(state)
    for group, wanted in zip(optimizer.param_groups, own, strict=True):
        for name, value in wanted.items():
            found = group[name]
            fits = (
                isinstance(found, float | int) and math.isfinite(found) if isinstance(value, float) else True
            )
            if isinstance(value, int):  # settings are those of the run; "steps" counts
                fits = found == value or (name == "steps" and type(found) is int and found >= 0)
            if not fits:
                raise ValueError(f"{name} of the optimiser is {found!s:.30}")
    for parameter, values in begun.items():
        kept = optimizer.state.get(parameter, {})
        if any(type(kept.get(name)) is not type(value) for name, value in values.items()):
            raise ValueError("lacks a state of the optimiser")
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor):
                if value.numel() > 1 and value.shape != parameter.shape:
                    raise ValueError(f"{name} of the optimiser has shape {tuple(value.shape)}")
            elif value is not None and not (name == "step" and type(value) is int):
                raise ValueError(f"{name} of the optimiser is {value!s:.30}")


def learning_rate(step: int, steps_per_epoch: int, config: Optimizer) -> float:
    """Return the learning rate of 0-based `step`.

    During the warm-up it rises linearly from 0 to `lr`. The schedule `step`: times 0.2 at one and at two thirds of the
    epochs. `linear`: from `lr` down to `final_lr` * `lr`, on a line that starts at step 0 and ends `warmup` epochs before
    the training does, as in the Retina Benchmark. `cosine`: from `lr` at the end of the warm-up down to 0.

    Args:
        step: 0-based training step.
        steps_per_epoch: Steps of an epoch.
        config: Settings of the optimiser: lr, schedule, warm-up and epochs.
    """
    warm = round(config.warmup * steps_per_epoch)
    total = config.epochs * steps_per_epoch
    if step < warm:
        return config.lr * step / warm
    if config.schedule == "step":
        passed = sum(step >= total * third // 3 for third in (1, 2))
        return config.lr * 0.2**passed
    decaying = max(1, total - warm)
    if config.schedule == "linear":
        left = 1 - min(1.0, step / decaying)
        return config.lr * (left * (1 - config.final_lr) + config.final_lr)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / decaying)))
    return config.lr
