"""Whether the posterior is useful, and the table over kinds and strengths, from numbers that are known."""

from dataclasses import replace

import numpy as np
import pytest

from retinabench.fidelity.leaderboard.board import score_task
from retinabench.fidelity.leaderboard.pages.usefulness import corruption_table, usefulness_table
from retinabench.fidelity.leaderboard.scores import WHY_UNDEFINED
from retinabench.fidelity.submissions.submission import About, Submission
from retinabench.reports.toolkit.tables import UNDEFINED
from support.evaluators import ENERGY, FUNDUS, GROUP, N, evaluator_of
from support.fake_reference import classified, regressed
from support.submissions import submission_meta


def test_the_posterior_is_compared_with_map_and_with_nothing():
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    certain = np.full((N, 5), 0.05 / 4)
    certain[np.arange(N), evaluator.truth] = 0.95
    about = About(**submission_meta(FUNDUS, "MAP"))
    table = usefulness_table([score_task(evaluator, [Submission(certain, about=about)])])
    (block,) = table.blocks
    assert [row.label for row in block.rows][:2] == ["fundus: all test points", "fundus: in-domain"]
    posterior, known, uniform, over_map, over_uniform = (cell.content for cell in block.rows[0].cells)
    nll = -np.log(evaluator.reference.probs[np.arange(N), evaluator.truth]).mean()
    assert posterior.value == pytest.approx(nll)
    assert known.value == pytest.approx(-np.log(0.95))
    assert uniform.value == pytest.approx(np.log(5))
    assert over_map.value == pytest.approx(nll + np.log(0.95))
    assert over_uniform.low < nll - np.log(5) < over_uniform.high


def test_an_infinite_loss_of_map_has_its_reason():
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    wrong = np.zeros((N, 5))
    wrong[np.arange(N), (evaluator.truth + 1) % 5] = 1.0
    about = About(**submission_meta(FUNDUS, "MAP"))
    table = usefulness_table([score_task(evaluator, [Submission(wrong, about=about)])])
    _, known, uniform, over_map, over_uniform = table.blocks[0].rows[0].cells
    assert not any(one.defined for one in (known, over_map))
    assert known.why == over_map.why == WHY_UNDEFINED["nll"] != ""
    assert uniform.why == over_uniform.why == ""


def test_a_task_without_map_and_a_regression_have_what_is_known():
    evaluator = evaluator_of(ENERGY, regressed(N))
    draws = Submission(draws=evaluator.reference.draws[:, :1000], about=About(title="other"))
    table = usefulness_table([score_task(evaluator, [draws])])
    (block,) = table.blocks
    cells = block.rows[0].cells
    assert cells[0].content.defined
    assert cells[1] == cells[3] == UNDEFINED
    assert cells[4].content.defined


def test_kinds_and_strengths_have_a_mean_and_a_std():
    evaluator = evaluator_of(FUNDUS, classified(N, 5))
    random = np.random.default_rng(1)
    probs = random.dirichlet(np.ones(5), N)
    task = score_task(evaluator, [Submission(probs, about=About(title="one"))])
    (block,) = corruption_table(task).blocks
    distance = 0.5 * np.abs(probs - evaluator.reference.probs).sum(axis=1)
    cells = [distance[f"corrupted-noise-{k}" == GROUP].mean() for k in range(1, 6)]
    found = block.rows[0].cells[1].content
    assert found.value == pytest.approx(np.mean(cells))
    assert found.error == pytest.approx(np.std(cells, ddof=1))
    assert corruption_table(replace(task, evaluator=evaluator_of(ENERGY, regressed(N)))) is None
