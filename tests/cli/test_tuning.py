"""`retinabench tune` from the command line: files, exit codes, one line per mistake; and its table and figures."""

from __future__ import annotations

import re
import sys
import types
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image
from rich.console import Console

from retinabench.cli import main as cli
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.jobs import Outcome
from retinabench.experiments.search.plots import marginals, parallel
from retinabench.experiments.search.ranking import Ranking, Trial, in_order, ranking_table, short_names
from retinabench.experiments.search.space import points, read_space, space_of
from retinabench.reports.toolkit.terminal import to_terminal
from support.helpers import TINY, make_prepared
from support.searching import Serial, pretend

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
        arguments = [
            "tune",
            "--data",
            str(data),
            "--space",
            str(tmp_path / "space.toml"),
            "--method",
            "dropout",
        ]
        arguments += ["--out", str(tmp_path / "sweep"), "--trials", "6", *words, *TINY]
        return cli.run([str(word) for word in arguments])

    return run


def test_a_search_writes_table_configuration_and_figures(command, data, tmp_path, capsys):
    assert command("--parallel", 2, "--quiet") == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "sweep" / "in_domain_auroc-corrected"
    assert out.splitlines()[-1] == str(folder / "best.toml")
    assert err == ""
    names = {file.name for file in folder.iterdir()}
    assert names == {
        "best.toml", "ranking.csv", "ranking.json", "parallel.svg", "parallel.png", "marginals.svg", "marginals.png",
    }  # fmt: skip
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
    assert "6 of 6 trials: done before" in err
    assert command("--criterion", "balanced_joint_accuracy_area", "--rules", "published") == 0
    assert command.engine.computed == []


def test_progress_names_values_and_what_went_wrong(command, capsys):
    assert command() == 0
    err = capsys.readouterr().err
    assert re.search(r"^1 of 6 trials: 0\.\d{4}$", err, re.MULTILINE)
    assert re.search(r"^[2-6] of 6 trials: diverged$", err, re.MULTILINE)


