"""Layers that draw, and the surgery that puts them into any network.

A layer draws from the generators that it is handed (`use_generator`, `use_draws`), never from the global one.
"""

from __future__ import annotations

from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator
from retinabench.models.stochastic.dropout import Dropout, add_dropout, dropout_sites
from retinabench.models.stochastic.rank1 import Rank1
from retinabench.models.stochastic.surgery import kl, kl_terms, swap
from retinabench.models.stochastic.variational import Prior, Variational

__all__ = [
    "Draw", "Dropout", "Prior", "Rank1", "Variational",
    "add_dropout", "dropout_sites", "kl", "kl_terms", "swap", "use_draws", "use_generator",
]  # fmt: skip
