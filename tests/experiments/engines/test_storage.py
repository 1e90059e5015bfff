"""Run folders through fsspec: whole or not there."""

from __future__ import annotations

import fsspec
import pytest

from retinabench.experiments.engines.storage import MOST_LOG, Storage, check, end_of


@pytest.fixture
def folder(tmp_path):
    """A finished run, with what must not travel: its checkpoint and the rest of a killed write."""
    run = tmp_path / "work" / "map-1"
    run.mkdir(parents=True)
    for name in ("run.json", "predictions.parquet", "last.pt", ".best.pt.0a1b.part", "done"):
        (run / name).write_bytes(name.encode() * (name != "done"))
    return run


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_a_run_comes_back_as_it_went(folder, tmp_path, scheme):
    url = check(f"{scheme}://{tmp_path}/store")
    storage = Storage(url)
    assert not storage.has("map-1")
    storage.put(folder)
    assert storage.has("map-1")
    storage.get(tmp_path / "back" / "map-1")
    assert {path.name: path.read_bytes() for path in (tmp_path / "back" / "map-1").iterdir()} == {
        "run.json": b"run.json", "predictions.parquet": b"predictions.parquet", "done": b"",
    }  # fmt: skip


def test_of_a_long_log_the_end_is_sent(tmp_path):
    log = tmp_path / "log"
    log.write_text("short\n")
    assert end_of(log) == b"short\n"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    found = end_of(log)
    assert MOST_LOG - 20 < len(found) <= MOST_LOG + 4
    assert found.startswith(b"...\nline ")
    assert found.endswith(b"line 19999\n")


def test_a_broken_transfer_leaves_nothing_that_counts_as_done(folder, tmp_path, monkeypatch):
    storage = Storage(check((tmp_path / "store").as_uri()))
    local = type(fsspec.filesystem("file"))
    opened = local.open

    def breaking(self, path, mode="rb", **given):
        if path.endswith("run.json"):
            raise ConnectionError("the network is gone")
        return opened(self, path, mode, **given)

    with monkeypatch.context() as patch:
        patch.setattr(local, "open", breaking)
        with pytest.raises(ConnectionError):
            storage.put(folder)
        assert not storage.has("map-1")
    storage.put(folder)
    with monkeypatch.context() as patch:
        patch.setattr(local, "open", breaking)
        with pytest.raises(ConnectionError):
            storage.get(tmp_path / "back" / "map-1")
    assert not (tmp_path / "back" / "map-1" / "done").exists()
    storage.get(tmp_path / "back" / "map-1")
    assert (tmp_path / "back" / "map-1" / "done").exists()
