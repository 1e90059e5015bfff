"""Leapfrog steps per second of the reference sampler, beside numpyro's HMC; the time of R-hat and W; and the sampler on a GPU.

    python benchmarks/hmc.py fundus
    python benchmarks/hmc.py energy-gap --data ../shared/data/uci/energy
    python benchmarks/hmc.py measures    # split and rank R-hat and W of 10,000 points with 1,000 samples; goals 5 s and 2 GB
    python benchmarks/hmc.py gpu         # needs one; the data are drawn. --toy: the same lines on the processor, at a size that says nothing

Both samplers follow the same potential from the same weights with the same step size and number of steps, on one core, in one process, taking turns;
a round is one transition of all chains, and the medians of the rounds are compared, in processor seconds. Values and gradients are compared first.
numpyro's chains are vectorised or one after the other, whichever is faster. Without numpyro (pip install numpyro) only our own side is measured.

On a GPU: values and gradients of both targets against the processor's in float64, in float64 (the formulas) and in float32 (as chains are run), by
the call that records the graph and by one that replays it with other weights; leapfrog steps per second, every operation launched (eager), and the
recorded graph; and the time of a reference of `fundus`, 4 chains of 20 + 20 transitions, far too short to pass.
"""

import math
import os
import resource
import statistics
import tempfile
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from toolkit import parse, seconds
from torch import Tensor

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.distances import wasserstein
from retinabench.fidelity.reference.convergence import rank_rhat, split_rhat
from retinabench.fidelity.reference.make_reference import make_reference
from retinabench.fidelity.targets.data import TargetData, load
from retinabench.fidelity.targets.density import Density, Recorded
from retinabench.fidelity.targets.target import TARGETS, Target
from retinabench.methods import hmc

STEP = {"fundus": 0.002, "energy-gap": 0.0001}
CHAINS = {"fundus": 4, "energy-gap": 8}
STEPS = {"fundus": 5, "energy-gap": 200}
GOAL = {"fundus": 15.0, "energy-gap": 1.5}
ON_GPU = {"energy-gap": (200, 8, 64, 512), "fundus": (20, 4, 16)}  # steps, and numbers of chains
# Relative to the largest; sums of up to 2,000 terms in another order. Convolutions in TF32 are 1e-3 apart: too much.
APART = {torch.float64: 1e-10, torch.float32: 1e-4}
ROUNDS = 5


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


def data_of(chosen: Target, *, toy: bool) -> TargetData:
    """Drawn retinas as the target has them; for `energy-gap`, whose files are the user's to bring, points of their shape."""
    if chosen.name == "fundus" and not toy:
        return load(chosen)
    count, random = 12 if toy else chosen.train, np.random.default_rng(0)
    if chosen.name == "energy-gap":
        inputs = random.normal(size=(count, 8))
        truth = inputs.sum(axis=1) + random.normal(size=count)
    else:
        inputs, truth = random.integers(0, 255, (count, 28, 28, 3), dtype=np.uint8), random.integers(0, 5, count)
    train = ArrayDataset(inputs, truth, np.full(count, "train"))
    return TargetData(train, replace(train, groups=np.full(count, "in_domain")))


def draw(chosen: Target, chains: int, seed: int) -> Tensor:
    """Weights of half the prior's deviation, where chains start, (K, P)."""
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * math.sqrt(chosen.prior_variance) * torch.randn(chains, chosen.parameters, generator=generator)


def check(chosen: Target, data: TargetData, device: str) -> bool:
    """Print how far the device's values and gradients are from the processor's; return whether that is near enough."""
    truth, right = Density.of(chosen, data, dtype=torch.float64), True
    for dtype, limit in APART.items():
        density = Density.of(chosen, data, device, dtype)
        for call, seed in (("first call", 1), ("second call", 2)):
            weights = draw(chosen, 3, seed)
            pairs = zip(density(weights.to(device, dtype)), truth(weights.double()), strict=True)
            apart = [float((found.cpu() - true).abs().max() / true.abs().max()) for found, true in pairs]
            near = all(x < limit for x in apart)  # no number is not near
            right = right and near
            said = f"values apart by {apart[0]:.1e}, gradients by {apart[1]:.1e}, relative to the largest"
            verdict = "right" if near else f"WRONG, the limit is {limit:.0e}"
            print(f"{chosen.name}, {dtype}, {call}: {said}: {verdict}", flush=True)
    return right


