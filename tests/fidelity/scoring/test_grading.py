import numpy as np
import pytest
from scipy.stats import spearmanr

from retinabench.fidelity import distances
from retinabench.fidelity.scoring.measures import groups_of
from retinabench.fidelity.scoring.resolution import Contest, resolve
from retinabench.fidelity.submissions.submission import About, Submission
from support.evaluators import ENERGY, FUNDUS, GROUP, N, evaluator_of
from support.fake_reference import classified, regressed, softmax


def miscalibration(probs, reference):
    """Return the calibration error against the reference over 15 bins, by plain loops."""
    gaps = [0.0] * 15
    for p, q in zip(probs.tolist(), reference.tolist(), strict=True):
        named = p.index(max(p))
        gaps[min(int(p[named] * 15), 14)] += p[named] - q[named]
    return sum(map(abs, gaps)) / len(probs)


def undecided_left_out(p, q, errors):
    """Return the agreement at points whose two largest probabilities differ by more than three of their errors, by plain loops."""
    hits = []
    for ours, theirs, error in zip(p, q, errors, strict=True):
        second, first = np.argsort(theirs)[-2:]
        if theirs[first] - theirs[second] > 3 * (error[first] + error[second]):
            hits.append(ours.argmax() == first)
    return np.mean(hits)


@pytest.fixture
def graded():
    reference = classified(N, 5)
    samples = softmax(np.random.default_rng(5).normal(size=(30, N, 5)) + np.log(reference.probs))
    submission = Submission(samples.mean(axis=0), samples, about=About(title="x"))
    evaluator = evaluator_of(FUNDUS, reference)
    return evaluator, submission, evaluator.grade(submission)


def test_values_are_the_distances_of_each_group(graded):
    evaluator, submission, found = graded
    reference = evaluator.reference
    for group, rows in groups_of(FUNDUS, GROUP).items():
        p, q = submission.probs[rows], reference.probs[rows]
        ours, theirs = (distances.epistemic(s[:, rows]) for s in (submission.samples, reference.samples))
        pairs = [distances.pairwise_disagreement(s[:, rows]).mean() for s in (submission.samples, reference.samples)]
        stds = [s[:, rows].std(axis=0) for s in (submission.samples, reference.samples)]
        truth = {
            "agreement": undecided_left_out(p, q, reference.mcse[rows]),
            "posterior_std": np.abs(stds[0] - stds[1]).sum(axis=1).mean() / 2,
            "variance_ratio": (stds[0] ** 2).sum() / (stds[1] ** 2).sum(),
            "total_variation": distances.total_variation(p, q).mean(), "miscalibration": miscalibration(p, q),
            "epistemic_correlation": spearmanr(ours, theirs).statistic,
            "epistemic_error": np.abs(ours - theirs).mean(), "disagreement_gap": abs(pairs[0] - pairs[1]),
            "regret": distances.decision_regret(p, q, FUNDUS.decision.costs(5)).mean(),
        }  # fmt: skip
        for name, value in truth.items():
            assert found[group][name].value == pytest.approx(value, abs=1e-10), (group, name)


def test_replicates_are_the_measures_of_the_drawn_points(graded):
    # Brute force: repeat each point as often as it was drawn.
    evaluator, submission, _ = graded
    found = evaluator._over_points(submission)  # without what the chains change
    counts, groups = evaluator.resampling.counts, evaluator.resampling.groups
    for group in ("all", "shifted", "corrupted 3"):
        rows = groups[group]
        for r in range(5):
            drawn = np.repeat(rows, counts[r, rows])
            p, q = submission.probs[drawn], evaluator.reference.probs[drawn]
            expected = undecided_left_out(p, q, evaluator.reference.mcse[drawn])
            assert found[group]["agreement"].draws[r] == pytest.approx(expected)
            assert found[group]["miscalibration"].draws[r] == pytest.approx(miscalibration(p, q))
    # Within each kind as many points are drawn as it has.
    for kind in FUNDUS.groups:
        assert (counts[:, groups[kind]].sum(axis=1) == len(groups[kind])).all()


