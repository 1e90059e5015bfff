"""Predictions as arrays, as TensorFlow, JAX or anything else gives them: score two models and compare them.

    python examples/arrays_only.py

Replace the drawn numbers by `np.asarray(model(images))`. The last part shows the classic interface
`estimator(images) -> (mean, uncertainty)`, with a function of NumPy arrays for a network.
"""

import numpy as np

import retinabench as rb
from retinabench.metrics.arrays import Arrays

rng = np.random.default_rng(0)
n = 800
patient = np.repeat(np.arange(n // 2), 2)
severity = np.repeat(rng.normal(size=n // 2), 2) + rng.normal(0, 0.3, n)
label = (severity > 0.8).astype(int)
image_id = [f"eye{k}" for k in range(n)]


def probabilities(noise):
    """Stands for a network: float32, shape (n,)."""
    return (1 / (1 + np.exp(-4 * (severity - 0.8 + noise * rng.normal(size=n))))).astype(np.float32)


first = rb.Predictions(image_id, label, probabilities(0.4), patient_id=patient)
second = rb.Predictions(image_id, label, probabilities(0.6), patient_id=patient)

difference = rb.compare(first, second, bootstrap=500, scores=["accuracy", "auroc", "referral_accuracy_area"])
for name, one in difference["in_domain"].scores.items():
    print(
        f"{name:24s} {one.a:.3f} - {one.b:.3f} = {one.difference:+.3f}"
        f"  ({one.low:+.3f} to {one.high:+.3f}), p = {one.p_adjusted:.3f}"
    )

curve = rb.referral_curve(label, first.prob, first.prob * (1 - first.prob), metric="accuracy")
print(f"accuracy with nothing referred {curve.value[0]:.3f}, with the most uncertain half referred {curve.at(0.5):.3f}")

# ------------------------------------------------------------------- estimator(images) -> (mean, uncertainty)

brightness = (128 + 40 * severity + rng.normal(0, 20, n)).clip(0, 255).astype(np.uint8)
images = np.broadcast_to(brightness[:, None, None, None], (n, 16, 16, 3)).copy()


def estimator(batch):
    """batch: (B, H, W, 3) float32 in [0, 1]."""
    mean = 1 / (1 + np.exp(-40 * (batch.mean(axis=(1, 2, 3)) - 0.62)))
    return mean, np.sqrt(mean * (1 - mean))


scores = rb.evaluate(estimator, Arrays(images, label, patient_id=patient), bootstrap=200)
print(f"the estimator's AUROC: {scores.value('auroc'):.3f}")
