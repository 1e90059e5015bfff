"""A sampler of your own on a target of the fidelity benchmark: Hamiltonian Monte Carlo on a linear head, in NumPy alone.

    python examples/own_sampler.py                                # writes draws.npz, seconds
    retinabench fidelity score draws.npz --task idrid-head        # how near it comes to the true posterior

`problem.submit(draws, gradients=…, method=…)` does both. In JAX the gradient is `jax.grad(lambda w: problem.log_density(w, jax.numpy))`;
examples/fidelity/ has BlackJAX and NumPyro.
"""

import numpy as np

import retinabench as rb

problem = rb.fidelity.problem("idrid-head")
rng, w, draws = np.random.default_rng(0), np.zeros(problem.dimension), []
for _ in range(1000):
    momentum = rng.normal(size=w.shape)
    step = rng.uniform(0.05, 0.1)
    new, half = w.copy(), momentum + step / 2 * problem.gradient(w)
    for left in reversed(range(20)):
        new = new + step * half
        half = half + (step if left else step / 2) * problem.gradient(new)
    gain = problem.log_density(new) - (half**2).sum() / 2 - problem.log_density(w) + (momentum**2).sum() / 2
    w = new if np.log(rng.random()) < gain else w
    draws.append(w)
probs = problem.predict(np.array(draws[100:])).mean(axis=0)
np.savez("draws.npz", probs=probs)  # (N, C), of the test points in their order
print(f"draws.npz: {len(probs)} test points, {len(draws) - 100} draws")
