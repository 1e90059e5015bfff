"""How verbs become an application: the help of each ends with its example and names its values."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.table import Table

import retinabench as rb
from retinabench.cli.fidelity import VERBS
from retinabench.cli.main import GROUPS, main, print_notes, print_table, say, say_error, verbs_of
from retinabench.cli.main import run as run_main
from retinabench.core.settings import read_toml
from retinabench.core.version import RELEASE
from retinabench.data.registry import DATASETS, TASKS
from retinabench.methods.registry import METHODS
from support.board_entries import NAME as FROZEN
from support.forking import ended, fork
from support.helpers import TINY, hear_interrupts, make_prepared

RED = "\x1b[31m"


def test_control_characters_are_spelled_out_everywhere(capsys):
    table = Table("name")
    table.add_row(f"a{RED}b")
    print_table(table)
    say(f"a{RED}b")
    say_error(f"a{RED}b")
    print_notes([f"a{RED}b"])
    found = capsys.readouterr()
    assert "\x1b" not in found.out
    assert RED not in found.err
    assert found.out.count("[31mb") == 2
    assert found.err.count("[31mb") == 2


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("cli") / "data")


def one_line(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note:")]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scor"], "No such command"), (["score", "x.csv", "--boostrap", "10"], "--boot"),
        (["score", "nowhere.csv"], "does not exist"), (["prepare", "idrdi", "--out", "x"], "Did you mean 'idrid'"),
        (["prepare", "idrid", "--out", "x"], "--source"),
        (["prepare", "idrid", "--source", "nowhere", "--out", "x"], "nowhere"),
        (["train", "--data", "nowhere"], "nowhere"),
        (["train", "--data", ".", "--method", "dropot"], "Did you mean 'dropout'"),
        (["train", "--data", ".", "optimizer.lrr=3"], "Did you mean 'lr'"),
        (["train", "--data", ".", "--task", "in_domian"], "Did you mean 'in_domain'"),
        (["predict", "nowhere", "--data", ".", "--out", "p.csv"], "no finished run"),
        (["compare", "nowhere.csv", "nowhere.csv"], "does not exist"),
        (["examine", "--answers", "nowhere.csv", "--truth", "nowhere.csv"], "does not exist"),
        (["lesions", "idrdi"], "Did you mean 'idrid'"), (["report", "."], "predictions.parquet"),
        (["track", "nowhere", "-q"], "run.json"), (["uci", "--source", "."], "energy/data.txt"),
        (["prepare", "aptos", "--download", "--source", "x", "--out", "y"], "(1) Accept the rules at https://"),
        (["prepare", "eyepacs", "--out", "y"], "Name them with --source. (1) Accept"),
        (["prepare", "aptos", "--source", ".", "--labels", "x", "--out", "y"], "--labels is not an option of the"),
        (["prepare", "folder", "--source", ".", "--column", "grade", "--out", "y"], "not ROLE=NAME"),
        (["prepare", "retinamnist", "--source", ".", "--out", "y"], "Add --download"),
        (["prepare", FROZEN, "--source", "x", "--out", "y"], "are frozen"),
        (["report", ".", "--shifted", "y"], "--shifted needs --data"), (["verify", "."], "holds no file to check"),
        (["predict", ".", "--out", "p"], "either --data (with a run) or --images"),
        (["predict", ".", "--out", "p", "--data", "d", "--labels", "l"], "--labels and --column belong to --images"),
        (["benchmark", "demmo"], "unknown study 'demmo'. Did you mean 'demo'?"),
        (["benchmark", "demo", "base.optimizer.lr=-1", "--status"], "optimizer.lr"),
        (["benchmark", "missing.toml"], "missing.toml: does not exist"), (["plan"], "Give --prevalence"),
        (["plan", "--prevalence", "0.1", "--above-sensitivity", "0.95"], "cannot be shown"),
        (["clinic", "x.csv", "--images-per-hour", "inf"], "out of range"), (["clinic", "x.csv", "--cost=nan"], "out of range"),
        (["clinic", "x.csv", "--referral", "nan"], "out of range"), (["transfer", "x.csv", "--goal", "1e-320"], "out of range"),
        (["score", "x.csv", "--threshold", "nan"], "out of range"), (["plan", "--prevalence", "nan"], "out of range"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert run_main(arguments) == 2
    line = one_line(capsys)
    assert line.startswith("retinabench: error: ")
    assert says in line
    assert list(tmp_path.iterdir()) == []


def test_a_bad_row_is_one_line_and_leaves_no_file(tmp_path, capsys):
    (tmp_path / "p.csv").write_text("image_id,label,prob\na,0,0.1\nb,1,nan\n")
    assert run_main(["score", str(tmp_path / "p.csv"), "--json", str(tmp_path / "s.json"), "--quiet"]) == 2
    assert "p.csv, row 2, column 'prob'" in one_line(capsys)
    assert not (tmp_path / "s.json").exists()


@pytest.mark.usefixtures("undrawn")
def test_train_score_report_inspect(prepared, tmp_path, capsys):
    out = tmp_path / "runs"
    for method in ("map", "dropout"):
        assert run_main(["train", "--data", str(prepared), "--out", str(out), "--method", method, "-q", *TINY]) == 0
    folders = sorted(str(folder) for folder in out.iterdir())
    assert run_main(["score", *folders, "--bootstrap", "20", "-q"]) == 0
    report = ["report", *folders, "--out", str(tmp_path / "report"), "--data", str(prepared)]
    assert run_main([*report, "--bootstrap", "20", "-q"]) == 0
    assert "<svg" in (tmp_path / "report" / "index.html").read_text()
    capsys.readouterr()
    file = folders[0] + "/predictions.parquet"
    for path, says in ((folders[0], "dropout"), (str(prepared), "patches"), (file, "shifted test")):
        assert run_main(["inspect", path]) == 0
        assert says in capsys.readouterr().out


def test_a_read_only_disk_is_one_line(prepared, tmp_path, capsys, monkeypatch):
    def read_only(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "fsync", read_only)
    assert run_main(["train", "--data", str(prepared), "--out", str(tmp_path), "-q", *TINY]) == 2
    assert "read-only" in one_line(capsys)
    assert not [file for file in tmp_path.glob("*/*") if file.name != ".lock"]


def test_a_full_disk_is_one_line_and_the_command_continues(prepared, tmp_path, capsys, monkeypatch):
    arguments = ["train", "--data", str(prepared), "--out", str(tmp_path), "-q", *TINY]
    fsync, writes = os.fsync, [0]

    def full(descriptor):
        writes[0] += 1
        if writes[0] > 6:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert run_main(arguments) == 1
    assert "no space left" in one_line(capsys)
    assert not list(tmp_path.glob("*/.*.part"))
    monkeypatch.setattr(os, "fsync", fsync)
    assert run_main(arguments) == 0


def test_a_loss_that_explodes_says_what_to_change(prepared, tmp_path, capsys):
    words = [*TINY, "optimizer.lr=1e30", "optimizer.warmup=0"]
    assert run_main(["train", "--data", str(prepared), "--out", str(tmp_path), "-q", *words]) == 1
    assert "Lower optimizer.lr" in one_line(capsys)


def test_ctrl_c_is_one_line_and_exit_130(prepared, tmp_path, capfd):
    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["retinabench", "train", "--data", str(prepared), "--out", str(tmp_path), "-q"]
        sys.argv += [*TINY, "optimizer.epochs=500"]
        main()

    process, deadline = fork(work), time.monotonic() + 60
    while not list(tmp_path.glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process, signal.SIGINT)
    assert ended(process) == 130
    assert capfd.readouterr().err.strip().splitlines() == [
        "retinabench: error: interrupted; the same command continues, where its work is kept in a folder"
    ]
    assert not list(tmp_path.glob("*/.*.part"))


LOST = """
import signal, sys, time
from retinabench.cli import main

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

