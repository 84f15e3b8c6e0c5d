"""Every example runs; links of pages lead somewhere. The Python of pages: tests/site."""

import contextlib
import re
import shutil
import ssl
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Examples of packages that need not be installed.
NEEDS = {"torch_error_rate": "torch"}

#: What an example must find.
SAYS = {
    "resume": [
        "same bits as the uninterrupted run: True",
        "round 15 replayed exactly: True",
    ]
}


def run(script: Path, folder: Path) -> str:
    """Run a script as a user would, in an empty folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples() -> None:
    names = {path.stem for path in EXAMPLES}
    assert {"quickstart", "simulator", "resume", "own_sampler"} <= names


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(script.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed; make {needed} runs this example")
    output = run(script, tmp_path)
    assert output.strip()
    assert all(line in output for line in SAYS.get(script.stem, []))
    assert not list(tmp_path.iterdir()), "an example must leave nothing behind"


def test_the_certificates_of_the_federation_page_are_accepted(tmp_path: Path) -> None:
    """Its commands, and a handshake with the server that they make."""
    text = (ROOT / "docs/federation.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"^   ```\n(   openssl .*?)^   ```", text, re.DOTALL | re.MULTILINE)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    client.load_verify_locations(tmp_path / "ca.pem")
    for name, accepted in (("fl.example.org", True), ("localhost", True), ("example.org", False)):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = client.wrap_bio(to_client, to_server, server_hostname=name)
        theirs = server.wrap_bio(to_server, to_client, server_side=True)
        if accepted:
            shake_hands(ours, theirs)
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                shake_hands(ours, theirs)


def shake_hands(*sides: ssl.SSLObject) -> None:
    waiting = set(sides)
    while waiting:
        for side in list(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.discard(side)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_pages_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing
