import hashlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError, field_validator

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.core.registry import Registry, import_location
from retinabench.core.seeds import derive, numpy_generator
from retinabench.core.settings import Extended, Frozen, first_problem


class Inner(Frozen):
    rate: float = 0.1


class Outer(Frozen):
    epochs: int
    inner: Inner = Inner()
    table: Any = None

    @field_validator("table")
    @classmethod
    def _of_its_own_class(cls, value):
        return None if value is None else Inner.model_validate(value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epochs": 1, "inner": {"rat": 2}}, "run.toml: unknown key 'inner.rat'. Did you mean 'rate'"),
        ({}, "run.toml: epochs: is missing"),
        ({"epochs": "many"}, "epochs: input should be a valid integer"),
        ({"epochs": "many"}, "(given: 'many')"),
        ({"epochs": 1, "inner": {"rate": math.inf}}, "inner.rate: input should be a finite number (given: inf)"),
        ({"epochs": 1, "table": {"raet": 2}}, "unknown key 'table.raet'"),  # of a table with its own class
    ],
)
def test_the_first_complaint_names_key_and_value(given, says):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(given)
    valid = {(): list(Outer.model_fields), ("inner",): ["rate"], ("table",): ["rate"]}
    assert says in str(first_problem(caught.value, Path("run.toml"), lambda where: valid[tuple(where)]))


class Later(Extended):
    _later = ("new",)

    old: int = 1
    new: int = 2


def test_later_settings_are_left_out_at_their_defaults():
    assert Later().model_dump() == {"old": 1}
    assert Later(new=3).model_dump(mode="json") == {"old": 1, "new": 3}
    assert Later.model_validate(Later(new=3).model_dump()) == Later(new=3)


GROUP = "retinabench.test_entries"


@pytest.fixture
def install(tmp_path, monkeypatch):
    def write(**points):
        about = tmp_path / "site" / "a_plugin-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n")
        lines = [f"{name} = {location}" for name, location in points.items()]
        (about / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
        monkeypatch.syspath_prepend(str(tmp_path / "site"))

    return write


def registry():
    return Registry(GROUP, "entry", {"loads": "json:loads", "absent": "no_such_module", "zero": 0})


def test_an_entry_is_imported_when_it_is_used_and_an_unknown_one_is_told_the_nearest():
    entries = registry()
    assert list(entries) == ["loads", "absent", "zero"]
    assert len(entries) == 3
    assert entries["loads"]("[1]") == [1]
    assert entries["zero"] == 0
    with pytest.raises(ImportError):  # of the package itself, such as one of PyTorch
        entries["absent"]
    with pytest.raises(InputError, match=r"unknown entry 'load'\. Did you mean 'loads'"):
        entries.find("load")


def test_a_plug_in_adds_entries(install):
    install(dumps="json:dumps", broken="no_such_module")
    entries = registry()
    assert {"dumps", "broken"} <= set(entries)
    assert entries.find("dumps")([1]) == "[1]"
    with pytest.raises(InputError, match=r"entry 'broken' of the plug-in 'a-plugin' cannot be imported"):
        entries["broken"]


def test_a_plug_in_that_takes_a_name_is_refused_when_the_name_is_used(install):
    install(loads="json:load")
    entries = registry()
    assert list(entries).count("loads") == 1
    assert entries["zero"] == 0
    with pytest.raises(InputError, match="plug-in 'a-plugin' adds the entry 'loads', which exists already"):
        entries["loads"]


def test_an_entry_of_this_process_can_be_added_and_removed():
    entries = registry()
    entries.add("mine", 1)
    assert entries["mine"] == 1
    with pytest.raises(ValueError, match="exists already"):
        entries.add("mine", 2)
    entries.remove("mine")
    assert "mine" not in entries


def test_a_location_is_a_module_an_attribute_or_a_file(tmp_path):
    assert import_location("json").loads("1") == 1
    assert import_location("json:loads")("1") == 1
    (tmp_path / "a_file_of_mine.py").write_text("VALUE = 3\n")
    assert import_location(str(tmp_path / "a_file_of_mine.py")).VALUE == 3
    assert sys.modules.pop("a_file_of_mine").VALUE == 3
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for location in (str(tmp_path / "bad.py"), str(tmp_path / "absent.py"), "no_such_module"):
        with pytest.raises(InputError, match="cannot be imported"):
            import_location(location)
    assert "bad" not in sys.modules


def test_the_seed_of_a_stream_is_the_stated_hash_and_streams_depend_on_it_and_the_name_alone():
    digest = hashlib.sha256(b"7/order/3").digest()
    assert derive(7, "order", 3) == int.from_bytes(digest[:8], "big") // 2
    assert 0 <= derive(7, "order", 3) < 2**63
    draws = [numpy_generator(0, "a").random(3)]
    np.random.default_rng().random()
    draws += [numpy_generator(*name).random(3) for name in ((0, "a"), (1, "a"), (0, "b"), (0, "a", 1))]
    assert np.array_equal(draws[0], draws[1])
    assert len({draw.tobytes() for draw in draws}) == 4


def test_a_torch_stream_is_seeded_in_the_same_way():
    torch = pytest.importorskip("torch")
    drawn = torch.rand(3, generator=torch_generator("cpu", 5, "x"))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator("cpu").manual_seed(derive(5, "x"))))
