"""The server of the live page: who may ask, and what for."""

import hmac
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from helpers.fake_results import curves, write
from helpers.watched import ROUNDS, search

from desopt.watch import server as serving
from desopt.watch.server import Server, is_loopback


@contextmanager
def served(root: Path, host: str = "127.0.0.1") -> Iterator[Server]:
    with Server(root, host) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watched")
    (root / "in").mkdir()
    search(root / "secret.journal", 2)
    search(root / "in" / "a.journal")
    (root / "in" / "link.journal").symlink_to(root / "secret.journal")
    write(root / "in" / "study", {"mine": curves(ends={"des": 0.0, "des-mr": 1.0})})
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with served(root / "in") as server:
        yield server


Reply = tuple[int, dict[str, str], bytes]


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=given)
    response = connection.getresponse()
    found = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return found


def asked(server: Server, path: str, **headers: str) -> Any:
    status, _, body = ask(server, path, **headers)
    assert status == 200, body
    return json.loads(body)


def test_the_page_and_its_data(server: Server) -> None:
    status, headers, body = ask(server, "/")
    assert status == 200
    assert b"desopt watch" in body
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    found = asked(server, "/api/overview")
    assert [run["id"] for run in found["runs"]] == ["a.journal"]
    assert found["runs"][0]["rounds"] == ROUNDS
    assert asked(server, "/api/run?id=a.journal")["rounds"] == ROUNDS
    assert asked(server, "/api/point?id=a.journal&round=3")["round"] == 3
    study = asked(server, "/api/study?id=study/results.sqlite")
    assert study["progress"] == [{"item": "mine", "cases": 18, "done": 18, "failed": 0}]
    assert len(study["report"]["series"]) == 18
    seen = f"/api/study?id=study/results.sqlite&seen={study['stamp']}"
    assert asked(server, seen) == {"same": True}


@pytest.mark.parametrize(
    "id",
    [
        "../secret.journal", "link.journal", "/etc/passwd", "a.journal/../../secret.journal", "",
        "..%2fsecret.journal", "a.journal\0", "study/results.sqlite", "a.journal.values",
    ],
)  # fmt: skip
def test_nothing_outside_of_the_folder_is_read(server: Server, root: Path, id: str) -> None:
    for path in (f"/api/run?id={quote(id)}", f"/api/point?id={quote(id)}&round=0"):
        status, _, body = ask(server, path)
        assert status == 404
        assert b"desopt" not in body
    assert ask(server, f"/{quote(id)}")[0] in (404, 200 if not id else 404)
    absolute = quote(str(root / "secret.journal"))
    assert ask(server, f"/api/study?id={absolute}")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_there_is_only_get(server: Server, method: str) -> None:
    assert ask(server, "/api/overview", method)[0] == 501


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:{port}", True), ("localhost:{port}", True), ("LOCALHOST:{port}", True),
        ("[::1]:{port}", True), ("evil.example:{port}", False), ("evil.example", False),
        ("127.0.0.1", False), ("127.0.0.1:1", False), ("127.0.0.1.evil.example:{port}", False),
        ("localhost.evil.example:{port}", False), ("", False), ("192.168.0.7:{port}", False),
    ],
)  # fmt: skip
def test_a_name_that_means_our_address_is_refused(server: Server, host: str, ours: bool) -> None:
    for path in ("/", "/api/overview"):
        status, _, body = ask(server, path, Host=host.format(port=server.server_port))
        assert status == (200 if ours else 403)
        assert ours or b"journal" not in body


def test_another_site_may_not_ask(server: Server) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        assert ask(server, "/api/overview", Sec_Fetch_Site=site)[0] == status


@pytest.mark.parametrize(
    "query", ["id=a.journal", "id=a.journal&round=-1", "id=a.journal&round=1e3", "&" * 50,
              "id=a.journal&round=99999999999", "id=a.journal&round=99999999999999999999"],
)  # fmt: skip
def test_a_bad_request_is_refused(server: Server, query: str) -> None:
    status, _, body = ask(server, f"/api/point?{query}")
    assert status in (400, 404, 422)
    assert json.loads(body)["error"]
    assert asked(server, "/api/overview")["runs"]


