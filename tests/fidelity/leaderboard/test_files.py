import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.distances import total_variation, wasserstein
from retinabench.fidelity.leaderboard import files, shipped
from retinabench.fidelity.leaderboard.board import make_board
from retinabench.fidelity.leaderboard.files import board_of, find_submissions, score_files, score_tasks, task_of
from retinabench.fidelity.leaderboard.page import markdown
from retinabench.fidelity.leaderboard.shipped import beside, pack, shipped_submissions
from retinabench.fidelity.leaderboard.tables import ranking_tables, task_table
from retinabench.fidelity.submissions.submission import About, Budget, Submission, write_submission
from support.evaluators import DATA, FUNDUS, N, submission_meta


def test_a_kept_submission_is_found_by_the_board_under_its_title(tmp_path, evaluators):
    probs = evaluators["fundus"].reference.probs
    np.savetxt(tmp_path / "theirs.csv", probs, delimiter=",")
    kept = tmp_path / "kept"
    scored = score_files([tmp_path / "theirs.csv"], evaluators["fundus"], keep=kept, title="Theirs")
    assert scored.competitors[0].title == "Theirs"
    (file,) = find_submissions([kept])
    assert task_of(file) == "fundus"
    (again,), _ = score_tasks([file], evaluators)
    assert again.competitors[0].title == "Theirs"
    assert again.value("Theirs", "all", "agreement").value == 1


def test_keeping_a_submission_does_not_sign_what_no_run_has_signed(tmp_path, evaluators):
    probs = evaluators["fundus"].reference.probs[:, ::-1]
    about = submission_meta(FUNDUS, "Ours") | {"evidence": {"manifest": "0" * 64}}
    write_submission(tmp_path / "ours.npz", Submission(probs, about=About(**about)))
    content = dict(np.load(tmp_path / "ours.npz"))
    meta = json.loads(str(content.pop("meta")))
    del meta["content"]
    meta["budget"]["used"] = 1.0
    np.savez(tmp_path / "forged.npz", **content, meta=np.array(json.dumps(meta)))
    for name, counted in (("ours", True), ("forged", False)):
        kept = tmp_path / f"kept-{name}"
        score_files([tmp_path / f"{name}.npz"], evaluators["fundus"], keep=kept)
        (again,), _ = score_tasks(find_submissions([kept]), evaluators)
        (entry,) = again.competitors
        assert (entry.counted, entry.declared) == (counted, not counted)


def test_bad_files_are_named_and_the_board_stands(folder, evaluators, monkeypatch):
    probs = 0.8 * evaluators["fundus"].reference.probs + 0.04
    bad = {  # probabilities, what their metadata say, and the reason
        "bad-budget": (probs, {"budget": "lots"}, "has unreadable metadata: budget"),
        "endless-budget": (probs, {"budget": {"limit": 1e999, "used": 1}}, "has unreadable metadata"),
        "huge-budget": (probs, {"budget": {"used": 1e300}}, "has unreadable metadata: budget.used"),
        "huge-temperature": (probs, {"run": {"optimizer": {}, "method": {"temperature": 10**400}}}, "has unreadable metadata"),
        "no-such-task": (probs, {"task": "none"}, "unknown fidelity target 'none'"),
        "no-data": (probs, {"task": "imdb"}, "its task 'imdb' cannot be scored: its data are absent"),
        "rows": (probs[:5], {}, "holds 5 rows"),
        "not-a-sum": (probs + 0.5, {}, "row 4: holds 1.03, which is not a probability"),
    }  # fmt: skip
    for name, (values, stated, _) in bad.items():
        meta = np.array(json.dumps(submission_meta(FUNDUS, "Forged") | stated))
        (folder / name).mkdir()
        np.savez(folder / name / "submission.npz", probs=values, meta=meta)
    (folder / "junk").mkdir()
    (folder / "junk" / "submission.npz").write_bytes(b"PK\x03\x04 nothing")

    def evaluator(target, *_):
        if target.name not in evaluators:
            raise InputError("its data are absent", hint="Name them by --data.")
        return evaluators[target.name]

    monkeypatch.setattr(files, "make_evaluator", evaluator)
    board = board_of([folder])
    assert [row.title for row in board.ranking] == ["Near", "Middling", "Far"]
    why = {one.file.parent.name: one.why for one in board.refused}
    assert set(why) == {*bad, "junk"}
    assert all(reason in why[name] for name, (_, _, reason) in bad.items()), why
    assert len(board.to_dict()["refused"]) == 9


