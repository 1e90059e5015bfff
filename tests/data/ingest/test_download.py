"""Downloads against a server that misbehaves as servers do."""

import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from retinabench.core.errors import InputError, WorkError
from retinabench.data.ingest.download import AGENT, Remote, _Encrypted, fetch

BODY = os.urandom(900_000)
MD5 = hashlib.md5(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY. `drops`: the byte counts after which connections break, one each; `codes`: answers before that."""

    def __init__(self, ranges=True, drops=(), codes=(), length=True, body=BODY):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.drops, self.codes, self.length, self.body = (
            ranges,
            list(drops),
            list(codes),
            length,
            body,
        )
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
        if server.length:
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


def remote(server, md5=MD5):
    return Remote(server.url, "file.npz", md5)


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


def test_broken_connections_are_taken_up_where_they_broke(serve, tmp_path, waits):
    server = serve(drops=[300_000, 0, 200_001])
    assert fetch(remote(server), tmp_path, wait=waits.append).read_bytes() == BODY
    assert [asked for asked, _ in server.asked] == [None, "bytes=300000-", "bytes=300000-", "bytes=500001-"]
    assert waits == [1, 2, 4]


def test_a_killed_download_continues(serve, tmp_path):
    (tmp_path / "file.npz.part").write_bytes(BODY[:123_456])
    server = serve()
    assert fetch(remote(server), tmp_path).read_bytes() == BODY
    assert [asked for asked, _ in server.asked] == ["bytes=123456-"]


def test_a_server_without_ranges_begins_again(serve, tmp_path, waits):
    server = serve(ranges=False, drops=[300_000])
    assert fetch(remote(server), tmp_path, wait=waits.append).read_bytes() == BODY
    assert len(server.asked) == 2


@pytest.mark.parametrize("extra", [0, 5])
def test_a_part_that_is_too_long_or_whole(serve, tmp_path, waits, extra):
    (tmp_path / "file.npz.part").write_bytes(BODY + b"x" * extra)
    assert fetch(remote(serve()), tmp_path, wait=waits.append).read_bytes() == BODY


def test_a_part_of_another_file_is_found_by_its_sum_and_deleted(serve, tmp_path):
    (tmp_path / "file.npz.part").write_bytes(b"y" * 1000)
    server = serve()
    with pytest.raises(WorkError, match="what arrived has the MD5"):
        fetch(remote(server), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert fetch(remote(server), tmp_path).read_bytes() == BODY


def test_a_wrong_file_that_is_there_already_is_left_alone(serve, tmp_path):
    (tmp_path / "file.npz").write_bytes(b"mine")
    with pytest.raises(InputError, match="Move it away"):
        fetch(remote(serve()), tmp_path)
    assert (tmp_path / "file.npz").read_bytes() == b"mine"


@pytest.mark.parametrize("code", [403, 404])
def test_a_refusal_is_final(serve, tmp_path, waits, code):
    server = serve(codes=[code])
    with pytest.raises(WorkError, match=f"the server says {code}"):
        fetch(remote(server), tmp_path, wait=waits.append)
    assert len(server.asked) == 1


def test_a_busy_server_gets_time(serve, tmp_path, waits):
    server = serve(codes=[503, 429])
    assert fetch(remote(server), tmp_path, wait=waits.append).read_bytes() == BODY
    assert waits == [1, 2]


def test_a_dead_server_is_given_up_and_what_came_is_kept(serve, tmp_path, waits):
    server = serve(drops=[100_000, 0, 0, 0, 0, 0, 0])
    with pytest.raises(WorkError, match=r"broke, 6 times. Repeat the command later; it continues at 100,000"):
        fetch(remote(server), tmp_path, wait=waits.append)
    assert (tmp_path / "file.npz.part").stat().st_size == 100_000
    assert waits == [1, 2, 4, 8, 16]


def test_a_refused_connection_is_tried_six_times(tmp_path, waits):
    with pytest.raises(WorkError, match="refused, 6 times"):
        fetch(Remote("http://127.0.0.1:1/file", "file.npz"), tmp_path, wait=waits.append)


def test_without_length_and_sum_the_end_is_the_end(serve, tmp_path):
    assert fetch(remote(serve(length=False), md5=None), tmp_path).read_bytes() == BODY


def test_progress_counts_megabytes(serve, tmp_path):
    class Log:
        def __init__(self):
            self.steps, self.total = [], None

        def track(self, what, total, unit=""):
            from contextlib import nullcontext

            self.total = total
            return nullcontext(self.steps.append)

        def say(self, line):
            raise AssertionError(line)

    body = os.urandom(5_500_000)
    log = Log()
    fetch(remote(serve(body=body), hashlib.md5(body).hexdigest()), tmp_path, log)
    assert log.total == 6
    assert sum(log.steps) in (5, 6)


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "file:///etc/passwd"])
def test_only_https_is_fetched_and_redirections_too(tmp_path, url):
    with pytest.raises(WorkError, match="no https address"):
        fetch(Remote(url, "x"), tmp_path)
    with pytest.raises(WorkError, match="no https address"):
        _Encrypted().redirect_request(None, None, 302, "Found", {}, url)


def test_a_server_cannot_fill_the_disk(tmp_path, serve):
    with pytest.raises(WorkError, match="sends more than 1,000 bytes"):
        fetch(Remote(serve().url, "x", most=1000), tmp_path)
