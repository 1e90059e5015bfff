"""The printed values that ours stand beside."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """A mean and what follows its ± (None: not printed), for the log-likelihood and the RMSE."""

    log_likelihood: float
    log_likelihood_spread: float | None
    rmse: float
    rmse_spread: float | None


# Table 2 of the 2019 paper, which took the deep ensembles from Lakshminarayanan et al. 2017 and the other two from
# Mukhoti et al. 2018. Kept as printed, impossible values included (docs/uci.md).
PUBLISHED: dict[str, dict[str, Printed]] = {
    "boston": {
        "dropout": Printed(-2.46, 0.25, 2.97, 0.85),
        "variational": Printed(-2.58, 0.06, 3.42, 0.23),
        "ensemble": Printed(-2.41, 0.25, 3.28, 1.00),
    },
    "concrete": {
        "dropout": Printed(-3.04, 0.09, 5.23, 0.53),
        "variational": Printed(-5.08, 0.01, 5.71, 0.15),
        "ensemble": Printed(-3.06, 0.18, 6.03, 0.58),
    },
    "energy": {
        "dropout": Printed(-1.99, 0.09, 1.66, 0.19),
        "variational": Printed(-1.05, 0.01, 0.81, 0.08),
        "ensemble": Printed(-1.38, 0.22, 2.09, 0.29),
    },
    "kin8nm": {
        "dropout": Printed(0.95, 0.03, 0.10, 0.00),
        "variational": Printed(1.08, 0.01, 0.37, 0.00),
        "ensemble": Printed(1.20, 0.02, 0.09, 0.00),
    },
    "naval": {
        "dropout": Printed(3.80, 0.05, 0.01, 0.00),
        "variational": Printed(-1.57, 0.01, 0.01, 0.00),
        "ensemble": Printed(5.63, 0.05, 0.00, 0.00),
    },
    "power": {
        "dropout": Printed(-2.80, 0.05, 4.02, 0.18),
        "variational": Printed(-7.54, 0.00, 4.02, 0.04),
        "ensemble": Printed(-2.79, 0.04, 4.11, 0.17),
    },
    "protein": {
        "dropout": Printed(-2.89, 0.01, 4.36, 0.04),
        "variational": Printed(-3.67, 0.00, 4.40, 0.02),
        "ensemble": Printed(-2.83, 0.02, 4.71, 0.06),
    },
    "wine": {
        "dropout": Printed(-0.93, 0.06, 0.62, 0.04),
        "variational": Printed(-3.15, 0.01, 0.65, 0.01),
        "ensemble": Printed(-0.94, 0.12, 0.64, 0.04),
    },
    "yacht": {
        "dropout": Printed(-1.55, 0.12, 1.11, 0.38),
        "variational": Printed(-4.20, 0.05, 1.75, 0.42),
        "ensemble": Printed(-1.18, 0.21, 1.58, 0.48),
    },
}

# The grid search of the released MC dropout code, many more epochs than Table 2's.
GRID_SEARCH: dict[str, Printed] = {
    "boston": Printed(-2.40, None, 2.90, None),
    "concrete": Printed(-2.93, None, 4.82, None),
    "energy": Printed(-1.21, None, 0.54, None),
    "kin8nm": Printed(1.14, None, 0.08, None),
    "naval": Printed(4.45, None, 0.00, None),
    "power": Printed(-2.80, None, 4.01, None),
    "protein": Printed(-2.87, None, 4.27, None),
    "wine": Printed(-0.93, None, 0.62, None),
    "yacht": Printed(-1.25, None, 0.67, None),
}