def test_tracks_and_tiers_are_ranked_apart(scored, evaluators):
    probs, made = evaluators["fundus"].reference.probs, []
    for k, (limit, run) in enumerate(((100, {}), (1000, {}), (1000, {"run": {"optimizer": {"augment": "flip"}}}))):
        noisy = 0.9 * probs + 0.1 * np.random.default_rng(k).dirichlet(np.ones(5), len(probs))
        made.append(([noisy], submission_meta(FUNDUS, f"M{k}") | {"budget": {"limit": limit, "used": 50.0}, **run}))
    found = [(one.division.track, one.division.tier, one.ranked[0].title) for one in scored(*made)[0]]
    assert found == [("stated", 100, "M0"), ("stated", 1000, "M1"), ("open", 1000, "M2")]


def test_the_reference_handed_in_is_shown_and_not_ranked(scored, evaluators):
    (board,), _ = scored(([evaluators["fundus"].reference.probs], submission_meta(FUNDUS, "Copy")))
    (entry,) = board.competitors
    assert entry.notes == ("equal to the reference",)
    assert entry.rank is None
    assert not board.ranked


def test_a_submission_that_is_there_twice_is_one_seed(scored, evaluators):
    probs = 0.8 * evaluators["fundus"].reference.probs + 0.2 / 5
    # The last says that it is another seed, and holds the same.
    (board,), refused = scored(*(([probs], submission_meta(FUNDUS, "MAP", seed)) for seed in (0, 0, 1)))
    assert [len(entry.seeds) for entry in board.competitors] == [1]
    assert ["holds the same predictions as" in one.why for one in refused] == [True, True]


def test_seeds_and_like_titles_are_kept_side_by_side(tmp_path, evaluators):
    base, kept = evaluators["fundus"].reference.probs, tmp_path / "kept"
    for seed in range(3):
        probs = 0.8 * base + 0.2 * np.random.default_rng(seed).dirichlet(np.ones(5), len(base))
        about = About(**submission_meta(FUNDUS, "MAP", seed))
        write_submission(tmp_path / str(seed) / "submission.npz", Submission(probs, about=about))
    files = [tmp_path / str(seed) / "submission.npz" for seed in range(3)]
    score_files(files, evaluators["fundus"], keep=kept)
    for title in ("a b", "a-b", "鏡" * 200):
        score_files(files[:1], evaluators["fundus"], keep=kept, title=title)
    assert len(find_submissions([kept])) == 6
    (board,), _ = score_tasks(find_submissions([kept]), evaluators)
    assert {entry.title: len(entry.seeds) for entry in board.competitors}["MAP"] == 3


@pytest.fixture
def packed(boards, tmp_path, monkeypatch):
    """The submissions of the boards as the package would ship them."""
    out = tmp_path / "shipped"
    for board in boards:
        submissions = [one for entry in board.competitors for one in entry.seeds]
        pack(board.target, DATA[board.target.name], submissions, out)
    monkeypatch.setattr(shipped, "FOLDER", out)
    monkeypatch.setattr(files, "shipped_submissions", partial(shipped_submissions, folder=out))
    return out


