"""One HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from urllib.parse import quote

from desopt.report import tables
from desopt.report.figures import Plan
from desopt.report.packing import pack
from desopt.report.select import Study
from desopt.report.tables import Table
from desopt.report.verdicts import FAILS, HOLDS, UNKNOWN, Claim, departures
from desopt.studies.text import printable

TITLE = "Distributed evolution strategies: results"
KINDS = {HOLDS: "holds", FAILS: "fails", UNKNOWN: "open"}
COUNTED = {HOLDS: "claims hold", FAILS: "do not hold", UNKNOWN: "lack data"}
SIGNS = {HOLDS: "\N{CHECK MARK}", FAILS: "\N{MULTIPLICATION X}", UNKNOWN: "?"}


def render(
    study: Study, claims: Sequence[Claim], figures: Sequence[Plan], formats: Sequence[str]
) -> str:
    """The page. Equal results give an equal page."""
    packed = pack(study)
    css, js = _asset("page.css"), _asset("page.js")
    parts = {
        "title": TITLE,
        "css": css,
        "js": js,
        "css_hash": _hash(css),
        "js_hash": _hash(js),
        "data": _script(packed),
        "lead": _lead(study),
        "verdicts": _verdicts(claims),
        "claims": _claims(claims, departures(study)),
        "tables": _section("tables", "Tables", map(_table, tables.tables(study))),
        "figures": _figures(figures, formats),
        "provenance": _provenance(study),
        "fallback": _fallback(figures, formats),
    }
    parts["contents"] = _contents(parts, bool(packed["profiles"]))
    page = _asset("page.html")
    if not packed["profiles"]:
        page = re.sub(r'<section id="profiles">.*?</section>\n', "", page, flags=re.DOTALL)
    # In one pass, so that nothing inside the parts is taken for a place to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def _asset(name: str) -> str:
    return resources.files("desopt.report").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(source: str) -> str:
    """What the page's policy allows: this very text, and none that a name may smuggle in."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(text: str) -> str:
    return html.escape(printable(text))


def _link(plan: Plan, form: str) -> str:
    return html.escape(quote(f"figures/{plan.name}.{form}"))


def _script(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _lead(study: Study) -> str:
    done = [o for o in study.outcomes if o.status == "done"]
    methods, data, problems = (
        len({getattr(o.case, name) for o in done}) for name in ("method", "data", "problem")
    )
    counts = (
        _plural(len(done), "run"),
        _plural(methods, "method"),
        _plural(problems, "problem"),
        _plural(data, "data set"),
    )
    return html.escape(
        f"DES minimises a function from its values alone, with the data spread over workers. "
        f"{counts[0]} of {counts[1]} on {counts[2]} and {counts[3]}; "
        "every number below is computed from their results."
    )


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _verdicts(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    found = [claim.verdict for claim in claims]
    chips = "".join(
        f'<li><a href="#claims"><b class="{kind}">{found.count(verdict)}</b>'
        f"{COUNTED[verdict]}</a></li>"
        for verdict, kind in KINDS.items()
    )
    label = f"Verdicts on {len(claims)} claims of the paper"
    return f'<ul class="verdicts" aria-label="{label}">{chips}</ul>'


def _contents(parts: dict[str, str], profiles: bool) -> str:
    sections = {"curves": "Curves", "claims": "Claims", "profiles": "Profiles"}
    sections |= {"tables": "Tables", "figures": "Figures", "provenance": "Settings and provenance"}
    there = [n for n in sections if parts.get(n, "x") and (n != "profiles" or profiles)]
    return "".join(f'<li><a href="#{name}">{sections[name]}</a></li>' for name in there)


def _section(name: str, title: str, blocks: object) -> str:
    body = "".join(blocks)  # type: ignore[arg-type]
    return f'<section id="{name}">\n<h2>{title}</h2>\n{body}</section>\n' if body else ""


def _claims(claims: Sequence[Claim], departed: str) -> str:
    if not claims:
        return ""
    items = "".join(map(_claim, claims))
    intro = "<p>What the paper says, and what these results say. Nothing is judged by hand.</p>"
    if departed:
        intro += (
            "<p><b>Not at the paper's settings</b>, so the verdicts are about these: "
            f"{_text(departed)}.</p>"
        )
    return _section("claims", "Claims of the paper", [intro, f'<ol class="claims">{items}</ol>'])


def _claim(claim: Claim) -> str:
    e = _text
    return (
        f'<li><span class="verdict {KINDS[claim.verdict]}">{SIGNS[claim.verdict]} '
        f"{claim.verdict}</span><div><h3>{e(claim.text)}</h3><p>{e(claim.numbers)}</p>"
        f"<details><summary>How it is judged ({e(claim.source)})</summary>"
        f"{e(claim.definition)}</details></div></li>"
    )


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in table.header)
    body = "".join(
        "<tr>" + "".join(_cell(cell, (i, j) in table.bold) for j, cell in enumerate(row)) + "</tr>"
        for i, row in enumerate(table.rows)
    )
    kind = "numbers right" if table.bold else "numbers"
    return (
        f'<h3>{_text(table.caption)}</h3><div class="scroll" tabindex="0">'
        f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'
    )


def _cell(text: str, bold: bool) -> str:
    shown = _text(text)
    return f"<td><b>{shown}</b></td>" if bold else f"<td>{shown}</td>"


def _figures(figures: Sequence[Plan], formats: Sequence[str]) -> str:
    if not formats or not figures:
        return ""
    items = []
    for plan in figures:
        links = ", ".join(f'<a href="{_link(plan, f)}">{f.upper()}</a>' for f in formats)
        items.append(f"<li>{_text(plan.caption)} ({links})</li>")
    intro = "<p>In the paper's arrangement, for a LaTeX document; they lie beside this page.</p>"
    return _section("figures", "Figures", [intro, f'<ul class="files">{"".join(items)}</ul>'])


def _fallback(figures: Sequence[Plan], formats: Sequence[str]) -> str:
    if "svg" not in formats:
        return ""
    return "".join(
        f'<p><img src="{_link(plan, "svg")}" alt="{_text(plan.caption)}"></p>' for plan in figures
    )


def _provenance(study: Study) -> str:
    found = (tables.settings(study), tables.provenance(study), tables.failures(study))
    foot = (
        "<footer>Written by <code>desopt report</code>, which only reads results. "
        "The loss includes the penalty; generated data sets are marked (generated) and bear no "
        "name of a real one. Rounds are the paper's: a generation of ES-CSA counts as the rounds "
        "that cost as many function evaluations.</footer>"
    )
    return _section("provenance", "Settings and provenance", [*map(_table, found), foot])
