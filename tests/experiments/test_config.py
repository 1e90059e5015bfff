import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.config_sources import presets
from retinabench.methods.registry import METHODS


def test_a_run_is_frozen_and_its_hash_ignores_where_the_data_lie():
    run = load_run(data="/a")
    assert run.hash("f") == load_run(data="/b").hash("f")
    assert run.hash("f") != run.hash("g")
    assert run.hash("f") != load_run(data="/a", seed=1).hash("f")
    # The default share of validation is new, and may choose another epoch; nothing changes where the last one is taken.
    for select in ("auroc", "last"):
        chosen = load_run(None, [f"optimizer.select={select}"], data="/a")
        assert ("validation_share" in chosen.identity("f")) is (select != "last")
    with pytest.raises(ValueError, match="frozen"):
        run.seed = 3


def test_files_hold_differences_and_words_win(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('seed = 5\n[method]\nname = "dropout"\nrate = 0.3\n[optimizer]\nlr = 1e-4\n')
    run = load_run(file, ["optimizer.lr=2e-3", "method.samples=7", "task=in_domain"], data="d", seed=6)
    assert (run.seed, run.task, run.optimizer.lr, run.method.samples) == (6, "in_domain", 2e-3, 7)
    assert run.method.rate == 0.3
    assert run.optimizer.epochs == load_run(data="d").optimizer.epochs


def test_a_method_may_be_one_word():
    assert load_run(None, ["method=dropout", "method.rate=0.2"], data="d").method.rate == 0.2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimiser.lr=1"], "Did you mean 'optimizer'"),
        (["optimizer.lrr=1"], "Did you mean 'lr'"),
        (["method=dropot"], "Did you mean 'dropout'"),
        (["method.name=dropout", "method.rte=0.1"], "Did you mean 'rate'"),
        (["method.name=dropout", "method.rate=1.5"], "method.rate"),
        (["model.name=resnet51"], "Did you mean 'resnet50'"),
        (["optimizer.epochs=0"], "optimizer.epochs"),
        (["optimizer.lr=nan"], "optimizer.lr"),
        (["seed"], "key=value"),
        (
            ["method.name=ensemble", "method.member.name=dropout", "method.member.rats=1"],
            "Did you mean 'rate'",
        ),
        (["method.name=map", "method.samples=3"], "method.samples"),
        (["optimizer.augment=afine"], "optimizer.augment"),
        (["optimizer.augment=1"], "optimizer.augment"),
    ],
)
def test_mistakes_are_named_in_one_line(words, message):
    with pytest.raises(InputError) as caught:
        load_run(None, words, data="d")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["model.name", "method.name", "optimizer.name"])
def test_half_a_surrogate_pair_is_no_name(key):
    with pytest.raises(InputError, match=r"unicode|half a surrogate pair") as caught:
        load_run(None, [f"{key}=\ud800"], data="d")
    str(caught.value).encode()


def test_a_broken_toml_file_is_named(tmp_path):
    (tmp_path / "x.toml").write_text("seed = = 3")
    with pytest.raises(InputError, match=r"x\.toml: is not TOML"):
        load_run(tmp_path / "x.toml", data="d")
    with pytest.raises(InputError, match="does not exist"):
        load_run(tmp_path / "y.toml", data="d")
    with pytest.raises(InputError, match="Did you mean 'demo/map'"):
        load_run("demo/mpa", data="d")


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_valid(name):
    run = load_run(name, data="d")
    assert run.method.name in METHODS
    if name.startswith(("published", "corrected")):
        assert (run.model.name, run.model.inputs, run.optimizer.epochs) == ("resnet50", "unit", 90)
        assert name.split("/")[1] == run.method.name


def test_the_2019_benchmark_s_networks_cost_alike():
    runs = {name: presets()[f"filos2019/{name}"] for name in ("deterministic", "dropout", "mfvi")}
    assert {name: run["model"].get("width", 32) for name, run in runs.items()} == {
        "deterministic": 32, "dropout": 32, "mfvi": 22,
    }  # fmt: skip
    sampled, deterministic = (
        load_run(f"filos2019/{name}", data="d") for name in ("dropout", "deterministic")
    )
    assert (sampled.model.width, sampled.model.activation) == (32, "leaky_relu")
    # The weights of the one are those of the other.
    assert METHODS["dropout_off"].trained_by(deterministic) == sampled


def test_a_run_survives_its_own_json():
    run = load_run("demo/ensemble", data="d")
    again = Run(**run.model_dump(mode="json"))
    assert again == run
    assert again.hash("f") == run.hash("f")


@pytest.mark.parametrize(("word", "meant"), [("true", "flip"), ("false", "none"), ("affine", "affine")])
def test_augment_was_a_switch_and_still_reads_as_one(word, meant):
    assert load_run(None, [f"optimizer.augment={word}"], data="d").optimizer.augment == meant


def test_a_key_of_the_command_line_is_not_blamed_on_the_file(tmp_path):
    for word in ("method.rat=0.1", "optimizer.lr=-1"):
        with pytest.raises(InputError) as raised:
            load_run("demo/dropout", [word])
        assert raised.value.file is None
    file = tmp_path / "mine.toml"
    file.write_text("[optimizer]\nlr = -1\n")
    with pytest.raises(InputError) as raised:
        load_run(file, ["optimizer.epochs=3"])
    assert raised.value.file == file


def test_the_hint_for_an_unknown_key_names_keys_of_the_chosen_method_alone():
    with pytest.raises(InputError) as error:
        load_run(None, ["method=map", "method.rte=0.1"], data="d")
    assert "rate" not in str(error.value)
    assert str(error.value).endswith("Valid: name, samples.")