def test_the_compact_form_is_as_precise_as_stated(packed, boards):
    for board, distance, most in zip(boards, (total_variation, wasserstein), (1e-4, 0.02), strict=True):
        found = shipped_submissions(board.target, DATA[board.target.name], packed)
        assert [(one.title, one.about.seed) for one in found] == [
            ("Far", 0), ("Middling", 0), ("Near", 0), ("Near", 1), ("Near", 2),
        ]  # fmt: skip
        for one in found:
            (original,) = (o for o in board.entries[one.title].seeds if o.about.seed == one.about.seed)
            assert distance(one.values, original.values).mean() < most
            assert one.about == original.about
    assert shipped_submissions(FUNDUS, "0" * 64, packed) == []  # of other data


def test_small_probabilities_keep_their_logarithm(tmp_path):
    """A square root of p is stored to half a unit, so that log p errs by at most 1 / (65,535 √p)."""
    smallest = np.logspace(-8, -1, N)
    probs = np.column_stack([smallest, *np.tile((1 - smallest) / 4, (4, 1))])
    pack(FUNDUS, DATA["fundus"], [Submission(probs, about=About(title="Sure"))], tmp_path)
    (found,) = shipped_submissions(FUNDUS, DATA["fundus"], tmp_path)
    error = np.abs(np.log(found.probs) - np.log(probs))
    assert (error < 1.1 / (shipped.UNIT * np.sqrt(probs)) + 1e-4).all()  # 1e-4: of the row's sum


def test_a_lone_entry_is_ranked_among_those_that_are_shipped(packed, folder, evaluators):
    """One's own copy of a shipped submission replaces it."""
    own = [folder / "Middling-fundus-0" / "submission.npz"]
    (board,), refused = score_tasks(own, {"fundus": evaluators["fundus"]}, shipped=True)
    assert not refused
    assert [(one.title, one.kind == "baseline", len(one.seeds)) for one in board.ordered if one.kind != "trivial"] == [
        ("Near", True, 3), ("Middling", False, 1), ("Far", True, 1),
    ]  # fmt: skip
    table = task_table(board)
    assert [row.label for row in table.blocks[0].rows][:3] == ["Near", "Middling (here)", "Far"]
    assert "come with the package" in table.note
    whole = make_board([board])
    (ranking,) = ranking_tables(whole)
    assert [row.label for row in ranking.blocks[0].rows] == ["Near", "Middling (here)", "Far"]
    assert "Middling (here)" in markdown(whole)
    assert [one["shipped"] for one in board.to_dict()["entries"]][:3] == [False, True, True]
    alone, _ = score_tasks(own, {"fundus": evaluators["fundus"]})
    assert [one.title for one in alone[0].competitors] == ["Middling"]


def test_other_seeds_and_settings_stay_beside_the_shipped_ones(packed):
    found = shipped_submissions(FUNDUS, DATA["fundus"], packed)
    own = [one for one in found if one.title == "Near" and one.about.seed == 1]
    assert {(one.title, one.about.seed) for one in beside(own, found)} == {
        ("Far", 0), ("Middling", 0), ("Near", 0), ("Near", 2),
    }  # fmt: skip
    # What is not trained has the same settings at every tier.
    tier = Budget(limit=100.0)
    (another,) = (replace(one, about=one.about.model_copy(update={"budget": tier})) for one in own)
    assert len(beside([another], found)) == len(found)


def test_what_ships_keeps_the_stds_of_its_samples(packed, boards, tmp_path):
    (board,) = (one for one in boards if one.target == FUNDUS)
    samples = np.random.default_rng(1).dirichlet(np.ones(5), (20, N))
    mean, about = samples.mean(axis=0), [About(title=one) for one in ("With", "Without")]
    given = [Submission(mean, samples, about=about[0]), Submission(mean, about=about[1])]
    pack(FUNDUS, DATA["fundus"], given, tmp_path)
    found = {one.title: one for one in shipped_submissions(FUNDUS, DATA["fundus"], tmp_path)}
    assert found["With"].std == pytest.approx(samples.std(axis=0), abs=1e-5)
    assert found["Without"].std is None
    whole, compact = (board.evaluator.grade(one)["all"]["posterior_std"].value for one in (given[0], found["With"]))
    assert compact == pytest.approx(whole, abs=1e-5)
