import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.fidelity import distances
from retinabench.fidelity.reference import convergence, make_reference
from retinabench.fidelity.reference.chains import Chains
from retinabench.fidelity.reference.reference_file import packaged, read_reference, write_reference
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods import hmc

SHIPPED = ["fundus", "fundus-small", "idrid"]


def kept_part(predictions):
    """Chains that predict (T, K, N, O), without a sampler."""
    transitions, chains = predictions.shape[:2]
    state = hmc.State(torch.zeros(chains, 1), torch.zeros(chains), torch.zeros(chains, 1))
    weights = np.zeros((transitions, chains, 1), np.float32)
    return Chains(predictions, weights, np.zeros((transitions, 3, chains)), 0, 0.1, state, 0.0)


def test_the_command_makes_a_file_that_is_read_back(made):
    path, small = made
    chosen = TARGETS["energy-gap"]
    found = read_reference(chosen, small.sha256, path)
    assert found.draws.shape == (7, 4000)
    assert found.chain_draws.shape == (4, 7, 1000)
    assert found.rhat.shape == found.mcse.shape == found.ess_bulk.shape == found.ess_tail.shape == (7, 2)
    assert found.epistemic.shape == (7,)
    about = found.about
    assert (about.task, about.chains, about.burn_in, about.kept, about.seed) == (
        "energy-gap", 4, 25, 60, 1,
    )  # fmt: skip
    assert about.steps == hmc.steps_for(about.step, chosen.prior_variance)
    assert about.half_step.acceptance > np.mean(about.acceptance) - 0.05
    assert set(about.ceiling) == {"in_domain"}


def test_a_file_of_other_data_task_or_definition_is_refused(made, tmp_path):
    path, small = made
    chosen, text, cut, one = TARGETS["energy-gap"], *(tmp_path / f"{name}.npz" for name in ("text", "cut", "one"))
    text.write_text("no file")
    cut.write_bytes(path.read_bytes()[:-200])
    good = read_reference(chosen, small.sha256, path)
    assert not good.passed
    assert list(good.about.why) == good.why
    write_reference(one, replace(good, chain_draws=good.chain_draws[:1]))
    for target, data, file, said in (
        (chosen, "0" * 64, path, "from other data"),
        (TARGETS["fundus"], small.sha256, path, "of the target 'energy-gap', not of 'fundus'"),
        (chosen.model_copy(update={"prior_variance": 0.5}), small.sha256, path, "another definition"),
        (chosen, small.sha256, text, "is not a reference file"),
        (chosen, small.sha256, cut, "is not a reference file"),
        (chosen, small.sha256, tmp_path / "absent.npz", "cannot be read"),
        (chosen, small.sha256, one, r"one.npz: holds a single chain.*--chains 4"),
        (TARGETS["retinamnist"], small.sha256, None, "fidelity reference retinamnist"),
    ):
        with pytest.raises(InputError, match=said):
            read_reference(target, data, file)


def test_the_mean_counts_every_kept_state_as_the_published_average_does(shared):
    # bnn_hmc's running average (Izmailov et al. 2021) is ours where nothing is refused; it leaves refused states out,
    # ours repeats them: the stated difference.
    golden = np.load(shared("golden", "fidelity", "golden_bnn_hmc_utils.npz"))
    members, running = golden["cls_members"], golden["cls_running"]
    for count in range(2, len(members) + 1):
        arrays = make_reference._classes(kept_part(members[:count, None]), 0)
        assert arrays["chain_probs"][0] == pytest.approx(running[count - 1], abs=1e-12)
    repeats = [1, 3, 1, 2, 1, 1]
    counted = make_reference._classes(kept_part(np.repeat(members, repeats, axis=0)[:, None]), 0)
    truth = np.average(members, axis=0, weights=repeats)
    assert counted["chain_probs"][0] == pytest.approx(truth, abs=1e-12)
    assert np.abs(counted["chain_probs"][0] - running[-1]).max() > 0.01


def test_the_draws_have_the_moments_of_the_published_average(shared):
    golden = np.load(shared("golden", "fidelity", "golden_bnn_hmc_utils.npz"))
    members = golden["reg_members"]  # mean and deviation of six states, 40 points
    mean, deviation = golden["reg_running"][-1].T
    kept = kept_part(np.tile(members[:, None], (200, 1, 1, 1)))
    draws = make_reference._draws(kept, 5)["chain_draws"][0]
    assert draws.shape == (40, 1000)
    # Standard errors of the mean and the variance of 1,000 draws, some of them of one state: 4.5 of them over 40 points.
    assert (np.abs(draws.mean(axis=1) - mean) < 4.5 * deviation / np.sqrt(1000)).all()
    assert (np.abs(draws.var(axis=1) / deviation**2 - 1) < 4.5 * np.sqrt(3 / 1000)).all()


