"""A screening programme with known properties: two eyes of a patient, grades, cameras, ages, ungradable images."""

import numpy as np

import retinabench as rb


def screened(n=300, seed=0, *, camera_drop=0.0, signal=4.0, columns=True):
    """In-domain test and validation images and shifted test images of n patients each; columns only where asked for. `camera_drop`
    lowers the logits of diseased eyes on camera B."""
    rng = np.random.default_rng(seed)
    blocks = [("in_domain", "test", 0.0), ("in_domain", "validation", 0.0), ("shifted", "test", -0.5)]
    parts = []
    for domain, split, offset in blocks:
        label = np.repeat(rng.random(n) < 0.25, 2)
        camera = np.repeat(rng.choice(["A", "B"], n), 2)
        z = signal * (label - 0.5) + np.repeat(rng.normal(size=n), 2) + rng.normal(size=2 * n) + offset
        parts.append({
            "label": label, "grade": np.where(label, rng.choice([2, 3, 4], 2 * n), rng.choice([0, 1], 2 * n)),
            "prob": 1 / (1 + np.exp(-(z - camera_drop * (label & (camera == "B"))))),
            "patient_id": np.repeat([f"{domain[0]}{split[0]}{k}" for k in range(n)], 2),
            "domain": np.full(2 * n, domain), "split": np.full(2 * n, split), "camera": camera,
            "age": np.repeat(rng.integers(30, 85, n).astype(float), 2),
            "gradable": (rng.random(2 * n) > 0.05).astype(float),
        })  # fmt: skip
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    further = {name: joined.pop(name) for name in ("camera", "age", "gradable")}
    ids = [f"image-{k:04d}" for k in range(len(joined["label"]))]
    label, prob = joined.pop("label"), joined.pop("prob")
    return rb.Predictions(ids, label, prob, **joined, subgroups=further if columns else {})


def two_domains(n=300, **changes):
    """Predictions of n images, two of a patient; the first 200 are in domain."""
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.3).astype(int)
    prob = 1 / (1 + np.exp(-(3 * y - 1.5 + rng.normal(size=n))))
    columns = {"patient_id": np.arange(n) // 2, "domain": np.where(np.arange(n) < 200, "in_domain", "shifted")}
    return rb.Predictions(np.arange(n), y, prob, **{**columns, **changes})


def drawn(signal=2.0, *, shift=0.0, scale=1.0, turned=1, uncertainty=None, n=1000, seed=0, **columns):
    """A model whose log odds are right up to shift and scale, at a prevalence of .2; AUROC is about .92 at signal 2. `uncertainty`
    makes the model's own from probabilities and labels."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.2).astype(int)
    right = signal * (rng.normal(size=n) + signal * label) - signal**2 / 2 + np.log(0.25)
    prob = 1 / (1 + np.exp(-turned * (scale * right + shift)))
    own = None if uncertainty is None else uncertainty(prob, label)
    return rb.Predictions([f"i{k}" for k in range(n)], label, prob, uncertainty=own, **columns)
