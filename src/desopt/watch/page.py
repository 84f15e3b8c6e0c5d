"""The live page: the report's style, charts and curves, and a script that asks the server."""

from __future__ import annotations

import json
import re
from importlib import resources

from desopt.report import names, style
from desopt.report.page import asset, hash_of

_LOOKS = [
    dict(zip(("colour", "dash", "marker"), style.numbered_look(place), strict=True))
    for place in range(7)
]


def _own(name: str) -> str:
    return resources.files("desopt.watch").joinpath(name).read_text(encoding="utf-8").strip()


_CSS = f"{asset('page.css')}\n{_own('watch.css')}"
_JS = "\n".join((asset("chart.js"), asset("curves.js"), _own("watch.js")))
_PARTS = {
    "css": _CSS,
    "js": _JS,
    "settings": json.dumps({"costs": names.COSTS, "looks": _LOOKS}).replace("<", "\\u003c"),
}

#: Nothing from anywhere else: no script, style, image or connection.
POLICY = (
    f"default-src 'none'; style-src {hash_of(_CSS)}; script-src {hash_of(_JS)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE = re.sub(r"\{\{(\w+)\}\}", lambda match: _PARTS[match[1]], _own("watch.html"))
