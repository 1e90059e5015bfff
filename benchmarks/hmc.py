"""Leapfrog steps per second of the reference sampler, beside numpyro's HMC; and the time of R-hat and W.

    python benchmarks/hmc.py fundus
    python benchmarks/hmc.py energy-gap --data ../shared/data/uci/energy
    python benchmarks/hmc.py measures    # split and rank R-hat and W of 10,000 points with 1,000 samples; goals 5 s and 2 GB

Both samplers follow the same potential from the same weights with the same step size and number of steps, on one core, in one process, taking turns;
a round is one transition of all chains, and the medians of the rounds are compared, in processor seconds. Values and gradients are compared first.
numpyro's chains are vectorised or one after the other, whichever is faster. Without numpyro (pip install numpyro) only our own side is measured.
"""

import math
import os
import resource
import statistics
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

from functools import partial

import numpy as np
import torch
from toolkit import parse, seconds

from retinabench.fidelity.distances import wasserstein
from retinabench.fidelity.reference.convergence import rank_rhat, split_rhat
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods import hmc

STEP = {"fundus": 0.002, "energy-gap": 0.0001}
CHAINS = {"fundus": 4, "energy-gap": 8}
STEPS = {"fundus": 5, "energy-gap": 200}
GOAL = {"fundus": 15.0, "energy-gap": 1.5}


def measures():
    random = np.random.default_rng(0)
    draws = random.normal(size=(10_000, 1000)).astype(np.float32)
    other = random.normal(size=(10_000, 1000)).astype(np.float32)
    chains = draws.T.reshape(4, 250, 10_000)
    work = {"W": partial(wasserstein, draws, other)}
    work |= {"split R-hat": partial(split_rhat, chains), "rank R-hat": partial(rank_rhat, chains)}
    for name, function in work.items():
        took = seconds(function, time.process_time)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{name}: {took:.2f} s, peak memory so far {memory:.2f} GB")


def rounds(samplers, chains, steps, count):
    """Run the samplers one after the other, in several rounds; print steps per second and return the medians."""
    times = {name: [] for name in samplers}
    for _ in range(count):
        for name, function in samplers.items():
            times[name].append(seconds(function, time.process_time))
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, value in middle.items():
        print(
            f"{name}: {steps / value:,.1f} leapfrog steps/s per chain, {chains * steps / value:,.1f} in total "
            f"({1000 * value / steps / chains:.2f} ms per gradient and chain; {len(times[name])} rounds, "
            f"{min(times[name]):.2f} to {max(times[name]):.2f} s)"
        )
    return middle


def ours(density, weights, step, steps):
    state = hmc.start(density, weights)
    generator = torch.Generator().manual_seed(0)

    def transition():
        prior = density.target.prior_variance
        hmc.transition(density, state, prior_variance=prior, step=step, steps=steps, generator=generator)

    return transition


def jax_log_likelihood(density):
    """The same log-likelihood of one chain's flat weights, as one would write it in JAX."""
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(a.numpy()) for a in density.train)
    shapes = {name: tuple(p.shape) for name, p in density.network.named_parameters()}
    cuts = [math.prod(shape) for shape in shapes.values()]

    def named(w):
        pieces = jnp.split(w, [sum(cuts[:k]) for k in range(1, len(cuts))])
        return {name: p.reshape(s) for (name, s), p in zip(shapes.items(), pieces, strict=True)}

    def convolution(h, p, name, padding):
        out = jax.lax.conv_general_dilated(h, p[f"{name}.weight"], (1, 1), [(padding, padding)] * 2)
        return jax.nn.silu(out + p[f"{name}.bias"][:, None, None])

    def halved(h):
        return jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4

    def linear(h, p, name):
        return h @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def lenet(w):
        p = named(w)
        h = halved(convolution(x, p, "conv1", 2))
        h = halved(convolution(h, p, "conv2", 0)).reshape(len(x), -1)
        h = jax.nn.silu(linear(h, p, "fc1"))
        h = jax.nn.silu(linear(h, p, "fc2"))
        return jnp.take_along_axis(jax.nn.log_softmax(linear(h, p, "fc")), y[:, None], axis=1).sum()

    def mlp(w):
        p = named(w)
        out = linear(jax.nn.relu(linear(x, p, "fc1")), p, "fc")
        deviation = jax.nn.softplus(out[:, 1]) + density.target.floor
        z = (y - out[:, 0]) / deviation
        return -(0.5 * z**2 + jnp.log(deviation) + 0.5 * math.log(2 * math.pi)).sum()

    return lenet if density.target.likelihood == "categorical" else mlp


