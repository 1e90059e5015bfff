"""The guided walk (Gustafson 1998): a Metropolis chain of each coordinate that keeps its direction until it is refused.

Propose x' = x + d |e|, e ~ N(0, step²); accept with probability min(1, π(x') / π(x)), otherwise stay and turn round, d ← -d. The
pair (x, d) has the stationary law π(x) / 2. Here π = N(0, s²), each coordinate on its own.
"""

from __future__ import annotations

import torch
from torch import Tensor


def guided_walk(
    position: Tensor, direction: Tensor, noise: Tensor, uniform: Tensor, deviation: float
) -> tuple[Tensor, Tensor]:
    """Move every coordinate once: positions and directions ±1 (P,), given e (P,), u ~ U[0, 1] (P,) and s."""
    proposal = position + direction * noise.abs()
    # The difference of the squares as a product: exact where the two are close.
    log_ratio = (position - proposal) * (position + proposal) / (2 * deviation**2)
    accepted = uniform <= log_ratio.exp()
    return torch.where(accepted, proposal, position), torch.where(accepted, direction, -direction)
