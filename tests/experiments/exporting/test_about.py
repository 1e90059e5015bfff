"""`model.json`: what is read, and what is refused before anything is built."""

import json

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.exporting.about import FORMAT, MOST_BYTES, read_about


def content(*words, **changes):
    run = load_run(None, ["method=dropout", *words], data="d").model_dump(mode="json")
    recipe = {"size": 32, "preprocess": "graham", "blur": 30, "published": False}
    return {
        "format": FORMAT, "version": "0.2.0", "data": "eyes", "fingerprint": "abc", "run": run, "recipe": recipe,
        "referable_from": 3,
    } | changes  # fmt: skip


def written(folder, value):
    (folder / "model.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_what_a_model_says_of_itself(tmp_path):
    found = read_about(written(tmp_path, content("method.rate=0.2")))
    assert found.run.method.rate == 0.2
    assert found.run.data == "eyes"
    assert (found.recipe.size, found.recipe.preprocess, found.referable_from) == (32, "graham", 3)
    assert found.config_hash == found.run.hash("abc")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "is damaged"),
        (" " * (MOST_BYTES + 1), "more than 1,048,576 bytes"),
        (content(format="other/9"), "format 'other/9'"),
        (content(referable_from=5), "referable_from"),
        (content(referable_from=True), "referable_from"),
        (content(code="import os"), "unknown key 'code'"),
        (content(recipe={"size": 9, "preprocess": "none", "blur": 30, "published": False}), "recipe.size"),
        (content("method.samples=10001"), "method.samples=10,001 is more than 10,000"),
        (content("method=ensemble", "method.members=4"), "asks for 4 members, of which 0 are there"),
    ],
)
def test_what_is_damaged_is_named_in_one_line(tmp_path, value, says):
    with pytest.raises(InputError, match=says) as error:
        read_about(written(tmp_path, value))
    assert str(error.value).startswith(str(tmp_path / "model.json"))
    assert "\n" not in str(error.value)


def test_a_folder_without_one_says_how_to_make_it(tmp_path):
    with pytest.raises(InputError, match=r"holds no exported model.*retinabench export"):
        read_about(tmp_path)


@pytest.mark.parametrize("method", [{"name": "noisy"}, {"name": "ensemble", "member": {"name": "noisy"}}])
def test_a_method_of_a_plug_in_that_is_not_installed_says_so(tmp_path, method):
    about = content()
    about["run"]["method"] = method
    with pytest.raises(
        InputError, match=r"model of the method 'noisy', which is not installed.*Install the pack"
    ):
        read_about(written(tmp_path, about))
