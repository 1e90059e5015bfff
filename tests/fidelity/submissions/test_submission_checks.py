"""What a submission must hold, and the one line that says what it lacks."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from support.fake_reference import softmax
from support.small_submissions import DATA, ENERGY, FUNDUS, N, meta


def test_more_draws_than_wanted_are_cut(tmp_path, draws):
    np.savez(tmp_path / "x.npz", draws=np.concatenate([draws, draws], axis=1))
    assert (read_submission(tmp_path / "x.npz", ENERGY, N).draws == draws).all()


def spoilt(values, **changes):
    out = np.array(values)
    for row, value in changes.items():
        out[int(row[3:]) - 1] = value
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[:-2], "holds 10 rows; the task 'fundus' has 12 test points"),
        (lambda p: p[:, :3], r"shape \(12, 3\).*12 test points and 5 classes"),
        (lambda p: spoilt(p, row3=np.nan), "row 3: holds a value that is not finite"),
        (lambda p: spoilt(p, row5=[2.5, -1, 0, 0, 1]), "row 5: holds 2.5, which is no probability.*softmax"),
        (lambda p: spoilt(p, row7=[0.5, 0.2, 0, 0, 0]), r"row 7: sums to 0.7.*\(1 of 12 rows"),
        (lambda p: p.T[None], "shape"),
        (lambda p: np.log(p), "which is no probability. Are these logits"),
    ],
)
def test_bad_probabilities_name_row_and_hint(tmp_path, probs, change, message):
    np.savez(tmp_path / "bad.npz", probs=change(probs))
    with pytest.raises(InputError, match=rf"bad\.npz.*{message}"):
        read_submission(tmp_path / "bad.npz", FUNDUS, N)


def test_too_few_draws_and_means_instead_of_draws_are_refused(tmp_path, draws):
    np.savez(tmp_path / "few.npz", draws=draws[:, :100])
    with pytest.raises(InputError, match="100 draws per test point, wanted are 1,000"):
        read_submission(tmp_path / "few.npz", ENERGY, N)
    np.savez(tmp_path / "turned.npz", draws=draws.T)
    with pytest.raises(InputError, match=r"holds 1000 rows.*Turn it"):
        read_submission(tmp_path / "turned.npz", ENERGY, N)


def test_samples_that_contradict_the_probabilities_are_refused(tmp_path, probs):
    other = softmax(np.random.default_rng(7).normal(size=(50, N, 5)))
    write_submission(tmp_path / "s.npz", Submission(probs, other, about=About(**meta(FUNDUS))))
    with pytest.raises(InputError, match=r"contradicts 'probs'"):
        read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)
    # A part of the samples, whose mean has its error, is what runs keep.
    whole = softmax(np.log(probs) + np.random.default_rng(8).normal(size=(600, N, 5)))
    part = Submission(whole.mean(axis=0), whole[::12], about=About(**meta(FUNDUS)))
    write_submission(tmp_path / "p.npz", part)
    assert len(read_submission(tmp_path / "p.npz", FUNDUS, N, DATA).samples) == 50
