"""Several probabilities per image (dropout passes, ensemble members): which uncertainty should drive referral?

    python examples/monte_carlo_samples.py [folder]

The spread of the samples splits total uncertainty into the part that more data would remove (epistemic) and the part it
would not (aleatoric). Here the model knows old cameras; on a new one its samples disagree.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import retinabench as rb

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
rng = np.random.default_rng(0)
n, samples = 1000, 20
patient = np.repeat(np.arange(n // 2), 2)
shifted = patient >= 300
severity = np.repeat(rng.normal(size=n // 2), 2) + rng.normal(0, 0.3, n)
label = (severity > 0.8).astype(int)

# (n, samples): what a loop over `model(images, training=True)` collects. The new camera makes the passes disagree.
spread = np.where(shifted, 2.5, 0.5)
logit = 4 * (severity - 0.8) + spread * rng.normal(size=n)
probs = 1 / (1 + np.exp(-(logit[:, None] + spread[:, None] * rng.normal(size=(n, samples)))))

predictions = rb.Predictions(
    [f"eye{k}" for k in range(n)],
    label,
    probs,
    patient_id=patient,
    domain=np.where(shifted, "shifted", "in_domain"),
    metadata={"method": "Monte Carlo dropout", "seed": 0},
)
path = folder / "predictions.parquet"
rb.write_predictions(predictions, path)

print("referral by      accuracy area, in domain   accuracy area, shifted   detects the new camera (AUROC)")
for uncertainty in ("total", "epistemic", "aleatoric"):
    scores = rb.score(rb.read_predictions(path), uncertainty=uncertainty, bootstrap=0)
    values = [scores.value("referral_accuracy_area", name) for name in ("in_domain", "shifted")]
    print(f"{uncertainty:16s} {values[0]:25.3f} {values[1]:24.3f} {scores.value('ood_auroc', 'joint'):32.3f}")