def theirs(density, weights, step, steps):
    """numpyro's HMC, compiled; prints how far values and gradients are apart."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import HMC

    log_likelihood = jax_log_likelihood(density)
    w = jnp.asarray(weights.numpy())
    values, gradients = density(weights)
    one = jax.jit(jax.value_and_grad(log_likelihood))
    pairs = [one(chain) for chain in w]
    far = max(float(np.abs(np.asarray(v) / float(t) - 1)) for (v, _), t in zip(pairs, values, strict=True))
    scale = float(gradients.abs().max())
    apart = max(float(np.abs(g - t.numpy()).max()) for (_, g), t in zip(pairs, gradients, strict=True)) / scale
    print(f"same potential: values apart by {far:.1e}, gradients by {apart:.1e}, relative to the largest")

    def potential(w):
        return -log_likelihood(w) + (w**2).sum() / (2 * density.target.prior_variance)

    def kernel():
        return HMC(
            potential_fn=potential, step_size=step, num_steps=steps, trajectory_length=None,
            adapt_step_size=False, adapt_mass_matrix=False, dense_mass=False,
        )  # fmt: skip

    together, alone = kernel(), kernel()
    all_chains = together.init(jax.random.split(jax.random.PRNGKey(0), len(w)), 0, w, (), {})
    one_each = [alone.init(jax.random.PRNGKey(k), 0, chain, (), {}) for k, chain in enumerate(w)]
    sample_all, sample_one = (jax.jit(lambda state, k=k: k.sample(state, (), {})) for k in (together, alone))

    def vectorised():
        return jax.block_until_ready(sample_all(all_chains))

    def sequential():
        return [jax.block_until_ready(sample_one(state)) for state in one_each]

    for compiled in (vectorised, sequential):
        compiled()
    assert int(vectorised().num_steps[0]) == steps
    return {"numpyro, vectorised": vectorised, "numpyro, one after the other": sequential}


def main():
    options = parse(__doc__, what=("fundus",), data=None, chains=0, rounds=7, steps=0)
    (task,) = options.what
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if task == "measures":
        return measures()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    torch.set_num_threads(1)
    step, steps = STEP[task], options.steps or STEPS[task]
    chains = options.chains or CHAINS[task]
    chosen = TARGETS[task]
    density = Density.of(chosen, load(chosen, options.data))
    generator = torch.Generator().manual_seed(1)
    start = 0.5 * math.sqrt(chosen.prior_variance) * torch.randn(chains, chosen.parameters, generator=generator)
    samplers = {"ours": ours(density, start, step, steps)}
    samplers["ours"]()
    try:
        samplers |= theirs(density, start, step, steps)
    except ImportError:
        print("numpyro is not installed: only our own side is measured (pip install numpyro)")
    print(f"{task}: {chains} chains, {steps} steps of {step} per transition")
    middle = rounds(samplers, chains, steps, options.rounds)
    if len(middle) > 1:
        best = min(value for name, value in middle.items() if name != "ours")
        print(f"ours is {best / middle['ours']:.2f} times as fast as numpyro's better way (goal: {GOAL[task]})")
    return None


if __name__ == "__main__":
    main()