def run(arguments):
    Finalized()
    time.sleep(50)

main.run = run
main.main()
"""


def test_a_warning_is_one_line_without_a_place_in_the_source():
    code = """
import warnings
from retinabench.cli import main
main.run = lambda _: warnings.warn("layers are left\\n  as they are: \\x1b[31m")
main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == "retinabench: warning: layers are left as they are: \\x1b[31m\n"


def test_ctrl_c_during_a_finalizer_is_repeated():
    began = time.monotonic()
    options = {"capture_output": True, "text": True, "timeout": 60, "preexec_fn": hear_interrupts}
    done = subprocess.run([sys.executable, "-c", LOST], **options)
    assert (done.returncode, done.stderr) == (130, "")
    assert time.monotonic() - began < 45


def test_what_is_no_file_or_cannot_be_named_is_one_line(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.csv")  # to read it would never end
    for arguments in (["score", str(tmp_path / "pipe.csv")], ["score", "a.csv", f"--json={os.devnull}"]):
        assert run_main(arguments) == 2
        assert "is a pipe or a device" in one_line(capsys)
    assert run_main(["verify", str(tmp_path / ("x" * 300))]) == 2
    assert "File name too long" in one_line(capsys)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):  # before the long work begins
        assert run_main(["site", "--out", str(out)]) == 2
        assert "is a file where a folder is needed" in one_line(capsys)
    assert run_main([]) == 2
    assert "error" not in capsys.readouterr().err