def test_information_measures_are_those_of_all_states_whatever_the_blocks(monkeypatch):
    random = np.random.default_rng(3)
    probs = random.dirichlet(np.ones(5), (12, 4, 23)).astype(np.float32)
    monkeypatch.setattr(make_reference, "BLOCK", 10)
    arrays = make_reference._classes(kept_part(probs), 0)
    states = probs.reshape(48, 23, 5).astype(np.float64)
    assert arrays["epistemic"] == pytest.approx(distances.epistemic(states), abs=1e-6)
    assert float(arrays["pairwise_disagreement"]) == pytest.approx(distances.pairwise_disagreement(states).mean())
    # Samples: equally many of each chain, in chain order.
    assert arrays["samples"].shape == (48, 23, 5)
    assert arrays["samples"][12:24] == pytest.approx(probs[:, 1], abs=1e-3)


def test_the_ceiling_is_each_chain_against_all_others():
    random = np.random.default_rng(4)
    probs = random.dirichlet(np.ones(3), (4, 10))
    group = np.array(["in_domain"] * 6 + ["corrupted-noise-1"] * 4)
    found = make_reference.ceiling({"chain_probs": probs}, group)
    others = probs[[0, 1, 3]].mean(axis=0)
    truth = distances.total_variation(probs[2], others)
    assert found["in_domain"]["total_variation"][2] == pytest.approx(truth[:6].mean())
    assert found["corrupted"]["total_variation"][2] == pytest.approx(truth[6:].mean())
    assert make_reference.ceiling({"chain_probs": probs[:1]}, group) == {"in_domain": {}, "corrupted": {}}


def shipped(task):
    """The reference of a target, and its file, which alone knows the hash of data that the user brings."""
    path = packaged("chains") / f"{task}.npz"
    data = TARGETS[task].sha256 or json.loads(str(np.load(path)["meta"]))["data"]
    return read_reference(TARGETS[task], data), path


@pytest.mark.parametrize("task", SHIPPED)
def test_what_is_shipped_says_whether_it_passes(task):
    found, path = shipped(task)
    assert path.stat().st_size < 2_100_000
    assert found.passed == (task == "fundus-small"), found.why  # the others diverge too often
    assert found.chains >= 4
    thresholds = json.loads(json.dumps(asdict(convergence.THRESHOLDS)))
    stated = found.about.to_dict()["thresholds"]
    assert stated == {name: thresholds[name] for name in stated}
    assert convergence.share_below(found.rhat, 1.05) >= 0.95
    assert f"fidelity reference {task}" in found.about.command
    assert found.probs.shape == (len(found.rhat), TARGETS[task].outputs)
    assert found.probs.sum(axis=1) == pytest.approx(np.ones(len(found.rhat)))
    assert len(found.samples) % found.chains == 0
    # The stored samples are a thinned part of what the means are of.
    assert np.abs(found.samples.mean(axis=0) - found.probs).mean() < 0.03


# The greatest standard error, in stds of y, and the mean distance of two means: of the states and of the draws of y, of which there
# are fewer than effective draws of the chains (energy-gap: posterior stds of the mean up to .6, 488 states).
@pytest.mark.parametrize(
    ("task", "data", "points", "error", "apart"),
    [
        ("concrete-gap", "concrete", 343, 0.006, 0.01),
        ("concrete-gap-water", "concrete", 343, 0.006, 0.01),
        ("energy-gap", "energy", 256, 0.016, 0.02),
    ],
)
def test_the_references_of_regressions_pass_by_their_states(task, data, points, error, apart):
    found, _ = shipped(task)
    assert found.judgement.verdict == "passed"
    assert found.chains == 8
    assert found.draws.shape == (points, 4000)
    assert found.rhat.max() < 1.01
    assert found.mcse.max() < error
    again = convergence.diagnose(found.states)
    assert convergence.share_below(again.rhat, 1.05) == 1
    states = found.states[..., 0].mean(axis=(0, 1), dtype=np.float64)
    assert np.abs(states - found.draws.mean(axis=1, dtype=np.float64)).mean() < apart
    assert found.about.command.startswith(f"retinabench fidelity reference {task} --data uci/{data} ")
