import inspect
import re

import pytest

import entries
from entries import posteriors
from retinabench.experiments.config import load_run
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig

PARTS = ["Idea", "Settings", "Cost", "When it fails", "Source"]


@pytest.mark.parametrize("name", METHODS)
def test_a_card_has_its_parts_in_order(name):
    found = re.findall(r"^\*\*([^.*]+)\.?\*\*", inspect.getdoc(METHODS[name]), flags=re.MULTILINE)
    assert [part for part in found if part in PARTS] == PARTS


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_is_described(name):
    """In the card, or in the docstring of the class that defines it."""
    config = METHODS[name].Config
    described = METHODS[name].__doc__ + "".join(inspect.getdoc(kind) or "" for kind in config.__mro__)
    own = set(config.model_fields) - set(MethodConfig.model_fields)
    assert not {setting for setting in own if not re.search(rf"\b{setting}\b", described)}


def test_the_page_of_methods_shows_every_card():
    shown = re.findall(r"^::: (\S+)", entries.methods(), flags=re.MULTILINE)
    # Other tests of the same process may have added methods of their own.
    assert set(shown) == {entries.card_of(METHODS[name]) for name in METHODS if METHODS.is_builtin(name)}
    assert len(shown) == len(set(shown))


POINTS, VARIANCE = 512, 1 / 30
STATED = ["optimizer.l2_on=everything", "optimizer.reweight=none", "optimizer.augment=none"]


def entry_run(*words):
    return load_run(None, [f"optimizer.l2={1 / (2 * POINTS * VARIANCE)!r}", *STATED, *words], data="points")


@pytest.mark.parametrize(
    "words",
    [
        ["method.name=map"], ["method.name=gaussian_vi"], ["method.name=ivon"], ["method.name=vogn"],
        ["method.name=laplace", f"method.prior_precision={1 / VARIANCE}"],
        ["method.name=laplace", "method.weights=diagonal", f"method.prior_precision={1 / VARIANCE}"],
        ["method.name=mfvi", "method.prior_mean=zero", f"method.prior_stddev={VARIANCE**0.5}"],
        ["method.name=ensemble", "method.members=6", "method.member.name=ivon"], ["method.name=ensemble"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_exam_s_settings_imply_the_target(words):
    found = entry_run(*words).target_posterior(POINTS)
    assert found.temperature == 1
    assert found.prior_variance == pytest.approx(VARIANCE)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_targets_here_and_on_the_page_of_the_posteriors(name):
    found = entry_run(f"method.name={name}").target_posterior(POINTS)
    assert found.how != "not stated"
    assert (found.temperature is None) == (found.prior_variance is None)
    assert f"| `{name}` |" in posteriors()


def test_settings_without_a_target_posterior_say_why():
    for words, why in (
        (["method.name=swag"], "noise of SGD"), (["method.name=multiswag"], "noise of SGD"),
        (["method.name=dropout"], "noise on activations"), (["method.name=radial"], "divergence"),
        (["method.name=rank1"], "two vectors per layer"), (["method.name=fsvi"], "over functions"),
        (["method.name=temperature"], "after training"), (["method.name=mfvi"], "follows the means"),
        (["method.name=mfvi", "method.prior_mean=zero", "method.prior_stddev=0.5"], "two priors"),
        (["method.name=laplace"], "chosen after"), (["method.name=laplace", "method.prior_precision=7.0"], "two priors"),
        (["method.name=map", "optimizer.l2_on=weights"], "a prior on weights only"),
        (["method.name=ivon", "optimizer.reweight=minibatch"], "reweighted by class"),
        (["method.name=ivon", "optimizer.augment=flip"], "augmented images"),
    ):  # fmt: skip
        found = entry_run(*words).target_posterior(POINTS)
        assert found.temperature is None
        assert why in found.how


def test_the_winners_settings_are_a_cold_posterior():
    """UCI in the 2024 rerun: λ = 6000, δ = 0.005, N = 512: power λ / N = 11.7, prior precision λ δ = 30."""
    ess, delta = 6000, 0.005
    words = ["method.name=ivon", f"method.temperature={POINTS / ess!r}", f"optimizer.l2={delta / 2}"]
    found = entry_run(*words).target_posterior(POINTS)
    assert 1 / found.temperature == pytest.approx(11.7, abs=0.05)
    assert 1 / found.prior_variance == pytest.approx(30)
    # The divergence's temperature leaves the prior as it is.
    warm = entry_run("method.name=gaussian_vi", "method.kl_temperature=0.25").target_posterior(POINTS)
    assert warm.temperature == 0.25
    assert warm.prior_variance == pytest.approx(VARIANCE)


def test_the_names_of_settings_in_version_0_1_are_still_read():
    old = entry_run("method.name=gaussian_vi", "method.temperature=0.25", "method.deviation=0.02").method
    assert (old.kl_temperature, old.std) == (0.25, 0.02)
    assert entry_run("method.name=ivon", "method.deviation=0.02").method.std == 0.02
