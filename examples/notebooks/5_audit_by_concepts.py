# %% [markdown]
# # Audit a classifier by concepts
#
# Which lesions does a classifier recognise? Labels of lesions exist for few images, and an answer may be dear (a simulator, a
# model behind a counter, a reader). An examination asks as few questions "is there a haemorrhage in this image?" as it can, and
# its statements hold at the stated rate. Here the examinee is simulated, so that every statement can be held against the truth.

# %%
import matplotlib.pyplot as plt
import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.examination import examine

CONCEPTS = ("microaneurysm", "haemorrhage", "hard exudate", "soft exudate")
SHARE = (0.4, 0.3, 0.3, 0.15)  # of the images that show it
SENSITIVITY = (0.92, 0.80, 0.95, 0.55)  # of the examinee
SPECIFICITY = (0.97, 0.95, 0.96, 0.98)


def auditorium(seed: int, images: int = 600) -> tuple[Bank, np.ndarray]:
    """A bank of questions with their truth (n, c), and the examinee's answers P(yes) (n, c)."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((images, 4)) < SHARE).astype(np.int8)
    right = rng.random((images, 4)) < np.where(truth == 1, SENSITIVITY, SPECIFICITY)
    sure = rng.uniform(0.6, 1.0, (images, 4))
    return Bank([f"image-{k}" for k in range(images)], CONCEPTS, truth), np.where(right == (truth == 1), sure, 1 - sure)


bank, answers = auditorium(0)


def examinee(sample: int, concept: str) -> float:
    """P(yes): your model goes here. It is called only for the questions that are asked."""
    return float(answers[sample, CONCEPTS.index(concept)])


# %% [markdown]
# ## Rates from 300 of 2,400 questions
#
# The strategy `precision` asks next about the concept and truth whose rate is known least precisely. Its intervals are for the rate that
# asking *every* question would give.

# %%
found = examine(bank, examinee, strategy="precision", questions=300)


def whole_bank(concept: int) -> float:
    """The sensitivity that asking every question would give: the truth, which the examination does not know."""
    return float((answers[bank.truth[:, concept] == 1, concept] >= 0.5).mean())


figure, panel = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
for place, name in enumerate(CONCEPTS):
    one = found.to_dict()["concepts"][name]["sensitivity"]
    panel.plot([one["low"], one["high"]], [place, place], color="C0")
    panel.plot(one["value"], place, "o", color="C0")
    panel.plot(whole_bank(place), place, "|", color="C3", markersize=16, markeredgewidth=2)
    print(
        f"{name:14} {one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f}) from {one['asked']:3} of {one['of']:3}; truth {whole_bank(place):.2f}"
    )
panel.axvline(0.85, color="0.5", linestyle="--")
panel.set(xlabel="sensitivity (red: by every question)", ylim=(3.5, -0.5), xlim=(0, 1))
panel.set_yticks(range(4), CONCEPTS)
plt.show()

# %% [markdown]
# An eighth of the questions tells which lesion is missed. Do the intervals hold as often as they say? Forty examinations of other banks:

# %%
held = []
for seed in range(1, 41):
    bank, answers = auditorium(seed, images=300)
    seen = examine(bank, examinee, strategy="precision", questions=120).to_dict()["concepts"]
    held += [
        seen[name]["sensitivity"]["low"] <= whole_bank(k) <= seen[name]["sensitivity"]["high"]
        for k, name in enumerate(CONCEPTS)
    ]
error = np.sqrt(0.95 * 0.05 / len(held))
print(f"{np.mean(held):.1%} of {len(held)} intervals hold the truth; 95 % would, give or take {2 * error:.1%}")

# %% [markdown]
# ## A claim, with as few questions as it takes
#
# An auditor often wants a verdict: *the sensitivity for soft exudates is at least 85 %*. A claim is decided by a sequential test: one
# may look after every answer and stop when it is decided; that any of several verdicts is wrong has a chance of at most 5 %.

# %%
bank, answers = auditorium(0)
claims = [f"sensitivity of {name} >= 0.85" for name in CONCEPTS]
verdicts = examine(bank, examinee, strategy="claims", claim=claims)
for claim, k in zip(verdicts.claims, range(4), strict=True):
    print(f"{claim.text:40} {claim.decided:10} truth {whole_bank(k):.2f}")
asked = int(verdicts.bins.sum())
print(f"{asked} questions in all, of {int(bank.cells.sum())}")
print(f"All positives of the four concepts, which a study of fixed size would ask about: {int(bank.cells[:, 1].sum())}")

# %% [markdown]
# The clear cases are decided after a few questions, and what lies near the limit costs the most. A claim is about the images of this
# bank and must be stated before the answers are seen. It does not say that the model looks at the lesion which it names: where two
# concepts nearly always come together, answers about one may come from the other ([Concepts](../concepts.md)).
#
# `retinabench examine --answers answers.csv --truth truth.csv` does this with two tables, and `retinabench lesions idrid` with a
# network and the masks of IDRiD.
