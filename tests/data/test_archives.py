import hashlib
import io
import os
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import numpy as np
import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.data import archives
from retinabench.data.archives import AGENT, Chain, Remote, _Encrypted, fetch, open_files, shared_files


def test_a_chain_reads_and_seeks_like_its_whole():
    random = np.random.default_rng(0)
    whole = random.bytes(1000)
    cuts = [0, 0, 3, 400, 401, 1000]
    chain = io.BufferedReader(Chain([(io.BytesIO(whole), a, b - a) for a, b in pairwise(cuts)]), 16)
    for _ in range(300):
        begin, length = random.integers(0, 1010), random.integers(0, 500)
        chain.seek(begin)
        assert chain.read(length) == whole[begin : begin + length]
    chain.seek(-7, io.SEEK_END)
    assert chain.read() == whole[-7:]


CONTENT = {f"train/{k}_left.jpeg": os.urandom(3000 + k) for k in range(20)} | {"labels.csv": b"a,b\n1,2\n"}


def zipped(content, compression=zipfile.ZIP_STORED):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return sink.getvalue()


def write_folder(root):
    for name, data in CONTENT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / ".DS_Store").write_bytes(b"x")
    return root


def write_zip(root):
    content = CONTENT | {"__MACOSX/._labels.csv": b"x", "train/": b""}
    (root / "all.zip").write_bytes(zipped(content, zipfile.ZIP_DEFLATED))
    return root / "all.zip"


def write_parts(root, pieces=5):
    data = zipped(CONTENT)
    for k, piece in enumerate(np.array_split(np.frombuffer(data, np.uint8), pieces), start=1):
        (root / f"train.zip.{k:03d}").write_bytes(piece.tobytes())
    return root


def write_nested(root):
    data = zipped({name: value for name, value in CONTENT.items() if name != "labels.csv"})
    inner = {"train.zip.001": data[:20_000], "train.zip.002": data[20_000:]}
    inner["labels.csv.zip"] = zipped({"labels.csv": CONTENT["labels.csv"]})
    (root / "kaggle.zip").write_bytes(zipped(inner))
    return root / "kaggle.zip"


def read_all(root):
    files = open_files(root)
    return {name: files.read(name) for name in files.names()}


def name_one_part(root):
    return write_parts(root) / "train.zip.003"


@pytest.mark.parametrize("write", [write_folder, write_zip, write_parts, name_one_part, write_nested])
def test_every_form_holds_the_same_files(tmp_path, write):
    root = write(tmp_path)
    assert read_all(root) == CONTENT
    files = open_files(root)
    assert files.find("LABELS.csv") == "labels.csv"
    assert "train/0_left.jpeg" in files
    with pytest.raises(InputError, match="does not exist"):
        files.read("train/nobody.jpeg")


def test_a_process_opens_archives_once_and_again_when_they_change(tmp_path, monkeypatch):
    path = write_zip(tmp_path)
    opened = []
    original = archives.open_files
    monkeypatch.setattr(archives, "open_files", lambda root: opened.append(root) or original(root))
    assert shared_files(path) is shared_files(path)
    path.write_bytes(zipped({"labels.csv": b"new"}))
    assert shared_files(path).read("labels.csv") == b"new"
    assert len(opened) == 2


