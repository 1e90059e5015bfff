import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from retinabench.fidelity.targets.registry import TARGETS
from support.fake_reference import softmax

N = 12
FUNDUS, ENERGY = TARGETS["fundus"], TARGETS["energy-gap"]
DATA = "ab" * 32


@pytest.fixture
def probs():
    return softmax(np.random.default_rng(0).normal(size=(N, 5)))


@pytest.fixture
def draws():
    return np.random.default_rng(1).normal(size=(N, 1000))


def meta(chosen):
    return {
        "task": chosen.name,
        "target": chosen.fingerprint(DATA),
        "data": DATA,
        "method": "m",
        "title": "M",
    }


def test_ours_comes_back(tmp_path, probs, draws):
    samples = np.stack([probs, probs[::-1]])
    write_submission(tmp_path / "c.npz", Submission(probs, samples, about=About(**meta(FUNDUS))))
    back = read_submission(tmp_path / "c.npz", FUNDUS, N, DATA)
    assert (back.probs == probs).all()
    assert back.samples == pytest.approx(samples, abs=1e-3)  # half precision
    assert back.title == "M"
    write_submission(tmp_path / "r.npz", Submission(draws=draws, about=About(**meta(ENERGY))))
    assert read_submission(tmp_path / "r.npz", ENERGY, N, DATA).draws == pytest.approx(draws, abs=1e-6)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"budget": "much"}, "budget"),
        ({"seed": "x"}, "seed"),
        ({"budget": {"used": "?"}}, "budget.used"),
        ({"run": 3}, "run"),
    ],
)
def test_metadata_of_another_kind_are_named(tmp_path, probs, entry, key):
    arrays = {"probs": probs, "meta": np.array(json.dumps(meta(FUNDUS) | entry))}
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(InputError, match=rf"s\.npz: has unreadable metadata: {key}: "):
        read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)


def test_entries_that_we_do_not_know_are_kept(tmp_path, probs):
    write_submission(tmp_path / "s.npz", Submission(probs, about=About(**meta(FUNDUS), laboratory="ours")))
    back = read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)
    assert back.about.changed(title="New").to_dict()["laboratory"] == "ours"


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


def test_another_task_s_order_data_or_definition_is_refused(tmp_path, probs):
    path = tmp_path / "theirs.csv"
    rows = np.column_stack([np.arange(N)[::-1], probs])
    np.savetxt(path, rows, delimiter=",", header="point,prob_0,prob_1,prob_2,prob_3,prob_4", comments="")
    with pytest.raises(InputError, match=r"row 1, column 'point': is 11 where point 0 is due"):
        read_submission(path, FUNDUS, N)
    write_submission(tmp_path / "o.npz", Submission(probs, about=About(**(meta(FUNDUS) | {"task": "idrid"}))))
    with pytest.raises(InputError, match="is for the task 'idrid', not 'fundus'"):
        read_submission(tmp_path / "o.npz", FUNDUS, N, DATA)
    write_submission(
        tmp_path / "o.npz", Submission(probs, about=About(**(meta(FUNDUS) | {"data": "cd" * 32})))
    )
    with pytest.raises(InputError, match="is for other data"):
        read_submission(tmp_path / "o.npz", FUNDUS, N, DATA)
    write_submission(
        tmp_path / "o.npz", Submission(probs, about=About(**(meta(FUNDUS) | {"target": "0" * 12})))
    )
    with pytest.raises(InputError, match="another definition of 'fundus'"):
        read_submission(tmp_path / "o.npz", FUNDUS, N, DATA)
    np.savez(tmp_path / "kind.npz", probs=probs)
    with pytest.raises(InputError, match="holds no 'draws', which the task 'energy-gap' asks for"):
        read_submission(tmp_path / "kind.npz", ENERGY, N)


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


def test_a_counted_run_is_tied_to_its_arrays_and_budget(tmp_path, probs):
    counted = meta(FUNDUS) | {"budget": {"limit": 100, "used": 90.0}, "evidence": {"manifest": "0" * 64}}
    path = tmp_path / "s.npz"
    write_submission(path, Submission(probs, about=About(**counted)))
    back = read_submission(path, FUNDUS, N, DATA)
    assert back.about.counted
    with np.load(path) as saved:
        arrays = dict(saved)
    for change in ("budget", "probs"):
        stated = json.loads(str(arrays["meta"]))
        if change == "budget":
            stated["budget"]["used"] = 9.0
        values = probs[::-1] if change == "probs" else probs
        np.savez(tmp_path / f"{change}.npz", probs=values, meta=np.array(json.dumps(stated)))
        with pytest.raises(InputError, match="content hash"):
            read_submission(tmp_path / f"{change}.npz", FUNDUS, N, DATA)
    # Another title is no change of the run; a file without the hashes is declared.
    write_submission(path, Submission(probs, about=back.about.changed(title="Ours")))
    assert read_submission(path, FUNDUS, N, DATA).about.counted
    write_submission(path, Submission(probs, about=About(**meta(FUNDUS))))
    assert not read_submission(path, FUNDUS, N, DATA).about.counted