def line_of(capsys):
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1, err
    assert err[0].startswith("retinabench: error: ")
    return err[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--space", "demo/dropuot"], "Did you mean 'demo/dropout'?"),
        (["--criterion", "auroc"], "in_domain_auroc"),
        (["--trials", "0"], "--trials"),
        (["--rules", "published", "--halving", "3"], "trains every trial in full"),
        (
            ["--task", "in_domain", "--criterion", "balanced_joint_accuracy_area"],
            "no shifted validation images",
        ),
        (["--method", "map"], "unknown key 'method.rate' for the method 'map'"),
        (["--data", "absent"], "absent"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(command, capsys, words, said):
    assert command("--quiet", *words) == 2
    assert said in line_of(capsys)
    assert command.engine.computed == []


def test_a_folder_of_another_sweep_is_one_line_and_exit_code_2(command, capsys):
    assert command("--quiet") == 0
    capsys.readouterr()
    assert command("--quiet", "--seed", 1) == 2
    assert "holds a search with another" in line_of(capsys)


def test_where_every_trial_diverges_the_work_failed(command, capsys, tmp_path):
    def diverge(job):
        return Outcome(job, "diverged", None, 1.0, 1, "the loss is not finite at step 1")

    assert command("--quiet", work=diverge) == 1
    out, err = capsys.readouterr()
    assert "none of 6 trials has a value" in err
    assert "6 diverged (trial 0: the loss is not finite at step 1)" in " ".join(out.split())
    assert (tmp_path / "sweep" / "in_domain_auroc-corrected" / "ranking.csv").is_file()


# ------------------------------------------------------------------------------------ table and figures


def ranking(space, values, states=None, epochs=None):
    run = load_run("demo/map", data="x")
    rows = [
        Trial(i, point, run, (states or {}).get(i, "done"), value, "it broke" if i in (states or {}) else "",
            (epochs or {}).get(i, 12), 1.0, 1, None)
        for i, (point, value) in enumerate(zip(points(space, 0, len(values), 0), values, strict=True))
    ]  # fmt: skip
    return Ranking("in_domain_auroc", "corrected", space, in_order(rows))


def mixed():
    """Forty trials: 1 and 2 without a value, 3 stopped early, the others the better the later."""
    values = [0.5 + 0.01 * i for i in range(40)]
    values[1] = values[2] = float("nan")
    return ranking(read_space("published/fsvi"), values, {1: "diverged", 2: "out_of_memory"}, {3: 4})


def test_the_table_shows_the_best_and_counts_the_others():
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(to_terminal(ranking_table(mixed())))
    text = " ".join(console.export_text().split())
    trials = re.findall(r"(?<!\S)(\d+) (0\.\d{4})", text)
    assert trials == [(str(i), f"{0.5 + 0.01 * i:.4f}") for i in range(39, 29, -1)]
    for part in (
        "28 more in ranking.csv",
        "1 stopped early",
        "1 diverged (trial 1: it broke)",
        "1 out of memory (trial 2",
    ):
        assert part in text


def test_parallel_coordinates_draw_every_trial_and_mark_the_best_and_the_lost():
    found = mixed()
    figure = parallel(found)
    [axes] = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == len(found.space) + 1]
    assert len(lines) == 40
    widest = max(lines, key=lambda line: line.get_linewidth())
    best = found.rows[0]
    heights = [p.position(best.values[p.key]) for p in found.space if not p.choices]
    drawn = [y for y, p in zip(widest.get_ydata(), found.space, strict=False) if not p.choices]
    assert drawn == pytest.approx(heights)
    assert widest.get_ydata()[-1] == max(line.get_ydata()[-1] for line in lines)
    assert sum(line.get_marker() == "x" for line in axes.lines) == 2
    # Ranges are drawn inside their axes, whatever the scale; a lost trial ends below the criterion's.
    for line in lines:
        assert all(0 <= y <= 1 for y in line.get_ydata()[:-1])
        assert 0 <= line.get_ydata()[-1] <= 1 or line.get_linestyle() != "-"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["best: trial 39, 0.8900", "next 2", "34 others", "1 stopped early", "2 without a value"]


def test_marginals_draw_every_trial_in_every_panel():
    found = mixed()
    figure = marginals(found)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_xlabel() for axes in panels] == short_names(found.space)
    for axes in panels:
        assert sum(line.get_marker() == "o" for line in axes.lines) == 38
        assert sum(line.get_marker() == "x" for line in axes.lines) == 2


def test_of_very_many_trials_the_best_are_drawn_and_all_are_counted():
    values = [0.5 + i / 1000 for i in range(300)] + [float("nan")] * 100
    found = ranking(read_space("demo/map"), values, dict.fromkeys(range(300, 400), "failed"))
    figure = parallel(found)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == len(found.space) + 1]
    assert len(lines) == 225
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "best: trial 299, 0.7990", "next 9", "290 others, the best 190 drawn", "100 without a value",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [[0.7], [0.7, 0.7, 0.7], [float("nan")] * 3, [0.6, float("nan"), 0.8]],
    ids=["one", "equal", "none", "few"],
)
def test_figures_of_few_or_equal_or_no_values_are_drawn(values, tmp_path):
    from retinabench.experiments.search.plots import write_figures

    space = space_of(
        {"a": {"b": {"low": 1, "high": 3, "integer": True}, "c": {"choices": [True, "x_y", 3]}},
         "d.b": {"low": 0.9, "high": 0.9001, "scale": "log_complement"}, "e": {"low": 1e-7, "high": 2e-7, "scale": "log"}}
    )  # fmt: skip
    states = {i: "failed" for i, value in enumerate(values) if value != value}
    found = ranking(space, values, states)
    files = write_figures(found, tmp_path)
    assert short_names(space) == ["a.b", "c", "d.b", "e"]
    for file in files:
        if file.suffix == ".svg":
            assert ElementTree.parse(file).getroot().tag.endswith("svg")
        else:
            with Image.open(file) as picture:
                assert picture.width > 400
    again = [file.read_bytes() for file in files]
    assert [file.read_bytes() for file in write_figures(found, tmp_path)] == again


def test_the_help_needs_no_torch(tmp_path):
    import subprocess

    code = "import sys; from retinabench.cli import main as cli; cli.run(['tune', '--help']); assert 'torch' not in sys.modules"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "sweeps/dropout" in found.stdout
