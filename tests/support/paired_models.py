import numpy as np

import retinabench as rb


def models(seed=0, patients=120, quality=(1.5, 1.0), domains=False):
    """Predictions of several models on the same two eyes per patient; `quality` is the signal of each."""
    rng = np.random.default_rng(seed)
    n = 2 * patients
    patient = np.repeat([f"p{k}" for k in range(patients)], 2)
    hard = np.repeat(rng.normal(size=patients), 2)
    y = (rng.random(n) < 1 / (1 + np.exp(-hard + 0.5))).astype(int)
    noise = rng.normal(size=n)
    found = []
    for signal in quality:
        z = signal * (2 * y - 1) + noise + rng.normal(size=n)
        found.append(
            rb.Predictions(
                [f"i{k}" for k in range(n)], y, 1 / (1 + np.exp(-z)), patient_id=patient,
                domain=np.where(np.arange(n) < n // 2, "in_domain", "shifted") if domains else None,
            )
        )  # fmt: skip
    return found