def test_settings_with_a_byte_order_mark_are_read_and_other_encodings_named(tmp_path, capsys):
    (tmp_path / "mark.toml").write_text('method.name = "map"\n', "utf-8-sig")
    assert read_toml(tmp_path / "mark.toml") == {"method": {"name": "map"}}
    (tmp_path / "wide.toml").write_text('method.name = "map"\n', "utf-16")
    assert run_main(["train", "--data", str(tmp_path), "--config", str(tmp_path / "wide.toml")]) == 2
    assert "wide.toml: is not UTF-8 text" in one_line(capsys)


def without_boxes(text):
    return " ".join(re.sub("[─-╿]", " ", text).split())


EXAMPLES = [([verb], example) for verbs in GROUPS.values() for verb, (_, example) in verbs.items()]
EXAMPLES += [(["fidelity", verb], example) for verb, (_, example) in VERBS.items()]


def test_the_help_lists_every_verb_with_its_whole_sentence(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run_main(["-h"]) == 0
    said = without_boxes(capsys.readouterr().out)
    for group in GROUPS:
        for verb, (function, _) in verbs_of(group).items():
            assert f"{verb} {' '.join(function.__doc__.splitlines()[0].split())}" in said
    assert "fidelity How close" in said


def test_version_and_an_interrupted_command(capsys, monkeypatch):
    assert run_main(["--version"]) == 0
    assert capsys.readouterr().out == f"retinabench {rb.__version__}\n"
    root = Path(rb.__file__).parents[2]
    if (root / ".git").exists():  # states between two releases are told apart by their commit
        code = "import retinabench; print(retinabench.__version__)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout
        assert shown == f"{RELEASE}+g{commit[:9]}\n" or ".dev" not in RELEASE

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("retinabench.predictions.io.find_files", interrupted)
    assert run_main(["score", "."]) == 130
    assert "interrupted" in one_line(capsys)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_an_error_is_coloured_only_where_it_may_be(no_color, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert run_main(["score", "nowhere.csv"]) == 2
    said = capsys.readouterr().err
    assert (RED in said) == (not no_color)
    assert said.count("\n") == 1


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=[" ".join(verb) for verb, _ in EXAMPLES])
def test_every_verb_s_help_has_its_example_and_nothing_is_cut(verb, example, capsys, monkeypatch):
    """Rich ends a word that does not fit its column with an ellipsis."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run_main([*verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert not re.search(r"\w…", said)
    assert f"Example: {example}" in without_boxes(said)  # which `test_documentation` parses in docs/commands.md
    assert example.startswith(" ".join(["retinabench", *verb]))


@pytest.mark.parametrize(("verb", "names"), [("prepare", DATASETS), ("train", TASKS), ("train", METHODS)])
def test_the_help_names_every_choice(verb, names, capsys):
    """Read from the registries, which import none of their entries."""
    assert run_main([verb, "--help"]) == 0
    said = re.findall(r"\w+", capsys.readouterr().out)
    assert names
    assert not set(names) - set(said)


def test_check_prints_every_check_and_fails_with_one(tmp_path, capsys):
    source = "from retinabench.methods.map import *\nfrom retinabench.methods import map as correct\n"
    (tmp_path / "misnamed.py").write_text(source + "class Config(correct.Config):\n    name: str = 'misnamed'\n")
    try:
        assert run_main(["check", str(tmp_path / "misnamed.py"), "optimizer.epochs=1", "optimizer.lr=0.001"]) == 1
    finally:
        METHODS.remove("misnamed")  # other tests of this process list all methods
    said = capsys.readouterr()
    assert "failed  learns: AUROC is" in said.out
    assert "ok      is_reproducible" in said.out
    assert "checks failed" in said.err
    (tmp_path / "empty.py").write_text("")
    assert run_main(["check", str(tmp_path / "empty.py")]) == 2
    assert "no `Config`" in capsys.readouterr().err
    assert run_main(["check", "dropoutt"]) == 2
    assert "Did you mean 'dropout'" in capsys.readouterr().err