def encrypted():
    data = bytearray(zipped({"a.jpg": b"x"}))
    data[6] |= 1  # flag bit 0 in the local header and in the central directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"a.zip": b""}, "a.zip: is not a complete zip"),
        ({"a.zip": zipped(CONTENT)[:-400]}, "a.zip: is not a complete zip"),
        ({"t.zip.001": zipped(CONTENT)[:9000]}, "Is a part after part 001|Is a part missing"),
        ({"t.zip.001": b"x", "t.zip.003": b"x"}, "t.zip: part 002 is missing"),
        ({"t.zip.002": b"x"}, "t.zip: part 001 is missing"),
        ({"a.zip": zipped({"../../evil.jpg": b"x"})}, "unsafe name"),
        ({"a.zip": zipped({"/etc/passwd": b"x"})}, "unsafe name"),
        ({"a.zip": zipped({"C:\\x.jpg": b"x"})}, "unsafe name"),
        ({"a.zip": zipped({".": b"x"})}, "without a name"),
        ({"a.zip": encrypted()}, "encrypted"),
        ({"a.zip": zipped({"x.jpg": b"1"}), "b.zip": zipped({"x.jpg": b"2"})}, "both hold 'x.jpg'"),
    ],
)
def test_bad_archives_are_named(tmp_path, content, says):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        open_files(tmp_path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_whatever_bytes_are_damaged_the_archive_or_its_member_is_named(tmp_path, compression):
    """300 archives with one to five bytes changed, cut out or put in; seed 1. Nothing but `InputError` comes out."""
    inner = zipped({"x.png": b"1" * 150})
    whole = zipped({"a/1.png": b"a" * 600, "a/2.png": bytes(range(256)), "in.zip": inner}, compression)
    random = np.random.default_rng(1)
    refused = sound = 0
    for number in range(300):
        data = bytearray(whole)
        for place in random.integers(0, len(whole) - 40, random.integers(1, 6)):
            change = random.random()
            length = 1 if change < 0.7 else int(random.integers(1, 40))
            data[place : place + length * (change < 0.85)] = random.bytes(length * (change < 0.7 or change > 0.85))
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        try:
            read_all(path)
        except InputError as error:
            refused += path.name in str(error)
            continue
        sound += 1  # the change fell where nothing depends on it, or took a name out of the list
    assert refused > 150
    assert refused + sound == 300


DAMAGED = zipped({"a.jpg": b"x" * 100})
SMALL = {f"{k}.zip": zipped({"1.png": bytes(1000)}) for k in range(4)}


@pytest.mark.parametrize(
    ("limit", "content", "says"),
    [
        (None, DAMAGED[:60] + b"y" + DAMAGED[61:], r"a\.zip: a\.jpg: is damaged in its archive \(Bad CRC-32\)"),
        (None, zipped({"1.png": b"x"}, zipfile.ZIP_BZIP2), "another way than stored or deflated"),
        (None, zipped({"1.png": b"x"}, zipfile.ZIP_LZMA), "another way than stored or deflated"),
        ("LARGEST_FILE", zipped({"1.png": bytes(3000)}), "claims 3,000 bytes"),
        ("LARGEST_INNER", zipped({"t.zip": zipped(CONTENT)}, zipfile.ZIP_DEFLATED), "Unpack the outer archive once"),
        ("MOST_INNER", zipped(SMALL, zipfile.ZIP_DEFLATED), "holds compressed archives of"),
    ],
)
def test_damaged_large_and_oddly_compressed_members_are_named(tmp_path, monkeypatch, limit, content, says):
    """Python does not bound the memory to which bzip2 and LZMA unfold."""
    if limit is not None:
        monkeypatch.setattr(archives, limit, 1200)
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_all(tmp_path)


def test_linked_folders_are_read_and_a_circle_ends(tmp_path):
    write_folder(tmp_path / "disk")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train").symlink_to(tmp_path / "disk" / "train")
    (tmp_path / "here" / "up").symlink_to(tmp_path / "here")
    assert open_files(tmp_path / "here").names() == sorted(name for name in CONTENT if "/" in name)


BODY = os.urandom(900_000)
MD5 = hashlib.md5(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves a body. `drops`: the byte counts after which connections break, one each; `codes`: answers before that."""

    def __init__(self, body=BODY, ranges=True, drops=(), codes=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.ranges, self.drops, self.codes = body, ranges, list(drops), list(codes)
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/file"
        self.running = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append((self.headers["Range"], self.headers["User-Agent"]))
        if server.codes:
            self.send_error(server.codes.pop(0))
            return
        begin, total = 0, len(server.body)
        if server.ranges and self.headers["Range"]:
            begin = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1])
            if begin >= total:
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(total - begin))
        self.end_headers()
        end = begin + server.drops.pop(0) if server.drops else total
        self.wfile.write(server.body[begin:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(**options):
        servers.append(Server(**options))
        servers[-1].running.start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.running.join()
        server.server_close()


def remote(server):
    return Remote(server.url, "file.npz", MD5)


@pytest.fixture
def waits():
    return []


def test_a_whole_file(serve, tmp_path, waits):
    server = serve()
    path = fetch(remote(server), tmp_path / "new", wait=waits.append)
    assert path.read_bytes() == BODY
    assert server.asked == [(None, AGENT)]
    assert waits == []
    fetch(remote(server), tmp_path / "new")
    assert len(server.asked) == 1  # it is there and right
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.npz"]


@pytest.mark.parametrize(
    ("server", "part", "asked", "waited"),
    [
        ({"drops": [300_000, 0, 200_001]}, 0, [None, "bytes=300000-", "bytes=300000-", "bytes=500001-"], [1, 2, 4]),
        ({}, 123_456, ["bytes=123456-"], []),  # the part of a killed download
        ({"ranges": False, "drops": [300_000]}, 0, [None, "bytes=300000-"], [1]),  # begins again
    ],
)
def test_a_download_continues_where_it_broke(serve, tmp_path, waits, server, part, asked, waited):
    if part:
        (tmp_path / "file.npz.part").write_bytes(BODY[:part])
    server = serve(**server)
    assert fetch(remote(server), tmp_path, wait=waits.append).read_bytes() == BODY
    assert [wanted for wanted, _ in server.asked] == asked
    assert waits == waited


def test_a_part_of_another_file_is_found_by_its_sum_and_deleted(serve, tmp_path):
    (tmp_path / "file.npz.part").write_bytes(b"y" * 1000)
    server = serve()
    with pytest.raises(WorkError, match="what arrived has the MD5"):
        fetch(remote(server), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert fetch(remote(server), tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("code", [403, 404])
def test_a_refusal_is_final(serve, tmp_path, waits, code):
    server = serve(codes=[code])
    with pytest.raises(WorkError, match=f"the server says {code}"):
        fetch(remote(server), tmp_path, wait=waits.append)
    assert len(server.asked) == 1


def test_a_dead_server_is_given_up_and_what_came_is_kept(serve, tmp_path, waits):
    server = serve(drops=[100_000, 0, 0, 0, 0, 0, 0])
    with pytest.raises(WorkError, match=r"broke, 6 times. Repeat the command later; it continues at 100,000"):
        fetch(remote(server), tmp_path, wait=waits.append)
    assert (tmp_path / "file.npz.part").stat().st_size == 100_000
    assert waits == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "file:///etc/passwd"])
def test_only_https_is_fetched_and_redirections_too(tmp_path, url):
    with pytest.raises(WorkError, match="not an https address"):
        fetch(Remote(url, "x"), tmp_path)
    with pytest.raises(WorkError, match="not an https address"):
        _Encrypted().redirect_request(None, None, 302, "Found", {}, url)


def test_a_server_cannot_fill_the_disk(tmp_path, serve):
    with pytest.raises(WorkError, match="sends more than 1,000 bytes"):
        fetch(Remote(serve().url, "x", most=1000), tmp_path)
