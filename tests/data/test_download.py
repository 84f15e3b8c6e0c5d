"""Downloads, from a server on loopback that behaves well or badly."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

import pytest
from helpers.command import call

from desopt import data
from desopt.data.download import fetch

CONTENT = b"".join(b"%+d 1:%d 13:1\n" % (1 - 2 * (i % 2), i) for i in range(270))
DIGEST = hashlib.sha256(CONTENT).hexdigest()


PAGE = b"\r\n <!DOCTYPE html><html><body>Please sign in</body></html>\n"
BODIES = {
    "good": CONTENT, "wrong": CONTENT[::-1].lstrip(), "cut": CONTENT[:1000], "page": PAGE,
    "part": CONTENT[:1000], "json": b'{"error": "quota"}', "empty": b"",
    "endless": b"+1 1:1\n" * 10_000,
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """/good and /wrong have the files, /cut ends in the middle of them, /loop leads to itself.

    /page, /json and /empty have something else, /part says that it is a part, /endless does not
    say when it ends.
    """

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        folder, _, name = self.path[1:].partition("/")
        if folder == "loop":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()
            return
        missing = folder in ("good", "wrong", "cut") and name != "binary/heart_scale"
        if missing or folder not in BODIES:
            self.send_error(404)
            return
        self.send_response(206 if folder == "part" else 200)
        length = {"cut": len(CONTENT), "endless": "nobody knows"}.get(folder, len(BODIES[folder]))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with suppress(OSError):  # the other side may hang up
            for _ in range(100 if folder == "endless" else 1):
                self.wfile.write(BODIES[folder])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def address(server: ThreadingHTTPServer) -> str:
    server.asked.clear()  # type: ignore[attr-defined]
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DESOPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("DESOPT_DATA", "DESOPT_DATA_URL"):
        monkeypatch.delenv(name, raising=False)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_download_can_be_loaded(
    tmp_path: Path, address: str, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESOPT_DATA_URL", f"{address}/good/")
    path = fetch("heart", sha256=DIGEST.upper())
    assert path == tmp_path / "cache" / "data" / "heart_scale"
    assert path.read_bytes() == CONTENT
    assert data.load("heart").rows == 270
    assert fetch("heart") == path  # what is there is not asked for again
    assert server.asked == ["/good/binary/heart_scale"]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="is not the file expected, by its SHA-256; remove it"):
        fetch("heart", sha256="0" * 64)
    assert path.read_bytes() == CONTENT


def test_the_first_data_folder_gets_the_file(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESOPT_DATA", str(tmp_path / "b"))
    assert fetch("heart", url=f"{address}/good").parent == tmp_path / "b"
    assert fetch("heart", url=f"{address}/good", data_dir=tmp_path / "a").parent == tmp_path / "a"


@pytest.mark.parametrize(
    ("folder", "error", "reason"),
    [
        ("cut", ConnectionError, "could not download .*IncompleteRead"),
        ("none", ConnectionError, "could not download .*404"),
        ("loop", ConnectionError, "could not download .*infinite loop"),
        ("wrong", ValueError, "is not the file expected, by its SHA-256; nothing was kept"),
    ],
)
def test_bad_downloads(
    tmp_path: Path, address: str, folder: str, error: type[Exception], reason: str
) -> None:
    place = tmp_path / "data"
    with pytest.raises(error, match=reason) as caught:
        fetch("heart", url=f"{address}/{folder}", data_dir=place, sha256=DIGEST)
    assert f"{address}/{folder}/binary/heart_scale" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert f"heart_scale in another way and put it into {place}" in str(caught.value)
    assert left(place) == []
    assert fetch("heart", url=f"{address}/good", data_dir=place).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "folder", "reason"),
    [
        ("heart", "page", r"is not the data file heart_scale but a page of HTML: it begins with"),
        ("ijcnn1", "page", r"is not the data file ijcnn1.bz2 but a page of HTML"),
        ("SUSY", "page", r"is not the data file SUSY.xz but a page of HTML"),
        ("ijcnn1", "endless", r"is not the data file ijcnn1.bz2 but another"),
        ("heart", "json", r"but another: it begins with .*quota"),
        ("heart", "empty", "is empty"),
        ("heart", "part", "is only a part of the file"),
        ("heart", "endless", r"is larger than 100,000 bytes; allow more by largest= or"),
    ],
)
def test_what_is_not_the_file_is_not_kept(
    tmp_path: Path, address: str, name: str, folder: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"{address}/{folder}.* {reason}.*; nothing was kept"):
        fetch(name, url=f"{address}/{folder}", data_dir=tmp_path, largest=100_000)
    assert left(tmp_path) == []


def test_a_limit_is_seen_before_the_download(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match=r"is larger than 100 bytes"):
        fetch("heart", url=f"{address}/good", data_dir=tmp_path, largest=100)
    assert left(tmp_path) == []
    fetch("heart", url=f"{address}/good", data_dir=tmp_path, largest=len(CONTENT))


def test_a_page_that_was_kept_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "heart_scale").write_bytes(PAGE)
    with pytest.raises(ValueError, match=r"heart_scale .* a page of HTML.*; remove it first"):
        fetch("heart", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("note", "got"),
    [(b"", "none"), (b"\n", "none"), (b"\xff\xfe", "none"), (b"heart_scale\n", "none"),
     (DIGEST[:-1].encode(), "none"), (f"{DIGEST} a\n{'0' * 64} b\n".encode(), "2 of them")],
)  # fmt: skip
def test_a_checksum_file_without_a_checksum(
    tmp_path: Path, address: str, note: bytes, got: str
) -> None:
    (tmp_path / "heart_scale.sha256").write_bytes(note)
    with pytest.raises(ValueError, match=rf"heart_scale.sha256 must hold one SHA-256 .*got {got}"):
        fetch("heart", url=f"{address}/good", data_dir=tmp_path)
    assert left(tmp_path) == ["heart_scale.sha256"]


def test_a_checksum_that_is_none(tmp_path: Path, address: str) -> None:
    for text in ("", "md5:1234", "0" * 63):
        with pytest.raises(ValueError, match="sha256 must hold one SHA-256"):
            fetch("heart", url=f"{address}/good", data_dir=tmp_path, sha256=text)
    (tmp_path / "heart_scale.sha256").write_text(f"SHA256 (heart_scale) = {DIGEST.upper()}\n")
    fetch("heart", url=f"{address}/good", data_dir=tmp_path)  # as BSD writes it


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConnectionError, match=f"could not download {url}/binary/a9a: .*refused"
        ):
            fetch("a9a", url=url, data_dir=tmp_path)
    assert left(tmp_path) == []


def test_a_checksum_beside_the_file(tmp_path: Path, address: str) -> None:
    (tmp_path / "heart_scale.sha256").write_text(f"{DIGEST}  heart_scale\n")
    with pytest.raises(ValueError, match="SHA-256"):
        fetch("heart", url=f"{address}/wrong", data_dir=tmp_path)
    assert left(tmp_path) == ["heart_scale.sha256"]
    fetch("heart", url=f"{address}/good", data_dir=tmp_path)


def test_what_cannot_be_fetched() -> None:
    with pytest.raises(ValueError, match=r"susy-like is generated by load.*cannot fetch"):
        fetch("susy-like")
    with pytest.raises(ValueError, match=r"cannot fetch 'hart': known are ijcnn1, .*heart"):
        fetch("hart")
    with pytest.raises(ValueError, match=r"not on the LIBSVM page: get SUSY_30k.bz2 in another"):
        fetch("susy-30k")


def test_the_command(tmp_path: Path, address: str) -> None:
    def run(folder: str) -> CompletedProcess[str]:
        place = ("--data-dir", tmp_path, "--url", f"{address}/{folder}")
        return call("data", "fetch", "heart", *place)

    failed = run("cut")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert failed.stderr.startswith(f"desopt: could not download {address}/cut/binary/heart_scale")
    done = run("good")
    assert done.stdout == f"{tmp_path / 'heart_scale'}\nsha256 {DIGEST}\n"
    assert (done.returncode, done.stderr) == (0, "")
