"""Every method of `METHODS` through the checks of `experiments/conformance.py`; stops, compositions, precision, and its samples."""

import filecmp
from functools import cached_property

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments import execution
from retinabench.experiments.config import load_run
from retinabench.experiments.conformance import CHECKS, Subject, checks_of
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.experiments.run_folder import load_posterior
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.metrics.classification import auroc
from retinabench.predictions.io import read_predictions
from support import tiny_target
from support.helpers import OF_SMALL_NETWORKS, TINY, fast, quick

CPU = Resources("cpu")
SINGLE = [name for name, method in METHODS.items() if not is_composed(method)]
# Of the fast tests `test_own_networks.py` asks these of a smaller network; what continues with the same bits is reproducible, too.
ELSEWHERE = ("is_reproducible", "depends_on_the_seed", "continues_after_a_stop", "travels")
OF_POINTS = ("learns_under_its_likelihoods", "weighs_classes")
OF_A_RUN = ("learns", "records_its_origin", "is_computed_once", "restores_its_posterior", "predicts_probabilities")
QUICK_LIKELIHOODS = ("map", "mfvi", "laplace", "csghmc")  # the others take seconds each
OVER_WEIGHTS = (
    "map", "fsvi", "vbll", "laplace", "sngp", "swag", "ivon", "gaussian_vi", "batch_ensemble", "head_ensemble",
    "lora_ensemble",
)  # fmt: skip
VARIANTS = [
    "laplace method.weights=diagonal", "fsvi method.covariance=full", "fsvi method.context=monochrome",
    "ivon method.train_samples=2", "multiswag method.path=sgld method.components=2", "sequential_anchored method.anchors=matched",
]  # fmt: skip


def is_slow(name, check):
    of_points = check in OF_POINTS and name not in QUICK_LIKELIHOODS
    return check in ELSEWHERE or of_points or (check in OF_A_RUN and name in OF_SMALL_NETWORKS)


@pytest.fixture(scope="module")
def subjects(prepared, runs, tmp_path_factory):
    """Every method as a subject of the checks; what one check computes, the next ones find."""

    class Shared(Subject):
        """A subject whose run other modules share."""

        @cached_property
        def finished(self):
            return execute(self.run, runs, CPU)

    out = tmp_path_factory.mktemp("checks")
    words = {name: [*TINY, f"method.name={name}", *quick(name, 50 if name == "mclmc" else 100)] for name in METHODS}
    return {name: Shared(load_run(None, words[name], data=prepared), out / name) for name in METHODS}


@pytest.fixture
def predicted(trained):
    return lambda *words: read_predictions(trained(*words) / "predictions.parquet")


ASKED = [(name, check) for name in METHODS for check in checks_of(name)]
ASKED = [pytest.param(*one, marks=[pytest.mark.slow] * is_slow(*one)) for one in ASKED]


@pytest.mark.parametrize(("name", "check"), ASKED)
def test_a_method_keeps_its_contract(subjects, name, check):
    subject = subjects[name]
    if check == "learns_under_its_likelihoods":  # a network so small that a chain may have all its gradients
        subject = Subject(subject.run.model_copy(update={"method": METHODS[name].Config()}), subject.folder)
    CHECKS[check](subject)


class StoppedError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", fast(METHODS, ("map", "csghmc", "ensemble")))
def test_stopped_before_its_posterior_is_saved_it_ends_with_the_same_bits(trained, prepared, tmp_path, name):
    def save_nothing(path, content):
        raise StoppedError

    words = [f"method.name={name}", *quick(name)]
    run = load_run(None, [*TINY, *words], data=prepared)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(execution, "save_tensors", save_nothing)
        with pytest.raises(StoppedError):
            execute(run, tmp_path, CPU)
    assert not list(tmp_path.glob("*/done"))
    torch.manual_seed(1)  # the global generator is where a new process has it: anywhere
    reference, folder = trained(*words), execute(run, tmp_path, CPU)
    for file in ["predictions.parquet", *(["posterior.pt"] if name in SINGLE else [])]:
        assert filecmp.cmp(reference / file, folder / file, shallow=False), file


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_a_sample_is_one_function_however_the_images_are_cut(trained, name):
    """The draws are the same; float32 sums may differ in their last digits with the size of a batch."""
    run, posterior = load_posterior(trained(f"method.name={name}", *quick(name)))
    data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
    images, _ = next(data.rows(data.validation))
    generator = torch.Generator().manual_seed(3)
    whole = posterior.predict(images, 4, generator)
    pieces = torch.cat([posterior.predict(part, 4, generator) for part in images.split(5)], dim=1)
    assert torch.allclose(whole, pieces, atol=1e-5)
    if name != "map":
        assert (whole[0] != whole[1]).any()
        # Fewer samples are the first of more.
        assert torch.equal(posterior.predict(images, 2, generator), whole[:2])


@pytest.mark.parametrize("name", fast(SINGLE, ("map", "dropout", "swag", "ddu")))
def test_an_ensemble_is_the_mixture_of_its_members(predicted, name):
    """A member is the single run of its seed."""
    pooled = predicted("method.name=ensemble", "method.members=2", f"method.member.name={name}")
    members = [predicted(f"method.name={name}", f"seed={seed}") for seed in (0, 1)]
    assert pooled.metadata["members"] == 2
    assert np.array_equal(pooled.probs, np.concatenate([m.probs for m in members], axis=1))
    assert np.allclose(pooled.prob, (members[0].prob + members[1].prob) / 2, atol=1e-15)


HARD = " optimizer.precision=bfloat16 optimizer.accumulate=2"
QUICK = [f"{name}{HARD}" for name in ("map", "mfvi", "laplace", "batch_ensemble")]


@pytest.mark.parametrize("words", [*VARIANTS, *fast([f"{one}{HARD}" for one in (*SINGLE, *VARIANTS)], QUICK)])
def test_it_learns_in_bfloat16_and_in_parts_of_a_batch_and_predicts_in_full_precision(predicted, words):
    test = predicted(*f"method.name={words}".split()).select(split="test")
    assert auroc(test.label, test.prob) > 0.9
    # bfloat16 holds 8 significant bits; the sigmoid is taken in float32.
    assert len(np.unique(test.prob)) > 20


TARGETS = {"gaussian": tiny_target.regression_target, "categorical": tiny_target.classification_target}
QUICK = ("batch_size=20", "lr=0.001")


@pytest.mark.parametrize("likelihood", [pytest.param("categorical", marks=pytest.mark.slow), "gaussian"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_submits_or_refuses_in_one_line(name, likelihood, tmp_path):
    target, few = TARGETS[likelihood](), ["method.members=2"] * ("members" in METHODS[name].Config.model_fields)
    try:
        file = run_entry(
            name, target, budget=40, out=tmp_path, track="open", over_budget="mark",
            overrides=[*(f"optimizer.{one}" for one in QUICK), "optimizer.epochs=2", *few],
        )  # fmt: skip
    except InputError as error:
        problem = error
    else:
        problem = None
    if problem is not None:
        assert "\n" not in str(problem)
        assert problem.hint
        return
    data = load(target)
    found = read_submission(file, target, len(data.test), data.sha256)
    values = found.probs if likelihood == "categorical" else found.draws
    assert np.isfinite(values).all()
    assert found.about.implied is not None
