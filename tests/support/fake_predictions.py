"""Plausible predictions without a model: patients with two eyes, readers who err, methods that differ."""

import numpy as np

from retinabench.predictions.table import Predictions

GRADES = {"in_domain": (0.73, 0.07, 0.15, 0.03, 0.02), "shifted": (0.49, 0.10, 0.27, 0.06, 0.08)}
EVIDENCE = np.array([-2.6, -1.3, 1.2, 2.6, 3.2])  # log-odds that a perfect model sees, by grade
METHODS = {  # name: (samples, members, noise of a sample, strength of what the noise knows, miscalibration)
    "MAP": (1, 1, 0.8, 0.0, 1.7),
    "MC dropout": (10, 1, 0.9, 0.7, 1.3),
    "deep ensemble of 3": (3, 3, 0.9, 1.0, 1.1),
    "variational": (10, 1, 1.2, 0.3, 1.2),
    "MC dropout ensemble of 3": (15, 3, 0.9, 1.0, 1.0),
}


def population(n_in_domain: int = 1000, n_shifted: int = 600, seed: int = 0) -> dict[str, np.ndarray]:
    """Image ids, patients, domains, grades and labels of one imagined test set."""
    rng = np.random.default_rng(seed)
    parts = []
    for domain, n in (("in_domain", n_in_domain), ("shifted", n_shifted)):
        patient = np.arange(n) // 2
        severity = np.repeat(rng.uniform(size=(n + 1) // 2), 2)[:n]
        own = rng.uniform(size=n)
        mixed = np.where(rng.uniform(size=n) < 0.7, severity, own)  # the eyes of a patient are alike
        grade = np.searchsorted(np.cumsum(GRADES[domain])[:-1], mixed)
        parts.append(
            {
                "image_id": np.array([f"{domain}-{i:05d}" for i in range(n)]),
                "patient_id": np.array([f"{domain}-p{p}" for p in patient]), "domain": np.full(n, domain),
                "grade": grade, "label": (grade >= 2).astype(int),
                "hardness": rng.gamma(2.0, 0.5, n) * (1.9 if domain == "shifted" else 1.0),
            }
        )  # fmt: skip
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def predictions(
    method: str = "MAP", seed: int = 0, people: dict[str, np.ndarray] | None = None, **metadata: object
) -> Predictions:
    people = population() if people is None else people
    samples, members, noise, knows, sharp = METHODS[method]
    shared = np.random.default_rng(99)  # what makes an image hard is hard for every method
    rng = np.random.default_rng([seed, sorted(METHODS).index(method)])
    n = len(people["label"])
    hard = people["hardness"]
    centre = EVIDENCE[people["grade"]] + shared.normal(size=n) * hard * 1.3
    centre = centre + rng.normal(size=n) * hard * noise / np.sqrt(members) * 0.7
    spread = noise * (0.4 + knows * hard)
    logits = sharp * (centre[:, None] + rng.normal(size=(n, samples)) * (spread[:, None] if samples > 1 else 0))
    return Predictions(
        image_id=people["image_id"], label=people["label"], probs=1 / (1 + np.exp(-logits)), grade=people["grade"],
        patient_id=people["patient_id"], domain=people["domain"],
        metadata={"method": method, "seed": seed, "members": members, "config_hash": f"{seed:08x}", **metadata},
    )  # fmt: skip
