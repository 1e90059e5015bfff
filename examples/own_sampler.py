"""A sampler of your own on a target of the fidelity benchmark: Hamiltonian Monte Carlo on a linear head, in NumPy alone.

    python examples/own_sampler.py                                # writes draws.npz, seconds
    retinabench fidelity score draws.npz --task idrid-head        # how near it comes to the true posterior

In JAX `energy` is the same with `jax.numpy`, and its gradient `jax.grad(energy)`.
"""

import numpy as np
from scipy.special import log_softmax, softmax

from retinabench.fidelity.targets.data import labels, load, standardised
from retinabench.fidelity.targets.target import TARGETS

target = TARGETS.find("idrid-head")
data = load(target)
train, test = (np.c_[inputs, np.ones(len(inputs))] for inputs in standardised(data))  # the last weight is the bias
truth = np.eye(target.outputs)[labels(data)[0]]


def energy(w):
    """- log p(D | w) - log N(w; 0, s² I), up to a constant."""
    return -(truth * log_softmax(train @ w, axis=1)).sum() + (w**2).sum() / (2 * target.prior_variance)


def gradient(w):
    return train.T @ (softmax(train @ w, axis=1) - truth) + w / target.prior_variance


rng, w, draws = np.random.default_rng(0), np.zeros((train.shape[1], target.outputs)), []
for _ in range(1000):
    momentum = rng.normal(size=w.shape)
    step = rng.uniform(0.05, 0.1)
    new, half = w.copy(), momentum - step / 2 * gradient(w)
    for left in reversed(range(20)):
        new = new + step * half
        half = half - (step if left else step / 2) * gradient(new)
    gain = energy(w) + (momentum**2).sum() / 2 - energy(new) - (half**2).sum() / 2
    w = new if np.log(rng.random()) < gain else w
    draws.append(softmax(test @ w, axis=1))
np.savez("draws.npz", probs=np.mean(draws[100:], axis=0))  # (N, C), of the test points in their order
print(f"draws.npz: {len(test)} test points, {len(draws) - 100} draws")
