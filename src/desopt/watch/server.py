"""The server of ``desopt watch``: reads, and answers this machine or whoever has the token.

A page of another site can make a browser on this machine ask us. It cannot read the answers, unless
its name has come to mean our address in the meantime (DNS rebinding); the ``Host`` that it then
names is not ours, and is refused.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from desopt.contract.errors import JournalError
from desopt.watch import page
from desopt.watch.files import Tree
from desopt.watch.points import Points
from desopt.watch.runs import Run
from desopt.watch.studies import StudyView

#: Seconds that a request may read and replay, and between two looks at the tree.
WORK, PAUSE = 0.5, 2.0
#: Requests answered at the same time; seconds that a slow one may take to say what it wants.
MOST, PATIENCE = 32, 10.0

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": page.POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Found = TypeVar("Found")


class Refused(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Board:
    """What the folder holds, kept between requests."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self._lock = threading.Lock()
        self._replays = threading.Lock()  # one at a time: each may take a whole core
        self._looked = -PAUSE
        self._runs: dict[str, Run] = {}
        self._points: dict[str, Points] = {}
        self._studies: dict[str, StudyView] = {}
        self._left_out = 0

    def overview(self) -> dict[str, Any]:
        """All runs and studies, one line each."""
        deadline = time.monotonic() + WORK
        runs, studies = self._found()
        for run in runs.values():
            run.refresh(deadline)
        return {
            "folder": self.tree.root.name,
            "runs": [run.summary() for run in runs.values() if not run.gone],
            "studies": [study.summary() for study in studies.values()],
            "left_out": self._left_out,
        }

    def _found(self) -> tuple[dict[str, Run], dict[str, StudyView]]:
        """What is in the folder now, or was a moment ago."""
        with self._lock:
            self._look()
            return self._runs, self._studies

    def _look(self) -> None:
        if time.monotonic() - self._looked < PAUSE:
            return
        found = self.tree.find()
        runs = {run.id: run for run in (Run(self.tree, path) for path in found.journals)}
        studies = {s.id: s for s in (StudyView(self.tree, path) for path in found.studies)}
        self._runs = {id: self._runs.get(id, run) for id, run in runs.items()}
        self._studies = {id: self._studies.get(id, study) for id, study in studies.items()}
        self._points = {id: self._points.get(id) or Points(run) for id, run in self._runs.items()}
        for run in self._runs.values():
            run.gone = False
        self._left_out, self._looked = found.left_out, time.monotonic()

    def run(self, query: dict[str, str]) -> dict[str, Any]:
        """The curve of a run, and who answered."""
        run = self._one(self._found()[0], query)
        run.refresh(time.monotonic() + WORK)
        return run.curve() | {"open": self._open(run) if run.known else None}

    def _open(self, run: Run) -> list[str] | None:
        """Trials that wait for a value."""
        try:
            return self._replayed(run, lambda p: p.open_trials(time.monotonic() + WORK))
        except (ValueError, ArithmeticError, JournalError, Refused, OSError):
            return None

    def point(self, query: dict[str, str]) -> dict[str, Any]:
        """x after a round."""
        run = self._one(self._found()[0], query)
        text = query.get("round", "")
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise Refused(HTTPStatus.BAD_REQUEST, f"round must be a whole number, got {text!r:.40}")
        deadline = time.monotonic() + WORK
        run.refresh(deadline)
        try:
            return self._replayed(run, lambda points: points.shown(int(text), deadline))
        except (ValueError, ArithmeticError, JournalError, OSError) as error:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}"[:500]) from error

    def _replayed(self, run: Run, what: Callable[[Points], Found]) -> Found:
        if not self._replays.acquire(timeout=4 * WORK):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "other replays are going on; try again")
        try:
            return what(self._points.get(run.id) or Points(run))
        finally:
            self._replays.release()

    def study(self, query: dict[str, str]) -> dict[str, Any]:
        """The report's data of a study; only its stamp, if the page has them already."""
        found = self._one(self._found()[1], query).data()
        seen = ",".join(map(str, found["stamp"]))
        return {"same": True} if query.get("seen") == seen else found | {"stamp": seen}

    @staticmethod
    def _one(found: Mapping[str, Found], query: dict[str, str]) -> Found:
        """What was found under this name: a request never leads to any other file."""
        if query.get("id") not in found:
            raise Refused(HTTPStatus.NOT_FOUND, "no such run or study in this folder")
        return found[query["id"]]


