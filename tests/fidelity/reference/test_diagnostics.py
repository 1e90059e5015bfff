import numpy as np
import pytest

from retinabench.fidelity.reference.diagnostics import (
    ess_bulk,
    ess_mean,
    ess_tail,
    mcse,
    rank_rhat,
    split_rhat,
)
from support.oracles import import_arviz

az = import_arviz()


def chains(seed=0, chains=4, draws=200, persistence=(0.0, 0.5, 0.95, -0.6), offset=0.0):
    """Autoregressive chains; `offset` shifts the first one."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(chains, draws, len(persistence)))
    for t in range(1, draws):
        x[:, t] += np.array(persistence) * x[:, t - 1]
    x[0] += offset
    return x


CASES = {
    "mixed": chains(),
    "apart": chains(1, offset=3.0),
    "odd": chains(2, draws=101),
    "short": chains(3, draws=12),
    "ties": np.round(chains(4)),
    "many": chains(5, chains=8, draws=50),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (split_rhat, lambda x: az.rhat(x, method="split")),
        (rank_rhat, lambda x: az.rhat(x, method="rank")),
        (ess_mean, lambda x: az.ess(x, method="mean")),
        (ess_bulk, lambda x: az.ess(x, method="bulk")),
        (ess_tail, lambda x: az.ess(x, method="tail")),
        (mcse, lambda x: az.mcse(x, method="mean")),
    ],
)
def test_every_diagnostic_equals_arviz(case, ours, theirs):
    x = CASES[case]
    truth = [
        np.asarray(theirs(x[:, :, p])).item() for p in range(x.shape[2])
    ]  # an array of one where Numba is installed
    assert ours(x) == pytest.approx(truth, rel=1e-8)
