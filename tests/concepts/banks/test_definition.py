"""Definitions of banks: those that come along, and wrong ones."""

from __future__ import annotations

import pytest

from retinabench.concepts.banks.definition import bank_names, find_definition
from support.bank_files import refused


def test_every_definition_that_comes_along_is_sound():
    assert len(bank_names()) == 12
    concepts = {name: len(find_definition(name).concepts) for name in bank_names()}
    assert (concepts["isic2018"], concepts["oct_biomarkers"], concepts["olives"]) == (5, 11, 16)
    assert (concepts["chexpert"], concepts["chestxray14"]) == (14, 14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\n', "needs exactly one of the tables table, masks, coco, idrid, synthetic"),
        ('title = "x"\n[table]\nfile = "x"\npaht = "y"\n', "unknown key 'table.paht'. Did you mean 'path'"),
        ('title = "x"\n[table]\nfile = "x"\npath = "y"\n', "path holds no {image}"),
        ('title = "x"\n[table]\nfile = "x"\nunknown = ["1"]\n', "cannot mean two of"),
        ('title = "x"\n[masks]\nimages = "x"\nmask = "{image}_{concept}"\n', "masks need concepts"),
        ("title = 3\nidrid = {}\n", "title: input should be a valid string"),
        ("[table\n", "is not TOML"),
    ],
)
def test_a_wrong_definition_is_one_line(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    assert message in refused(tmp_path / "x.toml", tmp_path)