def test_others_need_the_token(root: Path) -> None:
    with served(root / "in", "0.0.0.0") as server:
        token = server.token
        assert token is not None
        assert len(token) >= 32
        assert urlsplit(server.url).query == f"token={token}"
        for path in ("/", "/api/overview", "/?token=", "/?token=wrong", f"/?token={token}x"):
            status, headers, body = ask(server, path)
            assert status == 403
            assert token.encode() not in body
            assert "Set-Cookie" not in headers
        status, headers, body = ask(server, f"/?token={token}")
        assert (status, headers["Location"], body) == (303, "/", b"")
        kept = headers["Set-Cookie"]
        assert "HttpOnly" in kept
        assert "SameSite=Strict" in kept
        cookie = kept.partition(";")[0]
        assert asked(server, "/api/overview", Cookie=cookie)["runs"]
        page = ask(server, "/", Cookie=cookie)
        assert page[0] == 200
        assert token.encode() not in page[2]
        assert ask(server, "/", Cookie=f"{server.cookie}=wrong")[0] == 403
        assert ask(server, "/", Cookie=cookie, Host=f"evil.example:{server.server_port}")[0] == 403
        assert asked(server, "/api/overview", Cookie=cookie, Host=f"10.0.0.1:{server.server_port}")


def test_all_addresses_are_shown_by_the_name_of_the_machine(root: Path) -> None:
    for host in ("", "0.0.0.0"):
        with served(root / "in", host) as server:
            assert urlsplit(server.url).hostname == socket.gethostname().lower()


def test_every_start_has_another_token(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(given: bytes, token: bytes) -> bool:
        compared.append(given)
        return hmac.compare_digest(given, token)

    monkeypatch.setattr(serving, "compare_digest", compare)
    with served(root / "in", "0.0.0.0") as one, served(root / "in", "0.0.0.0") as two:
        assert one.token != two.token
        ask(one, "/?token=guess")
    assert compared == [b"guess"]  # in constant time


def test_only_loopback_needs_none() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


def test_any_request_may_be_the_first(root: Path) -> None:
    for path in ("run?id=a.journal", "point?id=a.journal&round=1", "study?id=study/results.sqlite"):
        with served(root / "in") as server:
            assert asked(server, f"/api/{path}")


def test_one_broken_file_does_not_hide_the_others(root: Path, tmp_path: Path) -> None:
    (tmp_path / "good.journal").write_bytes((root / "in" / "a.journal").read_bytes())
    (tmp_path / "bad.journal").write_bytes(b"desopt\x02\n" + bytes(100))
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0" + bytes(100))
    with served(tmp_path) as server:
        runs = {run["id"]: run for run in asked(server, "/api/overview")["runs"]}
        assert runs["good.journal"]["rounds"] == ROUNDS
        assert runs["bad.journal"]["rounds"] == 0
        assert ask(server, "/api/point?id=bad.journal&round=0")[0] == 422
        assert "cannot be used" in asked(server, "/api/study?id=bad.sqlite")["problem"]


def test_silent_connections_do_not_keep_others_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.Handler, "timeout", 0.2)
    silent = [
        socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(serving.MOST + 8)
    ]
    while True:  # they are dropped when their time is over
        try:
            assert asked(server, "/api/overview")["runs"]
            break
        except (ConnectionError, http.client.HTTPException):
            continue
    for connection in silent:
        connection.close()


def test_threads_that_cannot_be_started_take_no_place(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(serving.MOST + 8):
            with pytest.raises((http.client.HTTPException, OSError)):
                asked(server, "/api/overview")
    assert asked(server, "/api/overview")["runs"]


def test_the_command_serves_until_ctrl_c(root: Path) -> None:
    command = [sys.executable, "-m", "desopt", "watch", str(root / "in"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        with urlopen(f"{url}api/overview", timeout=600) as reply:
            assert json.load(reply)["runs"][0]["id"] == "a.journal"
        taken = [*command[:-1], str(urlsplit(url).port)]
        second = subprocess.run(taken, capture_output=True, text=True)
        assert (second.returncode, "--port 0" in second.stderr) == (1, True)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def test_watching_changes_nothing(root: Path) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    before = state()
    with served(root / "in") as server:
        asked(server, "/api/overview")
        asked(server, "/api/run?id=a.journal")
        asked(server, "/api/point?id=a.journal&round=2")
        asked(server, "/api/study?id=study/results.sqlite")
    assert state() == before
