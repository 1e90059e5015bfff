"""The manifest of a prepared folder: what it says, and that it is not believed."""

from __future__ import annotations

import json

import pytest

from retinabench.core.errors import InputError
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.prepared.manifest import Manifest, PreparedSettings
from support.helpers import make_prepared

SETTINGS = {"dataset": "folder", "size": 64, "preprocess": "graham", "blur": 30, "published": False,
            "source": "images (ab)", "label_table": "cd", "columns": {"grade": "icdr"}}  # fmt: skip


def test_what_is_written_is_read_again():
    manifest = Manifest(
        name="folder", size=64, fingerprint="f", shards=("images-00000.npy",), concepts=("haemorrhage",),
        settings=PreparedSettings.from_json(SETTINGS),
    )  # fmt: skip
    content = json.loads(json.dumps(manifest.to_dict()))
    assert Manifest.from_json(content) == manifest
    assert content["settings"] == SETTINGS
    assert "images" not in content


def test_copies_with_damage_have_the_same_patients():
    whole = PreparedSettings.from_json(SETTINGS)
    damaged = PreparedSettings.from_json(SETTINGS | {"corrupt": "blur:3"})
    assert whole.same_source(damaged)
    assert not whole.same_source(whole)
    assert not whole.same_source(PreparedSettings.from_json({"dataset": "folder", "corrupt": "blur:3"}))
    assert whole.other_pixels(damaged) == []
    assert whole.other_pixels(PreparedSettings()) == ["preprocess", "blur", "published"]


def test_a_label_column_has_no_grades():
    assert PreparedSettings.from_json(SETTINGS).graded
    assert not PreparedSettings.from_json({"columns": {"label": "referable"}}).graded


@pytest.mark.parametrize("name", ["../other/images-00000.npy", "/etc/hostname", "link.npy", None])
def test_a_manifest_leads_nowhere_else(tmp_path, name):
    folder = make_prepared(tmp_path / "data", size=8)
    make_prepared(tmp_path / "other", size=8)
    (folder / "link.npy").symlink_to(tmp_path / "other" / "images-00000.npy")
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    about = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps({**about, "shards": [name, *about["shards"][1:]]}))
    with pytest.raises(InputError, match=r"not a name in it|leads out of its folder"):
        open_prepared(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", 10**9),
        ("size", 16),
        ("size", "8"),
        ("name", "a\nb"),
        ("shards", 3),
        ("settings", {"columns": 1}),
    ],
)
def test_a_manifest_that_claims_what_is_not_there_is_one_line(tmp_path, key, value):
    folder = make_prepared(tmp_path / "data", size=8)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    about = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps({**about, key: value}))
    with pytest.raises(InputError, match="is damaged"):
        open_prepared(folder)
