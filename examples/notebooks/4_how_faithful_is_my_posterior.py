# %% [markdown]
# # How faithful is my posterior?
#
# A Bayesian network is judged by two different questions. Is it *useful*: right, calibrated, unsure where it errs? And is it
# *faithful*: does it come close to the posterior that its prior and likelihood define? This page measures faithfulness, first where
# the posterior is known exactly, then against a reference that comes with the package.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from retinabench.fidelity import distances
from retinabench.fidelity.leaderboard.files import make_evaluator
from retinabench.fidelity.submissions.submission import Submission
from retinabench.fidelity.targets.target import TARGETS

rng = np.random.default_rng(3)

# %% [markdown]
# ## A posterior that is known exactly
#
# Logistic regression with two weights and a prior N(0, 3² I), on 40 points whose two inputs are nearly the same: the data know the
# sum of the weights well and their difference badly. The posterior is a function on the plane, which a fine grid holds.

# %%
inputs = np.repeat(rng.normal(size=(40, 1)), 2, axis=1) + 0.25 * rng.normal(size=(40, 2))
label = (inputs @ np.array([1.5, 0.0]) + rng.logistic(size=40) > 0).astype(float)


def log_posterior(weights: np.ndarray) -> np.ndarray:
    """Of weights (..., 2), up to a constant."""
    logits = weights @ inputs.T
    return (label * logits - np.logaddexp(0, logits)).sum(-1) - (weights**2).sum(-1) / (2 * 3.0**2)


side = np.linspace(-9, 9, 361)
grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
mass = np.exp(log_posterior(grid) - log_posterior(grid).max())
mass /= mass.sum()

mode = minimize(lambda w: -log_posterior(w), np.zeros(2)).x
p = 1 / (1 + np.exp(-inputs @ mode))
precision = (inputs * (p * (1 - p))[:, None]).T @ inputs + np.eye(2) / 3.0**2

approximations = {
    "exact": grid[rng.choice(len(grid), 2000, p=mass)],
    "MAP": np.repeat(mode[None], 2000, axis=0),
    "Laplace": rng.multivariate_normal(mode, np.linalg.inv(precision), 2000),
    # The best independent Gaussian around the mode has the inverse of the precision's diagonal as its variances.
    "mean-field": mode + rng.normal(size=(2000, 2)) / np.sqrt(np.diag(precision)),
    "cold, T = 0.1": mode + (rng.multivariate_normal(np.zeros(2), np.linalg.inv(precision), 2000)) * np.sqrt(0.1),
}

figure, panels = plt.subplots(1, 5, figsize=(10, 2.4), sharex=True, sharey=True, layout="constrained")
for panel, (name, draws) in zip(panels, approximations.items(), strict=True):
    panel.contour(side, side, mass.reshape(361, 361).T, levels=6, colors="0.6", linewidths=0.8)
    panel.plot(*draws[:300].T, ".", markersize=2)
    panel.set(title=name, xlim=(-3, 4), ylim=(-3, 4.5))
plt.show()

# %% [markdown]
# ## Measured by predictions
#
# Weights of a network cannot be compared directly, predictions can: at test points near the data and far from them, how often is
# the same class named (*agreement*), how far apart are the probabilities (*total variation*), and how far the mutual information of
# weights and label (*epistemic error*), which a referral would be ordered by?

# %%
test = np.concatenate([inputs, 2 * rng.normal(size=(300, 2))])


def samples_of(draws: np.ndarray) -> np.ndarray:
    """Class probabilities (S, N, 2) of weights (S, 2)."""
    positive = 1 / (1 + np.exp(-draws @ test.T))
    return np.stack([1 - positive, positive], axis=-1)


second = grid[rng.choice(len(grid), 2000, p=mass)]
reference = samples_of(second)  # the same posterior, other draws: what "exact" scores is the noise of 2,000 draws
print(f"{'':14}  agreement  total variation  epistemic error, nats")
table = {}
for name, draws in approximations.items():
    samples = samples_of(draws)
    table[name] = (
        distances.agreement(samples.mean(0), reference.mean(0)).mean(),
        distances.total_variation(samples.mean(0), reference.mean(0)).mean(),
        np.abs(distances.epistemic(samples) - distances.epistemic(reference)).mean(),
    )
    print(f"{name:14}  {table[name][0]:9.3f}  {table[name][1]:15.3f}  {table[name][2]:14.3f}")

# %% [markdown]
# All name the same class everywhere: agreement alone tells nothing. MAP, the cold posterior and the independent Gaussian are too
# sure of the difference of the weights, which the test points away from the data depend on; their epistemic uncertainty is wrong by
# ten times as much as that of Laplace's approximation, which follows the correlation.
#
# ## Against a reference of a network
#
# For networks the reference is Hamiltonian Monte Carlo, whose own uncertainty is the *ceiling*: what one chain scores against the
# others. `fundus-small` is such a target: a convolutional network with 61,581 weights on a hundred drawn retinas. What do few draws,
# or a point, cost there? Draws of the reference itself show it without any training.

# %%
target = TARGETS.find("fundus-small")
evaluator = make_evaluator(target, None, None, bootstrap=300)
draws = evaluator.reference.samples
assert draws is not None
pooled = draws.mean(axis=0)
cold = pooled**4 / (pooled**4).sum(axis=-1, keepdims=True)
submissions = {
    "one draw": draws[:1],
    "3 draws": draws[:: len(draws) // 3][:3],
    "10 draws": draws[:: len(draws) // 10][:10],
    "too sure: p⁴": cold[None],
}
results = {name: evaluator.grade(Submission(probs=s.mean(axis=0), samples=s))["all"] for name, s in submissions.items()}
results["another chain (ceiling)"] = evaluator.ceiling["all"]

figure, panels = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True, layout="constrained")
for panel, measure in zip(panels, ("agreement", "total_variation"), strict=True):
    for place, one in enumerate(results.values()):
        panel.plot(one[measure].interval(), [place, place], color="C0")
        panel.plot(one[measure].value, place, "o", color="C0")
    panel.set(xlabel=measure.replace("_", " "), ylim=(len(results) - 0.5, -0.5))
    panel.set_yticks(range(len(results)), list(results))
panels[1].axvline(evaluator.floor["all"]["total_variation"], color="0.5", linestyle="--")
plt.show()
for name, one in results.items():
    low, high = one["total_variation"].interval()
    print(f"{name:24} total variation {one['total_variation'].value:.3f} ({low:.3f} to {high:.3f})")

# %% [markdown]
# A single draw of the true posterior is far from it, and the distance falls about as one over the square root of the number of draws.
# Methods are therefore compared at equal numbers of samples. Being too sure keeps the agreement and ruins the probabilities. The dashed line is the
# noise floor of the reference: differences below it mean nothing.
#
# Your own method enters by its predictions: `retinabench fidelity score probabilities.csv --task fundus`, or, if it is a method of
# this package, by `retinabench fidelity run` within a counted budget ([Fidelity](../fidelity.md)).
