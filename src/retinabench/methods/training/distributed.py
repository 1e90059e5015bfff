"""Several processes that train one network together, started by `torchrun`; alone, every function here does nothing.

Each process takes its share of every batch and the gradients are summed over processes, so that the loss curve is that
of one process with the whole batch (batch norm apart: its statistics are per process, as in most published work).

PyTorch's DistributedDataParallel is not used: its wrapper expects one forward pass of the wrapped module per backward
pass, while the objectives here call the bare network several times, or parts of it, and add penalties on its
parameters. Summing the gradients between `backward` and the optimiser's step asks nothing of an objective. The price is
that the sum does not overlap with the backward pass: 94 MB for a ResNet-50.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from retinabench.core.errors import WorkError

PATIENCE = timedelta(hours=6)  # the others wait while the first process writes


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together: `rank` of `count`, from 0. The first one leads: it writes."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Tell whether this process writes files and reports progress."""
        return self.rank == 0


ALONE = Ranks()


def expected() -> bool:
    """Whether `torchrun` started this process with others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_device() -> str:
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def join(device: torch.device) -> Ranks:
    """Join the processes that `torchrun` started, by NCCL between GPUs and gloo between CPUs; a second call does nothing."""
    if expected() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    return current()


def current() -> Ranks:
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Ranks(dist.get_rank(), dist.get_world_size())


def wait() -> None:
    if current().count > 1:
        dist.barrier()


def total(value: Tensor) -> Tensor:
    """Sum `value` over processes, in place, and return it."""
    if current().count > 1:
        dist.all_reduce(value)
    return value


def leader_says(flag: bool, device: torch.device) -> bool:
    """Return the first process's `flag` in every process, which call this together."""
    if current().count == 1:
        return flag
    return bool(total(torch.tensor(float(flag and current().leads), device=device)))


def smallest(value: Tensor) -> Tensor:
    """Take the element-wise minimum of `value` over processes, in place, and return it."""
    if current().count > 1:
        dist.all_reduce(value, op=dist.ReduceOp.MIN)
    return value


def gather_rows(parts: Mapping[int, Tensor], count: int, device: torch.device) -> Tensor:
    """Return a table of which every process computed some rows, in host memory."""
    if current().count == 1:
        return torch.cat(list(parts.values()))
    width = torch.tensor(max((part.shape[1] for part in parts.values()), default=0), device=device)
    dist.all_reduce(width, op=dist.ReduceOp.MAX)
    table = torch.zeros(count, int(width), dtype=torch.float64, device=device)
    for start, part in parts.items():
        table[start : start + len(part)] = part.to(device)
    return total(table).cpu()  # the others' rows are 0 here


@torch.no_grad()
def sum_gradients(parameters: Iterable[Tensor]) -> None:
    """Sum the gradients over processes. A parameter that one process did not touch counts 0 there."""
    if current().count == 1:
        return
    trained = [p for p in parameters if p.requires_grad]
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in trained if p.grad is not None]
    flat = total(torch.cat([gradient.reshape(-1).float() for gradient in gradients]))
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view(gradient.shape))


def share_buffers(model: nn.Module) -> None:
    """Give every process the first one's running statistics, which come from other images."""
    if current().count > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


@torch.no_grad()
def check_equal(model: nn.Module) -> None:
    """Raise `WorkError` where the processes no longer hold the same weights.

    That happens to a method whose own noise, drawn differently on every process, enters the weights themselves.
    """
    if current().count > 1:
        # The extremes of every tensor: unlike a sum they do not depend on the order in which a card adds.
        ends = torch.stack([end.float() for p in model.parameters() for end in p.aminmax()]).nan_to_num()
        if not torch.equal(smallest(ends.clone()), -smallest(-ends)):
            raise WorkError(
                "the processes no longer hold the same weights: this method cannot be trained by several. "
                "Start it without torchrun."
            )