def speed(log_likelihood: hmc.LogLikelihood, weights: Tensor, chosen: Target, steps: int, rounds: int) -> float:
    state = hmc.start(log_likelihood, weights)

    def walk() -> None:
        hmc.leapfrog(log_likelihood, state, torch.zeros_like(weights), chosen.prior_variance, STEP[chosen.name], steps)
        if weights.is_cuda:
            torch.cuda.synchronize()

    times = [seconds(walk) for _ in range(rounds + 1)]
    return steps / statistics.median(times[1:])  # the first one warms up


def speeds(chosen: Target, data: TargetData, device: str, *, toy: bool) -> None:
    density = Density.of(chosen, data, device)
    steps, rounds = (2, 1) if toy else (ON_GPU[chosen.name][0], ROUNDS)
    for chains in ON_GPU[chosen.name][1:][: 1 if toy else None]:
        weights = draw(chosen, chains, 1).to(device)
        recorded = Recorded(density.compute) if weights.is_cuda else density.compute
        eager, graph = (speed(way, weights, chosen, steps, rounds) for way in (density.compute, recorded))
        numbers = f"{eager:12,.1f} {chains * eager:12,.0f} {graph:12,.1f} {chains * graph:12,.0f} {graph / eager:8.2f}"
        print(f"{chosen.name:12s} {chains:6d} {numbers}", flush=True)


def short_reference(chosen: Target, data: TargetData, device: str, *, toy: bool) -> None:
    length, step = (10, 0.05) if toy else (20, None)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        options = {"chains": 4, "burn_in": length, "keep": length, "seed": 0, "step": step, "device": device}
        took = seconds(lambda: made.append(make_reference(chosen, data, Path(folder), **options)))
    about = made[0].about
    acceptance = ", ".join(f"{rate:.2f}" for rate in about.acceptance)
    print(
        f"reference of {chosen.name}, 4 chains of {length} + {length} transitions of {about.steps} steps, and as "
        f"many of half the step as its check asks: {took:.1f} s; acceptance {acceptance}"
    )


def on_gpu(*, toy: bool) -> int:
    """Exit code: 1 where the numbers are apart. On a processor nothing is recorded, and both ways are the same."""
    if not toy and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU; --toy runs the same lines without one")
    device = "cpu" if toy else "cuda"
    print(f"{'CPU' if toy else torch.cuda.get_device_name()}, torch {torch.__version__}")
    data = {name: data_of(TARGETS[name], toy=toy) for name in ON_GPU}
    right = [check(TARGETS[name], data[name], device) for name in ON_GPU]
    print(f"{'leapfrog steps/s':12s} chains   eager/chain        total  graph/chain        total graph/eager")
    for name in ON_GPU:
        speeds(TARGETS[name], data[name], device, toy=toy)
    name = "energy-gap" if toy else "fundus"  # whose trajectories are short enough for a test
    short_reference(TARGETS[name], data[name], device, toy=toy)
    return 0 if all(right) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(__doc__, arguments, what=("fundus",), data=None, chains=0, rounds=7, steps=0, toy=False)
    (task,) = options.what
    if task == "gpu":
        return on_gpu(toy=options.toy)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if task == "measures":
        measures()
        return 0
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    step, steps = STEP[task], options.steps or STEPS[task]
    chains = options.chains or CHAINS[task]
    chosen = TARGETS[task]
    density = Density.of(chosen, load(chosen, options.data))
    start = draw(chosen, chains, 1)
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
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
