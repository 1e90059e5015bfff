"""A check that the loss is finite, which names the step, the term and what to do where it is not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from retinabench.core.errors import DivergedError
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed

NEVER = 2**62
LIKELIHOOD = "cross_entropy"
EVERY = 50  # steps between two checks on a CPU; on a GPU a check would wait for the device


class FiniteCheck:
    """The first step at which each loss term was NaN or infinite, kept on the device until `check`."""

    def __init__(self, run: TrainingRun, steps_per_epoch: int, schedule: Callable[[int], float]) -> None:
        self._run = run
        self._steps_per_epoch = steps_per_epoch
        self._schedule = schedule
        self._first: dict[str, Tensor] = {}

    def record(self, terms: dict[str, Tensor], step: int) -> None:
        """Record the terms of one 0-based step, or of a part of it."""
        for name, term in terms.items():
            at = torch.where(torch.isfinite(term.detach()), NEVER, step)
            self._first[name] = torch.minimum(self._first[name], at) if name in self._first else at
        alone = distributed.current().count == 1  # other processes would wait for one that raised
        if alone and at.device.type == "cpu" and step % EVERY == EVERY - 1:
            self.check()

    def check(self) -> None:
        """Raise `DivergedError` where a term of any process was not finite."""
        if not self._first:
            return
        found = distributed.smallest(torch.stack(list(self._first.values()))).tolist()
        first = dict(zip(self._first, found, strict=True))
        step = min(first.values())
        if step < NEVER:
            raise DivergedError(self._explain([name for name, at in first.items() if at == step], step))

    def _explain(self, terms: list[str], step: int) -> str:
        names = " and ".join(f"'{name}'" for name in terms)
        epoch, optimizer, method = (
            step // self._steps_per_epoch + 1,
            self._run.optimizer,
            self._run.method.name,
        )
        rate = self._schedule(step)
        if step == 0:
            hint = (
                "No step was taken yet: look at the images and labels (retinabench inspect), "
                f"and at the starting values of the method '{method}'."
            )
        elif LIKELIHOOD in self._first and LIKELIHOOD not in terms:
            hint = (
                f"The likelihood was still finite, so a penalty of the method '{method}' overflowed: "
                "look at its scales (method.*), then lower optimizer.lr."
            )
        else:
            hint = "The steps are too large. Lower optimizer.lr, or lengthen optimizer.warmup."
        if optimizer.precision == "bfloat16":
            hint += (
                " bfloat16 holds 8 significant bits: optimizer.precision=float32 tells whether it is that."
            )
        what = f"term {names} is" if len(terms) == 1 else f"terms {names} are"
        return (
            f"the loss {what} not finite at step {step + 1} (epoch {epoch}), learning rate {rate:.3g}. {hint}"
        )
