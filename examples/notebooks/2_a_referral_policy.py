# %% [markdown]
# # A referral policy with a guarantee
#
# A model reads screening images, and the uncertain ones go to an expert. How uncertain is too uncertain? The threshold that
# reaches 5 % error on *your validation images* is the best of many candidates, so it looks better than it is. This page shows
# how often it fails on new patients, what a certified threshold does instead, what that costs, and what happens when the
# population changes. The model is simulated, so that the truth is known.

# %%
import matplotlib.pyplot as plt
import numpy as np

import retinabench as rb

GOAL, DELTA = 0.05, 0.1  # at most 5 % errors among the images that are not referred, with 90 % confidence


def screened(seed: int, patients: int, split: str = "test", noise: float = 0.3) -> rb.Predictions:
    """Two eyes per patient; `noise` is what the camera adds to the severity that the model sees."""
    rng = np.random.default_rng(seed)
    severity = np.repeat(rng.normal(-1.5, 1.8, patients), 2) + rng.normal(0, 0.8, 2 * patients)
    label = rng.random(2 * patients) < 1 / (1 + np.exp(-1.4 * severity))
    prob = 1 / (1 + np.exp(-1.4 * (severity + noise * rng.normal(size=len(severity)))))
    names = np.char.add(f"{split}-{seed}-", np.arange(2 * patients).astype(str))
    owners = np.char.add(f"{split}-{seed}-p", np.repeat(np.arange(patients), 2).astype(str))
    return rb.Predictions(names, label, prob, patient_id=owners, split=np.full(len(prob), split))


def joined(validation: rb.Predictions, test: rb.Predictions) -> rb.Predictions:
    columns = ("image_id", "label", "probs", "patient_id", "split")
    return rb.Predictions(*(np.concatenate([getattr(validation, c), getattr(test, c)]) for c in columns[:3]),
                          **{c: np.concatenate([getattr(validation, c), getattr(test, c)]) for c in columns[3:]})  # fmt: skip


clinic = joined(screened(0, 500, "validation"), screened(1, 500))
clinic.plot()
plt.show()

# %% [markdown]
# ## Two thresholds
#
# `transfer` chooses the threshold on the validation images, freezes it, and reports what it does on the test images. Without
# `delta` it takes the largest threshold whose *estimate* meets the goal; with `delta`, the largest that can be certified.

# %%
plain = rb.transfer(clinic, "selective_risk", GOAL, bootstrap=199)
certified = rb.transfer(clinic, "selective_risk", GOAL, delta=DELTA, bootstrap=199)
for name, found in (("plain", plain), ("certified", certified)):
    one = found["in_domain"]
    print(f"{name:9} refers {one.referral_rate.value:.0%}, error of the rest {one.selective_risk.value:.1%} "
          f"({one.selective_risk.low:.1%} to {one.selective_risk.high:.1%}), guarantee: {one.guarantee}")  # fmt: skip
certified.plot()
plt.show()

# %% [markdown]
# One data set proves nothing. So the study is repeated: 40 clinics of 300 validation patients each, and the true risk of every
# threshold, from 40,000 further patients. A certified result also holds the plain choice.

# %%
population = screened(10_000, 40_000)
doubt = 1 - np.maximum(population.prob, 1 - population.prob)  # one of the orderings that `transfer` knows
wrong = (population.prob > 0.5) != population.label


def truth(threshold: float | None) -> tuple[float, float]:
    """The true error of the images that are not referred, and the share of those that are."""
    kept = doubt <= (-1 if threshold is None else threshold)
    return float(wrong[kept].mean()) if kept.any() else 0.0, float(1 - kept.mean())


few = screened(20_000, 20)
found = [
    rb.transfer(joined(screened(seed, 300, "validation"), few), "selective_risk", GOAL, delta=DELTA,
                uncertainty="max_probability", bootstrap=199)
    for seed in range(40)
]  # fmt: skip
results = {
    "plain": np.array([truth(one.choice.threshold) for one in found]),
    "certified": np.array([truth(one.threshold) for one in found]),
}

figure, panel = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for kind, points in results.items():
    panel.scatter(points[:, 1], points[:, 0], s=14, alpha=0.7, label=kind)
panel.axhline(GOAL, color="black", linewidth=1, linestyle="--")
panel.set(xlabel="share of images referred", ylabel="true error of the rest", xlim=(0, None))
panel.legend(frameon=False)
plt.show()
for kind, points in results.items():
    broken = np.sum(points[:, 0] > GOAL)
    print(f"{kind:9} breaks the goal in {broken} of 40 clinics, refers {points[:, 1].mean():.0%} on average")

# %% [markdown]
# The plain threshold breaks its goal in about every second clinic or more. The certified one may do so in at most 10 % of them,
# and refers more images. That is the price of a promise, and it falls with the number of validation patients.
#
# ## And with another camera?
#
# The promise is about patients and images like those of the validation split. Here is a camera that adds noise, of which the
# model knows nothing: it is as sure as before. `guarantee` says what the new labels show: `holds`, `not refuted`, or `broken`.

# %%
other = rb.transfer(
    joined(screened(0, 500, "validation"), screened(2, 500, noise=1.5)),
    "selective_risk",
    GOAL,
    delta=DELTA,
    bootstrap=199,
)["in_domain"]
assert other.resemblance is not None
print(f"referred {other.referral_rate.value:.0%}, error of the rest {other.selective_risk.value:.1%} "
      f"({other.selective_risk.low:.1%} to {other.selective_risk.high:.1%}), guarantee: {other.guarantee}")  # fmt: skip
print(f"the screen for covariate shift, which needs no labels: p = {other.resemblance.p_value:.3f}")

# %% [markdown]
# Fewer images are referred than before, and the error is far above the goal: the labels refute the certificate. The screen
# noticed before any label that these images are not like those of the validation split. Follow a certificate over time with
# `retinabench monitor` ([A certificate on new data](../monitoring.md)); [Guarantees](../guarantees.md) lists what else can be
# certified: sensitivity, NPV, missed severe disease, workload, and two thresholds at once (`rb.triage`).
