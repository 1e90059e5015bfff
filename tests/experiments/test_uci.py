import csv
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from retinabench.cli.main import run
from retinabench.data.datasets.uci import SETS, Regression, draw_splits
from retinabench.experiments import uci
from retinabench.experiments.uci import PUBLISHED, SETTINGS, SplitTraining, mixture_log_likelihood, train_and_score
from support.uci_sets import write_set

pytestmark = pytest.mark.usefixtures("legible")


def words(source, out):
    return ["uci", "--source", str(source), "--epochs", "1", "--out", str(out), "--workers", "1", "-q"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two made sets under real names, one epoch, few samples."""
    base = tmp_path_factory.mktemp("uci")
    for name in ("yacht", "wine-quality-red"):
        write_set(base / "source" / name, seed=len(name))
    assert run(words(base / "source", base / "out")) == 0
    return base


def test_tables_say_what_the_results_hold(compared):
    found = uci.results(compared / "out")
    assert list(found) == ["wine", "yacht"]
    rows = list(csv.DictReader((compared / "out" / "uci.csv").read_text().splitlines()))
    assert [(row["set"], row["method"]) for row in rows] == [(s, m) for s in ("wine", "yacht") for m in SETTINGS]
    for row in rows:
        values = [split["rmse"] for split in found[row["set"]][row["method"]]]
        assert len(values) == 20
        assert float(row["rmse"]) == pytest.approx(np.mean(values), rel=1e-5)
        assert float(row["rmse_standard_error"]) == pytest.approx(np.std(values, ddof=1) / 20**0.5, rel=1e-5)
        assert float(row["published_rmse"]) == PUBLISHED[row["set"]][row["method"]].rmse
    text = (compared / "out" / "uci.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| Yacht"))
    assert "| -1.55 ± 0.12 | -1.25 |" in line
    assert uci.plus_minus(*uci.mean_and_error(found["yacht"]["dropout"], "log_likelihood")) in line


def test_what_is_there_is_not_computed_again(compared, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(compared / "out", out)
    before = {file.name: file.read_bytes() for file in out.glob("uci.*")}
    (segment,) = (out / "results" / "yacht").glob("*.jsonl")
    head, *lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(head + b"".join(line for line in lines if b'"dropout-3"' not in line))
    computed, train = [], uci.train_split
    monkeypatch.setattr(uci, "train_split", lambda job: computed.append(job) or train(job))
    uci.compare_methods(compared / "source", ["yacht"], out, epochs=1, seed=0)
    assert [(job.data.name, job.method, job.split) for job in computed] == [("yacht", "dropout", 3)]
    assert {file.name: file.read_bytes() for file in out.glob("uci.*")} == before


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--epochs", "2"], "another epochs: 1 there, 2 here"), (["--seed", "1"], "another seed: 0 there, 1 here"),
        (["--sets", "energy"], "holds no UCI set 'energy'"), (["--sets", "yatch"], "Did you mean 'yacht'"),
        (["--epochs", "0"], "--epochs"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line_and_change_nothing(compared, capsys, more, says):
    out = compared / "out"
    before = sorted((file, file.stat().st_mtime_ns) for file in out.rglob("[!.]*"))
    assert run([*words(compared / "source", out), *more]) == 2
    assert says in capsys.readouterr().err
    assert sorted((file, file.stat().st_mtime_ns) for file in out.rglob("[!.]*")) == before


def test_other_data_under_the_same_name_are_refused(compared, tmp_path, capsys):
    write_set(tmp_path / "yacht", seed=9)
    assert run(words(tmp_path, compared / "out")) == 2
    assert "where" in (error := capsys.readouterr().err)
    assert "Choose another --out" in error


def test_a_training_that_diverges_is_named(compared, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(uci.OPTIMIZER, "lr", 1e30)
    assert run([*words(compared / "source", tmp_path), "--epochs", "3"]) == 1
    assert "wine" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_numbers_show_two_digits_of_their_error():
    assert uci.plus_minus(-2.4567, 0.0612) == "-2.457 ± 0.061"
    assert uci.plus_minus(4.0, 0.2) == "4.00 ± 0.20"
    assert uci.plus_minus(0.0051234, 0.00004) == "0.00512 ± 0.00004"


def test_every_set_has_its_printed_values():
    assert list(PUBLISHED) == list(uci.GRID_SEARCH) == list(SETS)
    assert all(list(by_method) == list(SETTINGS) == list(uci.TITLES) for by_method in PUBLISHED.values())


@pytest.fixture
def case():
    """20 points, 7 components, seed 0."""
    random = np.random.default_rng(0)
    return random.normal(3, 5, 20), random.normal(3, 5, (7, 20)), random.uniform(0.5, 4, (7, 20))


def test_the_mixture_is_a_density(case):
    target, means, variances = case
    brute = np.log(np.mean(stats.norm.pdf(target, means, np.sqrt(variances)), axis=0)).mean()
    assert mixture_log_likelihood(target, means, variances) == pytest.approx(brute, abs=1e-12)
    total, _ = integrate.quad(
        lambda y: math.exp(mixture_log_likelihood(np.array([y]), means[:, :1], variances[:, :1])), -60, 60, limit=500
    )
    assert total == pytest.approx(1, abs=1e-7)


def test_far_tails_do_not_underflow():
    # exp(-0.5 * 1e6) is 0 in double precision: the naive mean of densities has the logarithm of 0.
    found = mixture_log_likelihood(np.array([1000.0]), np.array([[0.0], [1.0]]), np.ones((2, 1)))
    expected = np.logaddexp(stats.norm.logpdf(1000, 0), stats.norm.logpdf(1000, 1)) - math.log(2)
    assert found == pytest.approx(expected, rel=1e-14)


def test_matched_moments_are_those_of_the_mixture(case):
    target, means, variances = case
    random = np.random.default_rng(1)
    for point in range(3):
        drawn = random.normal(means[:, point], np.sqrt(variances[:, point]), (200_000, 7)).ravel()
        one = uci.matched_log_likelihood(target[[point]], means[:, [point]], variances[:, [point]])
        # 1.4 million draws: the standard errors of mean and variance move the density by some 0.003.
        assert one == pytest.approx(stats.norm.logpdf(target[point], drawn.mean(), drawn.std()), abs=0.015)
    assert uci.matched_log_likelihood(target, means[:1], variances[:1]) == pytest.approx(
        mixture_log_likelihood(target, means[:1], variances[:1]), abs=1e-12
    )


def test_units_change_the_likelihood_by_their_logarithm(case):
    target, means, variances = case
    hours = uci.split_scores(target, means, variances)
    minutes = uci.split_scores(60 * target, 60 * means, 3600 * variances)
    for name in ("log_likelihood", "matched_log_likelihood"):
        assert minutes[name] == pytest.approx(hours[name] - math.log(60), abs=1e-10)
    assert minutes["rmse"] == pytest.approx(60 * hours["rmse"])
    assert hours["rmse"] == pytest.approx(math.sqrt(((target - means.mean(axis=0)) ** 2).mean()))


NOISE = 0.5


@pytest.fixture
def data():
    """y = 3 + 4 sin(x0) + 2 x1 + noise of standard deviation 0.5, under the name of a real set."""
    random = np.random.default_rng(0)
    inputs = random.uniform(-2, 2, (400, 2))
    target = 3 + 4 * np.sin(inputs[:, 0]) + 2 * inputs[:, 1] + random.normal(0, NOISE, 400)
    return Regression("yacht", inputs, target, *draw_splits(400, 3), "")


@pytest.mark.parametrize("method", SETTINGS)
def test_it_comes_near_to_the_truth(data, method):
    found = train_and_score(SplitTraining(data, method, 0, 20, 0))
    best = -stats.norm(0, NOISE).entropy()  # the expected log-likelihood of the true distribution
    constant = stats.norm(0, data.targets.std()).logpdf(data.targets - data.targets.mean()).mean()
    assert found["log_likelihood"] > (best + constant) / 2
    assert found["rmse"] < 1.5 * data.targets.std() / 2


def test_splits_differ_and_the_same_split_repeats_bit_for_bit(data):
    first, again, other = (train_and_score(SplitTraining(data, "dropout", k, 2, 0)) for k in (0, 0, 1))
    assert first == again
    assert first != other


def test_no_test_row_is_seen_before_it_is_scored(data, monkeypatch):
    seen = []
    monkeypatch.setattr(uci, "split_scores", lambda target, *given: seen.append(given))
    inputs, targets = data.inputs.copy(), data.targets.copy()
    blind = data.test[0][1:]
    targets[data.test[0]] = np.nan
    inputs[blind] = 1e3
    for one in (data, replace(data, inputs=inputs, targets=targets)):
        train_and_score(SplitTraining(one, "variational", 0, 2, 0))
    (means, variances), (other_means, other_variances) = seen
    np.testing.assert_allclose(means[:, 0], other_means[:, 0], rtol=1e-5)
    np.testing.assert_allclose(variances[:, 0], other_variances[:, 0], rtol=1e-5)


def test_a_constant_column_is_only_centered(data):
    constant = replace(data, inputs=np.column_stack([data.inputs, np.full(400, 0.1)]))
    assert np.isfinite(train_and_score(SplitTraining(constant, "ensemble", 0, 1, 0))["log_likelihood"])


def test_large_sets_train_in_larger_batches(data):
    large = replace(data, train=np.tile(data.train, 10))
    sizes = [uci.run_of(SplitTraining(d, "dropout", 0, 1, 0)).optimizer.batch_size for d in (data, large)]
    assert sizes == [32, 128]
