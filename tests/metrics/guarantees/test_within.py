import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from retinabench.metrics.actions import read_rule
from retinabench.metrics.follow_up import Watched
from retinabench.metrics.guarantees.triage import within
from retinabench.metrics.monitoring import goal_sums, read_by_expert


def drawn():
    """Sites A and B with 600 patients each, of which B is harder; site C has no validation image."""
    rng = np.random.default_rng(0)
    patient = np.arange(2800) // 2
    site = np.repeat(["A"] * 600 + ["B"] * 600 + ["C"] * 200, 2)
    label = np.repeat(rng.random(1400) < 0.3, 2)
    z = np.where(site == "B", 0.9, 3.0) * (2 * label - 1) + rng.normal(0, 1.2, 2800)
    split = np.where((patient % 2 == 0) & (site != "C"), "validation", "test")
    return rb.Predictions(
        [f"i{k}" for k in range(2800)], label, 1 / (1 + np.exp(-z)), patient_id=patient, split=split,
        subgroups={"site": site},
    )  # fmt: skip


GOALS = ["selective_risk=.12"]


@pytest.fixture(scope="module")
def found():
    predictions = drawn()
    return predictions, within(
        predictions, "site", 0.2, lambda part, share: rb.transfer(part, goals=GOALS, delta=share, bootstrap=199)
    )


def test_every_group_is_certified_as_by_itself_at_its_share_of_delta(found):
    predictions, result = found
    assert list(result.groups) == ["A", "B"]
    assert "validation" in result.left_out["C"]
    for name, one in result.groups.items():
        part = predictions.take(np.flatnonzero(predictions.subgroups["site"] == name))
        assert one.threshold == rb.transfer(part, goals=GOALS, delta=0.2 / 3, bootstrap=199).threshold
    assert result.groups["B"].threshold < result.groups["A"].threshold


def test_images_follow_the_rule_of_their_group_and_the_expert_reads_the_others(found, tmp_path):
    predictions, result = found
    (tmp_path / "w.json").write_text(json.dumps(result.to_dict()))
    rule = read_rule(tmp_path / "w.json")
    actions = rb.apply(predictions, rule)
    site, read = actions.images.subgroups["site"], actions.read
    for name in "AB":
        expected = actions.uncertainty[site == name] > result.groups[name].threshold
        np.testing.assert_array_equal(read[site == name], expected)
    assert read[site == "C"].all()
    new = predictions.select(split="test")
    images = Watched.of(new, "total", None, within="site")
    np.testing.assert_array_equal(read_by_expert(rule, images)[new.subgroups["site"] == "C"], True)
    _, den = goal_sums(rule, rule.goals[0], images)
    np.testing.assert_array_equal(den, ~read_by_expert(rule, images))


def test_the_command_names_the_groups_and_apply_reads_its_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rb.write_predictions(drawn(), tmp_path / "p.csv")
    words = [
        "transfer", "p.csv", "--goal", GOALS[0], "--confidence", ".8", "--within", "site", "--json", "w.json", "-q",
    ]  # fmt: skip
    assert run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Certified for 2 of 3 groups of site, all together with confidence 0.8: A, B. Not for C (")
    (tmp_path / "today.csv").write_text("image_id,prob,site\nx,0.99,A\ny,0.99,C\n")
    assert run(["apply", "today.csv", "--certificate", "w.json", "--out", "lists", "-q"]) == 0
    rows = (tmp_path / "lists" / "today-actions.csv").read_text().splitlines()
    assert [row.split(",")[1] + row.rpartition(",")[2] for row in rows[1:]] == ["xrefer to hospital", "yexpert reads"]
    (tmp_path / "other.csv").write_text("image_id,prob\nx,0.99\n")
    assert run(["apply", "other.csv", "--certificate", "w.json", "--out", "lists", "-q"]) == 2
    assert "has no column 'site'" in capsys.readouterr().err
