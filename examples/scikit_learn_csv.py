"""A classifier of scikit-learn writes a CSV; retinabench says whether its uncertainty can drive referral.

    python examples/scikit_learn_csv.py [folder]

Any tool that writes such a CSV can stand in for the first half. No image is needed: here the "images" are two dozen
numbers per eye, drawn at random, two eyes a patient.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import retinabench as rb

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)

# --------------------------------------------------------------- your side: train, predict, write tables

rng = np.random.default_rng(0)
loadings = rng.uniform(0, 1, 24)


def examined(patients):
    """Features and labels of both eyes of each patient."""
    severity = np.repeat(rng.normal(size=patients), 2) + rng.normal(0, 0.5, 2 * patients)
    features = severity[:, None] * loadings + rng.normal(0, 2, (2 * patients, 24))
    return features, (severity > 0.8).astype(int)


features, label = examined(900)
patient = np.repeat(np.arange(900), 2)
train, validation, test = (patient % 3 == k for k in range(3))  # split by patient, never by image
model = RandomForestClassifier(200, min_samples_leaf=5, random_state=0).fit(features[train], label[train])

path = folder / "predictions.csv"
with open(path, "w") as table:
    table.write("image_id,patient_id,label,prob,split\n")
    for name, rows in (("validation", validation), ("test", test)):
        prob = model.predict_proba(features[rows])[:, 1]
        for k, p in zip(np.flatnonzero(rows), prob, strict=True):
            table.write(f"eye{k},patient{patient[k]},{label[k]},{p},{name}\n")

# The patients of a year to come: each day's list has no labels yet (today.csv), which experts add later (new.csv).
features, label = examined(300)
with open(folder / "today.csv", "w") as today, open(folder / "new.csv", "w") as new:
    today.write("image_id,patient_id,prob\n")
    new.write("image_id,patient_id,label,prob,date\n")
    for k, p in enumerate(model.predict_proba(features)[:, 1]):
        new.write(f"new-eye{k},new-patient{k // 2},{label[k]},{p},2026-{k // 50 + 1:02d}-15\n")
        if k >= 550:  # those of December
            today.write(f"new-eye{k},new-patient{k // 2},{p}\n")

# ---------------------------------------------------------------------------------------------- our side

predictions = rb.read_predictions(path)
scores = rb.score(predictions, bootstrap=500)["in_domain"]
for name in ("accuracy", "auroc", "failure_auroc", "referral_accuracy_area"):
    print(f"{name:24s} {scores[name].value:.3f}  ({scores[name].low:.3f} to {scores[name].high:.3f})")

# The command line does the same:  retinabench score predictions.csv

found = rb.transfer(predictions, target="selective_risk", goal=0.15, delta=0.1, bootstrap=500)
if found.threshold is None:
    print("\n".join(found.notes))
else:
    realised = found["in_domain"]
    print(f"\nRefer images of uncertainty above {found.threshold:.3f}: certified on validation that at most 15 %")
    print("of the retained are wrong, with 90 % confidence. On the test patients:")
    for name, one in (("referral rate", realised.referral_rate), ("selective risk", realised.selective_risk)):
        print(f"  {name:15s} {one.value:.3f}  ({one.low:.3f} to {one.high:.3f})")
    print(f"  the guarantee: {realised.guarantee}")
