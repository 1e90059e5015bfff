import json
import sys
import types

import pytest

from cli.test_main import one_line
from retinabench.cli import main as cli
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.scheduler import Outcome
from retinabench.experiments.study.study import workspace
from support.helpers import TINY, make_prepared
from support.searching import Serial, pretend
from support.studies import BOTH
from support.studies import SPACE as SPACE_STUDIES

pytestmark = pytest.mark.usefixtures("undrawn")

SPACE = """
optimizer.lr = { low = 1e-3, high = 1.0, scale = "log" }
method.rate = { low = 0.0, high = 0.5 }
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("tune") / "data")


@pytest.fixture
def command(data, tmp_path, monkeypatch):
    """Run `tune` with an engine of this process; the engine is in `command.engine`, its options in `command.options`."""
    (tmp_path / "space.toml").write_text(SPACE)

    def run(*words, work=pretend):
        run.engine = Serial(work)

        def make_engine(name, **options):
            run.options = {"name": name, **options}
            return run.engine

        fake = types.SimpleNamespace(make_engine=make_engine, precision_of=lambda *_: None)
        monkeypatch.setitem(sys.modules, "retinabench.experiments.engines.engine", fake)
        arguments = ["tune", "--data", str(data), "--space", str(tmp_path / "space.toml"), "--method", "dropout"]
        arguments += ["--out", str(tmp_path / "sweep"), "--trials", "6", *words, *TINY]
        return cli.run([str(word) for word in arguments])

    return run


def test_a_search_writes_table_configuration_and_figures(command, data, tmp_path, capsys):
    assert command("--workers", 2, "--quiet") == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "sweep" / "in_domain_auroc-corrected"
    assert out.splitlines()[-1] == str(folder / "best.toml")
    assert err == ""
    names = {file.name for file in folder.iterdir()}
    assert names == {"best.toml", "ranking.csv", "ranking.json", "marginals.svg", "marginals.png"}
    assert command.options["name"] == "local"
    assert command.options["parallel"] == 2
    assert len(command.engine.computed) == 6
    # `train --config` takes it: the best trial's run, and no other.
    chosen = load_run(folder / "best.toml", data=str(data))
    assert chosen in command.engine.computed
    assert "AUROC, in-domain validation (corrected)" in out


def test_the_same_command_continues_and_says_so(command, capsys):
    assert command() == 0
    first = capsys.readouterr().out
    assert command() == 0
    out, err = capsys.readouterr()
    assert command.engine.computed == []
    assert out == first
    assert "6 of 6: done before" in err
    assert command("--criterion", "balanced_joint_accuracy_area", "--rules", "published") == 0
    assert command.engine.computed == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--space", "demo/dropuot"], "Did you mean 'demo/dropout'?"), (["--criterion", "auroc"], "in_domain_auroc"),
        (["--trials", "0"], "--trials"),
        (["--task", "in_domain", "--criterion", "balanced_joint_accuracy_area"], "no shifted validation images"),
        (["--method", "map"], "unknown key 'method.rate' for the method 'map'"), (["--data", "absent"], "absent"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_exit_code_2(command, capsys, words, said):
    assert command("--quiet", *words) == 2
    assert said in one_line(capsys)
    assert command.engine.computed == []


def test_a_folder_of_another_sweep_is_one_line_and_exit_code_2(command, capsys):
    assert command("--quiet") == 0
    capsys.readouterr()
    assert command("--quiet", "--seed", 1) == 2
    assert "holds a search with another" in one_line(capsys)


def test_where_every_trial_diverges_the_work_failed(command, capsys, tmp_path):
    def diverge(job):
        return Outcome(job, "diverged", None, 1.0, 1, "the loss is not finite at step 1")

    assert command("--quiet", work=diverge) == 1
    out, err = capsys.readouterr()
    assert "none of 6 trials has a value" in err
    assert "6 diverged (trial 0: the loss is not finite at step 1)" in " ".join(out.split())
    assert (tmp_path / "sweep" / "in_domain_auroc-corrected" / "ranking.csv").is_file()


def test_a_trial_whose_folder_is_gone_or_failed_recommends_no_other_in_its_place(command, capsys):
    best = []

    def lose(job):
        outcome = pretend(job)
        if outcome.state == "done" and not best:
            best.append(outcome.folder)
        elif best and best[0].is_dir():
            for path in best[0].iterdir():
                path.unlink()
        return outcome

    assert command("--quiet", work=lose) == 1
    assert f"{best[0].name}: files are missing or damaged. Delete what is left" in one_line(capsys)
    best[0].rmdir()
    assert command("--quiet") == 0
    assert command("--quiet", "--trials", 7, work=lambda job: Outcome(job, "failed", None, 1.0, 1, "it broke")) == 1
    assert "1 trials failed, and the others are ranked" in one_line(capsys)


STUDY = """
title = "Tiny"
criteria = {criteria}
trials = 2
seeds = 2
ensemble = 2
bootstrap = 20
[tasks.country_shift]
data = "{data}"
[base]
model = {{ name = "resnet18", width = 4, stem = "small" }}
optimizer = {{ epochs = 2, batch_size = 16, warmup = 1 }}
[methods.map]
space = "{space}"
[methods.dropout]
space = "{space}"
run = {{ method = {{ name = "dropout", samples = 2 }} }}
"""


@pytest.fixture
def file(tmp_path):
    data, space = make_prepared(tmp_path / "data"), tmp_path / "space.toml"
    space.write_text(SPACE_STUDIES)
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(criteria=json.dumps(BOTH[:1]), data=data, space=space))
    return path


def test_a_second_command_on_a_folder_is_refused_while_status_answers(file, tmp_path, capsys):
    words = ["benchmark", str(file), "--out", str(tmp_path / "out"), "--quiet", "--device", "cpu"]
    with workspace(tmp_path / "out").lock():
        assert cli.run(words) == 2
        error = capsys.readouterr().err
        assert "another benchmark command is at work" in error
        assert error.count("\n") == 1
        assert cli.run([*words, "--status"]) == 0
        assert "8 runs left" not in capsys.readouterr().err


@pytest.mark.slow
def test_plan_then_the_whole_study_then_status(file, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["benchmark", str(file), "--out", str(out), "--quiet", "--device", "cpu", "--workers", "1"]
    assert cli.run([*words, "--plan"]) == 0
    assert "6 runs" in capsys.readouterr().out
    assert not out.exists()
    assert cli.run(words) == 0
    printed = capsys.readouterr().out
    assert "ensemble of 2" in printed
    assert printed.endswith("summary.md\n")
    assert json.loads((out / "summary.json").read_text())["complete"]
    assert (out / "report" / "country_shift" / BOTH[0] / "index.html").is_file()
    assert (out / "tables" / "index.md").is_file()
    ranking = out / "country_shift" / "map" / f"{BOTH[0]}-corrected"
    assert {"ranking.csv", "best.toml", "marginals.svg"} <= {file.name for file in ranking.iterdir()}
    assert cli.run([*words, "--status"]) == 0
    assert "finished" in capsys.readouterr().out
