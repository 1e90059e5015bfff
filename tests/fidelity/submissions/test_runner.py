import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.fidelity.submissions import runner
from retinabench.fidelity.submissions.entries import entry, entry_run
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import Budget, read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density, build_network, likelihood_of, point_batches
from retinabench.methods import map as map_method
from retinabench.methods.training.checkpoint import Checkpoint
from support.tiny_target import TEST, TRAIN, classification_target, regression_target


def submission_of(file, target):
    return read_submission(file, target, TEST, load(target).sha256)


@pytest.mark.parametrize("name", ["map", "mfvi", "laplace", "laplace-diagonal", "swag", "ivon", "dropout"])
def test_every_kind_of_method_predicts_a_regression_and_is_counted(name, tmp_path):
    target = regression_target()
    submission = submission_of(
        run_entry(name, target, budget=6, out=tmp_path, overrides=["method.samples=3"][name == "map" :]), target
    )
    assert submission.draws.shape == (TEST, 1000)
    budget = submission.about.budget
    assert budget.used == 6 == budget.limit  # whole epochs, no more and no less
    assert not budget.over


def test_a_classification_has_probabilities_and_samples(tmp_path):
    target = classification_target()
    submission = submission_of(
        run_entry("ivon", target, budget=3, out=tmp_path, overrides=["method.samples=4"]), target
    )
    assert submission.samples.shape == (4, TEST, 5)
    # Samples are kept in half precision.
    assert submission.samples.astype(float).mean(axis=0) == pytest.approx(submission.probs, abs=1e-3)
    assert submission.about.method == "ivon"


def test_the_loss_is_the_negative_log_posterior_over_n():
    # Of a full batch the gradient of the loss is -(∇ log-likelihood + ∇ log prior) / N, with the density's own numbers.
    target = regression_target()
    data = load(target)
    run = entry_run(entry("map"), target, TRAIN, 10, 0, ["optimizer.epochs=1", f"optimizer.batch_size={TRAIN}",
                   "optimizer.name=sgd", "optimizer.lr=1.0", "optimizer.momentum=0", "optimizer.schedule=constant"])  # fmt: skip
    network = build_network(target, 0)
    before = torch.cat([p.detach().flatten() for p in network.parameters()])
    batches = point_batches(data, TRAIN, 0, torch.device("cpu"))
    map_method.fit(network, batches, run, Checkpoint(), likelihood_of(target))
    step = before - torch.cat([p.detach().flatten() for p in network.parameters()])
    _, gradient = Density.of(target, data)(before[None])
    expected = -(gradient[0] - before / target.prior_variance) / TRAIN
    assert step.numpy() == pytest.approx(expected.numpy(), rel=1e-3, abs=1e-5)  # float32


def test_a_killed_run_goes_on_to_the_same_predictions_and_the_same_count(monkeypatch, tmp_path):
    target = regression_target()
    whole = submission_of(run_entry("swag", target, budget=8, out=tmp_path / "whole"), target)
    monkeypatch.setattr(runner, "SAVED_EVERY", 0.0)
    epoch = Batches.epoch

    def killed(self, number, *more):
        if number == 5:
            raise KeyboardInterrupt
        return epoch(self, number, *more)

    with monkeypatch.context() as during:
        during.setattr(Batches, "epoch", killed)
        with pytest.raises(KeyboardInterrupt):
            run_entry("swag", target, budget=8, out=tmp_path / "killed")
    again = submission_of(run_entry("swag", target, budget=8, out=tmp_path / "killed"), target)
    assert again.draws.tobytes() == whole.draws.tobytes()
    assert again.about.budget == whole.about.budget == Budget(limit=8, used=8, over=False)


def test_what_is_done_is_not_done_again_and_members_are_reused(monkeypatch, tmp_path):
    target = regression_target()
    words = ["method.members=3"]
    file = run_entry("ensemble", target, budget=6, out=tmp_path, overrides=words)
    assert submission_of(file, target).about.budget.used == 6  # 3 members of 2 epochs
    monkeypatch.setattr(map_method, "fit", None)
    assert run_entry("ensemble", target, budget=6, out=tmp_path, overrides=words) == file
    (file.parent / "done").unlink()
    file.unlink()
    assert run_entry("ensemble", target, budget=6, out=tmp_path, overrides=words) == file  # from its members


def test_what_exceeds_the_budget_is_refused_or_marked(tmp_path):
    target = regression_target()
    words = ["optimizer.epochs=4"]
    with pytest.raises(InputError, match="plans 4 gradient"):
        run_entry("map", target, budget=3, out=tmp_path, overrides=words)
    assert not list(tmp_path.iterdir())
    marked = run_entry("map", target, budget=3, out=tmp_path, overrides=words, over_budget="mark")
    assert submission_of(marked, target).about.budget == Budget(limit=3, used=4, over=True)
