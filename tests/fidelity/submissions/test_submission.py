import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from support.small_submissions import DATA, ENERGY, FUNDUS, N, meta


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


def test_a_file_that_says_it_is_something_else_is_refused(tmp_path, probs):
    for schema, good in (
        ("retinabench.fidelity-reference/1", False),  # its `samples` would be read as a submission
        (3, False),
        ("retinabench.fidelity-answers/1", True),
        (None, True),
    ):
        stated = meta(FUNDUS) if schema is None else meta(FUNDUS) | {"schema": schema}
        np.savez(tmp_path / "s.npz", samples=probs[None], meta=np.array(json.dumps(stated)))
        if good:
            assert read_submission(tmp_path / "s.npz", FUNDUS, N, DATA).samples is not None
        else:
            with pytest.raises(InputError, match=rf"s\.npz: is no submission: its schema is '{schema}'"):
                read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)
    np.savez(tmp_path / "theirs.npz", probs=probs)
    assert read_submission(tmp_path / "theirs.npz", FUNDUS, N, DATA).about.task is None


def test_entries_that_we_do_not_know_are_kept(tmp_path, probs):
    write_submission(tmp_path / "s.npz", Submission(probs, about=About(**meta(FUNDUS), laboratory="ours")))
    back = read_submission(tmp_path / "s.npz", FUNDUS, N, DATA)
    assert back.about.changed(title="New").to_dict()["laboratory"] == "ours"


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
