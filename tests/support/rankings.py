"""Rankings of trials that were never trained, for tables and figures of searches."""

from retinabench.experiments.config import load_run
from retinabench.experiments.search.ranking import Trial, TrialRanking, in_order
from retinabench.experiments.search.space import points, read_space


def made_ranking(space, values, states=None):
    run = load_run("demo/map", data="x")
    rows = [
        Trial(i, point, run, (states or {}).get(i, "done"), value, "it broke" if i in (states or {}) else "",
            1.0, 1, None)
        for i, (point, value) in enumerate(zip(points(space, 0, len(values), 0), values, strict=True))
    ]  # fmt: skip
    return TrialRanking("in_domain_auroc", "corrected", space, in_order(rows))


def mixed_ranking():
    """Forty trials: 1 and 2 without a value, the others the better the later."""
    values = [0.5 + 0.01 * i for i in range(40)]
    values[1] = values[2] = float("nan")
    return made_ranking(read_space("published/fsvi"), values, {1: "diverged", 2: "out_of_memory"})