def test_a_chain_is_graded_against_the_others_for_the_ceiling():
    reference = classified(N, 5)
    evaluator = evaluator_of(FUNDUS, reference)
    chains = reference.chain_probs
    others = [np.mean(np.delete(chains, k, axis=0), axis=0) for k in range(4)]
    truth = np.mean([distances.total_variation(c, o).mean() for c, o in zip(chains, others, strict=True)])
    assert evaluator.ceiling["all"]["total_variation"].value == pytest.approx(truth)
    per_chain = reference.samples.reshape(4, 10, N, 5)
    ours = [distances.epistemic(one) for one in per_chain]
    theirs = [distances.epistemic(np.delete(per_chain, k, axis=0).reshape(30, N, 5)) for k in range(4)]
    error = np.mean([np.abs(a - b).mean() for a, b in zip(ours, theirs, strict=True)])
    assert evaluator.ceiling["all"]["epistemic_error"].value == pytest.approx(error, abs=1e-10)


def test_the_reference_itself_is_perfect():
    reference = classified(N, 5)
    evaluator = evaluator_of(FUNDUS, reference)
    found = evaluator.grade(Submission(reference.probs, reference.samples))
    values = {name: one.value for name, one in found["all"].items()}
    assert values["agreement"] == 1
    assert values["epistemic_correlation"] == pytest.approx(1)
    for name in ("total_variation", "miscalibration", "regret", "epistemic_error", "disagreement_gap"):
        assert values[name] == pytest.approx(0, abs=1e-12)


def test_the_floor_of_total_variation_is_that_of_its_monte_carlo_error():
    # |N(0, e²)| is e √(2/π) on average; five classes of error 0.01.
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    truth = np.abs(0.01 * np.random.default_rng(0).normal(size=(20000, 5))).sum(axis=1).mean() / 2
    assert evaluator.floor["all"]["total_variation"] == pytest.approx(truth, rel=0.02)


def test_the_noise_floor_of_draws_is_what_a_perfect_method_scores():
    # Fresh draws of the same distributions against the reference: the floor within a tenth, over 150 points.
    reference = regressed(N, draws=1000)
    evaluator = evaluator_of(ENERGY, reference)
    random = np.random.default_rng(0)
    mean, deviation = random.normal(size=N), 0.2 + random.random(N)
    fresh = mean[:, None] + deviation[:, None] * np.random.default_rng(9).normal(size=(N, 1000))
    found = evaluator.grade(Submission(draws=fresh))
    for name, order in (("wasserstein", 1), ("w2", 2)):
        assert found["all"][name].value == pytest.approx(distances.wasserstein(fresh, reference.draws, order).mean())
    assert found["all"]["wasserstein"].value == pytest.approx(evaluator.floor["all"]["wasserstein"], rel=0.1)


def test_the_costs_of_a_decision():
    # Surely grade 3: leaving costs 4, referring nothing; surely grade 0: referring costs 1.
    regret = distances.decision_regret(np.eye(5)[[0, 3]], np.eye(5)[[3, 0]], FUNDUS.decision.costs(5))
    assert regret == pytest.approx([4, 1])


def test_a_lone_copy_of_an_entry_is_told_from_it_in_at_most_a_twentieth_of_boards():
    """Five entries of three seeds, farther ones more variable, and one more seed of one of them; 100 boards: .05 ± .044."""
    random, told = np.random.default_rng(0), 0
    means = np.geomspace(0.01, 0.3, 5)
    for _ in range(100):
        sds, copied = 0.15 * means * np.exp(0.5 * random.normal(size=5)), int(random.integers(5))
        values = [mean + sd * random.normal(size=3) for mean, sd in zip(means, sds, strict=True)]
        values.append(means[copied] + sds[copied] * random.normal(size=1))
        draws = [own.mean() + 1e-5 * random.normal(size=200) for own in values]
        places = resolve([Contest.of(False, values, draws, [[0, 1, 2]] * 5 + [[0]])]).places
        told += places[copied][1] < places[5][0] or places[5][1] < places[copied][0]
    assert told / 100 <= 0.09