class Server(ThreadingHTTPServer):
    """Serves one folder on one address. ``token`` is None where only this machine can connect."""

    daemon_threads = True
    request_queue_size = 4 * MOST  # a full queue keeps a browser waiting for seconds

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.board = Board(root)
        self.token = None if is_loopback(host) else secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(MOST)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)
        self.host = host
        self.cookie = f"desopt-{self.server_port}"

    @property
    def url(self) -> str:
        """The address to open, with the token: the only place where it is ever shown."""
        anywhere = dict.fromkeys(("", "0.0.0.0", "::"), socket.gethostname())
        host = anywhere.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        token = "" if self.token is None else f"?token={self.token}"
        return f"http://{host}:{self.server_port}/{token}"

    def is_ours(self, host: str) -> bool:
        """Whether the Host header names this server: never another name for its address."""
        name, _, port = host.rpartition(":")
        if name.endswith(":") or not port.isdigit():  # without a port
            name, port = host, "80"
        name = name.strip("[]").lower()
        if port != str(self.server_port):
            return False
        if self.token is None:
            return is_loopback(name)
        own = {self.host.lower(), socket.gethostname().lower(), "localhost"}
        return name in own or _is_address(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # the page tries again
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a connection that was given up


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Handler(BaseHTTPRequestHandler):
    """One request. There is only GET."""

    server: Server
    timeout = PATIENCE
    server_version, sys_version = "desopt", ""

    def do_GET(self) -> None:
        try:
            self._answer()
        except Refused as refused:
            self._send(refused.status, json.dumps({"error": str(refused)}), "application/json")
        except ConnectionError:
            pass
        except Exception as error:  # one bad file must not end the page
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, "application/json")

    def _answer(self) -> None:
        if not self.server.is_ours(self.headers.get("Host", "")):
            raise Refused(HTTPStatus.FORBIDDEN, "this is not the address of this server")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(HTTPStatus.FORBIDDEN, "another site may not ask")
        try:
            url = urlsplit(self.path)
            fields = parse_qs(url.query, max_num_fields=8)
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"this address cannot be read: {error}") from None
        query = {name: found[-1] for name, found in fields.items()}
        if self.server.token is not None and not self._may_enter(query):
            raise Refused(HTTPStatus.FORBIDDEN, "the token is missing or wrong; see the terminal")
        if url.path == "/" and "token" in query and self.server.token is not None:
            self._keep_token()
            return
        board = self.server.board
        asked: dict[str, Callable[[], dict[str, Any]]] = {
            "/api/overview": board.overview,
            "/api/run": lambda: board.run(query),
            "/api/point": lambda: board.point(query),
            "/api/study": lambda: board.study(query),
        }
        if url.path == "/":
            self._send(HTTPStatus.OK, page.PAGE, "text/html")
        elif url.path in asked:
            text = json.dumps(asked[url.path](), separators=(",", ":"), allow_nan=False)
            self._send(HTTPStatus.OK, text, "application/json")
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _may_enter(self, query: dict[str, str]) -> bool:
        """Whether the token comes with the address or in the cookie; in constant time."""
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        kept = cookies.get(self.server.cookie)
        given = query.get("token") or (kept.value if kept is not None else "")
        return compare_digest(given.encode(), (self.server.token or "").encode())

    def _keep_token(self) -> None:
        """Into a cookie, and out of the address and of the browser's history."""
        self.send_response(HTTPStatus.SEE_OTHER)
        kept = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._end({"Location": "/", "Set-Cookie": kept, "Content-Length": "0"})

    def _send(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self._end({"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _end(self, headers: dict[str, str]) -> None:
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass  # an address may hold the token
