import numpy as np

import retinabench as rb
from retinabench.metrics.clinical.groups import subgroups_of


def screened(n=300, seed=0, drop=0.0, **columns):
    """Two eyes each; `drop` lowers the logits of diseased eyes on camera B."""
    rng = np.random.default_rng(seed)
    label = np.repeat(rng.random(n) < 0.4, 2)
    camera = np.repeat(np.where(np.arange(n) % 2, "B", "A"), 2)
    z = 4 * label - 2 + np.repeat(rng.normal(size=n), 2) + rng.normal(size=2 * n)
    prob = 1 / (1 + np.exp(-(z - drop * (label & (camera == "B")))))
    given = {"camera": camera, **{name: np.repeat(values, 2) for name, values in columns.items()}}
    return rb.Predictions(np.arange(2 * n), label, prob, patient_id=np.repeat(np.arange(n), 2), subgroups=given)


def groups(part, **arguments):
    return subgroups_of(part, part.prob > 0.5, np.arange(len(part)) % 4 == 0, **arguments)
