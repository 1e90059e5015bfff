import pytest

from retinabench.core.errors import InputError
from retinabench.data.registry import TASKS
from retinabench.experiments.config import Run, load_run, presets
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimiser.lr=1"], "Did you mean 'optimizer'"), (["optimizer.lrr=1"], "Did you mean 'lr'"),
        (["method=dropot"], "Did you mean 'dropout'"),
        (["method.name=dropout", "method.rte=0.1"], "Did you mean 'rate'"),
        (["method.name=dropout", "method.rate=1.5"], "method.rate"),
        (["model.name=resnet51"], "Did you mean 'resnet50'"), (["optimizer.epochs=0"], "optimizer.epochs"),
        (["optimizer.lr=nan"], "optimizer.lr"), (["seed"], "key=value"),
        (["method.name=ensemble", "method.member.name=dropout", "method.member.rats=1"], "Did you mean 'rate'"),
        (["method.name=map", "method.samples=3"], "method.samples"),
        (["optimizer.augment=afine"], "optimizer.augment"), (["optimizer.augment=1"], "optimizer.augment"),
        (["method.name=\ud800"], "half a surrogate pair"),
    ],
)  # fmt: skip
def test_mistakes_are_named_in_one_line(words, message):
    with pytest.raises(InputError) as caught:
        load_run(None, words, data="d")
    assert message in str(caught.value)
    assert b"\n" not in str(caught.value).encode()


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
    own = ["model.weights=timm"] if "retfound" in name else []  # whose file is the user's
    run = load_run(name, own, data="d")
    assert run.method.name in METHODS
    if own:
        with pytest.raises(InputError, match=r"model\.weights"):
            load_run(name, data="d")
    if name.startswith(("published", "corrected")):
        assert (run.model.name, run.model.inputs, run.optimizer.epochs) == ("resnet50", "unit", 90)
        assert name.split("/")[1] == run.method.name


def test_the_2019_benchmark_s_deterministic_network_has_the_weights_of_its_dropout():
    sampled, deterministic = (load_run(f"filos2019/{name}", data="d") for name in ("dropout", "deterministic"))
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


# The tuned values of the released code's top_config, apart from our file: lr, 1 - momentum, L2, and the method's own.
PUBLISHED = """
map       country  in_domain 0.023072  0.0098467 1.0674e-4  0.01
map       country  joint     0.026561  0.045991  1.3148e-4  0.1
map       severity in_domain 0.058737  0.015731  3.1828e-6  0.01
map       severity joint     0.022779  0.011876  1.2376e-5  0.001
dropout   country  in_domain 0.027250  0.035193  1.4128e-5  0.17798
dropout   country  joint     0.0028274 0.024251  4.1296e-5  0.067338
dropout   severity in_domain 0.026561  0.023244  1.6501e-4  0.18813
dropout   severity joint     0.023072  0.012506  4.7560e-6  0.18222
mfvi      country  in_domain 0.48065   0.076935  1.3178e-4  9.7618e-4 0.41994
mfvi      country  joint     0.38662   0.038588  1.9733e-5  2.9392e-4 0.28203
mfvi      severity in_domain 0.042732  0.038292  3.3089e-5  1.0821e-3 0.012984
mfvi      severity joint     0.41973   0.021539  2.4503e-5  1.1944e-4 0.10938
radial    country  in_domain 0.189582  0.0166998 5.24385e-4 1.44978e-4 0.0628250
radial    country  joint     0.156063  0.0329158 1.49356e-4 2.14098e-5 0.0678246
radial    severity in_domain 0.20617   0.027963  8.4192e-4  0.012607 0.037535
radial    severity joint     0.20617   0.027963  8.4192e-4  0.012607 0.037535
rank1     country  in_domain 0.032299  0.066501  2.2417e-5  1.2390
rank1     country  joint     0.049826  0.021596  4.3192e-5  0.60756
rank1     severity in_domain 0.028553  0.077592  2.2310e-5  0.92953
rank1     severity joint     0.028553  0.077592  2.2310e-5  0.92953
fsvi      country  in_domain 0.0214508 0.0192180 1.57932e-4 15.3595 10 norms_and_biases True
fsvi      country  joint     0.0276892 0.0116774 3.0474e-6  17.0072 20 nothing False
fsvi      severity in_domain 0.0299504 0.0213841 1.5549e-6  5.63010 20 nothing True
fsvi      severity joint     0.0233865 0.0129553 2.52775e-5 4.27512 10 norms_and_biases False
"""


def own_values(run):
    """The method's tuned options of a run, in the order of the table above."""
    method, optimizer = run.method, run.optimizer
    if method.name == "fsvi":  # ours is of the logit, theirs of each of two outputs
        return [method.prior_variance / 2, method.inducing, optimizer.l2_on, method.stochastic_mean]
    if method.name in ("mfvi", "radial"):
        return [method.stddev_mean_init, method.stddev_stddev_init]
    return {"map": [optimizer.final_lr], "dropout": [getattr(method, "rate", 0)],
            "rank1": [getattr(method, "fast_lr", 0)]}[method.name]  # fmt: skip


@pytest.mark.parametrize("kind", ["published", "corrected"])
@pytest.mark.parametrize("line", PUBLISHED.strip().splitlines())
def test_every_row_of_the_table_is_the_published_one(line, kind):
    method, task, criterion, lr, rest, l2, *own = line.split()
    run = load_run(f"{kind}/{method}/{task}/{criterion}", data="d")
    assert run.method.name == method
    assert (run.optimizer.lr, run.optimizer.l2) == (float(lr), float(l2))
    assert run.optimizer.momentum == pytest.approx(1 - float(rest), abs=1e-12)
    found = own_values(run)
    assert len(found) == len(own)
    for value, word in zip(found, own, strict=True):
        assert str(value) == word if isinstance(value, str | bool) else value == pytest.approx(float(word))
    # Global batches; MAP alone decays linearly.
    assert run.optimizer.batch_size == (256 if method in ("map", "mfvi", "fsvi") else 128)
    assert run.optimizer.schedule == ("linear" if method == "map" else "step")
    assert run.optimizer.reweight == ("none" if (method, kind) == ("fsvi", "published") else "minibatch")
    assert run.task in TASKS
