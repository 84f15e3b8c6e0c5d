"""The report as a single HTML file that needs no network and no other file."""

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
from desopt.report.figures import PlannedFigure
from desopt.report.findings import Findings
from desopt.report.page_data import page_data
from desopt.report.results import Results
from desopt.report.tables import Table
from desopt.report.verdicts import FAILS, HOLDS, UNKNOWN, Claim
from desopt.studies.output import printable

TITLE = "Distributed evolution strategies: results"
KINDS = {HOLDS: "holds", FAILS: "fails", UNKNOWN: "open"}
COUNTED = {HOLDS: "claims hold", FAILS: "do not hold", UNKNOWN: "undecided"}
SIGNS = {HOLDS: "\N{CHECK MARK}", FAILS: "\N{MULTIPLICATION X}", UNKNOWN: "?"}


def render(
    results: Results,
    found: Findings,
    formats: Sequence[str],
) -> str:
    """The page. Equal results give equal pages."""
    data = page_data(results.items if found.shown is None else found.shown, found.profiled)
    css, js = asset("page.css"), "\n".join(map(asset, ("chart.js", "curves.js", "page.js")))
    parts = {
        "title": _title(results),
        "css": css,
        "js": js,
        "css_hash": hash_of(css),
        "js_hash": hash_of(js),
        "data": _script(data),
        "lead": _lead(results),
        "verdicts": _verdicts(found.claims),
        "claims": _claims(found),
        "tables": _section("tables", "Tables", map(_table, found.tables)),
        "figures": _figures(found, formats, results.of_paper),
        "provenance": _provenance(results),
        "fallback": _fallback(found.figures, formats),
    }
    page = asset("page.html")
    for section, there in (("curves", data["items"]), ("profiles", data["profiles"])):
        if not there:
            page = re.sub(rf'<section id="{section}".*?</section>\n', "", page, flags=re.DOTALL)
    parts["contents"] = _contents(page, parts)
    # In one pass, so that the parts themselves are not searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def asset(name: str) -> str:
    """A file of this folder."""
    return resources.files("desopt.report").joinpath(name).read_text(encoding="utf-8").strip()


def hash_of(source: str) -> str:
    """The hash by which the content security policy allows this text and no other."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(text: str) -> str:
    return html.escape(printable(text))


def _link(plan: PlannedFigure, form: str) -> str:
    return html.escape(quote(f"figures/{plan.name}.{form}"))


def _script(value: object) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _title(results: Results) -> str:
    """The name of the study; that of the paper's is the methods'."""
    name = results.about.get("study", "").removesuffix(" full")[:60]
    return TITLE if results.of_paper or not name else _text(f"{name[0].upper()}{name[1:]}: results")


def _lead(results: Results) -> str:
    done = [o for o in results.outcomes if o.status == "done"]
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
        "DES minimises a function from its values alone, with the data distributed over workers. "
        f"This report covers {counts[0]}: {counts[1]}, {counts[2]}, {counts[3]}. "
        "All numbers are computed from the stored results."
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
    label = f"Verdicts on {len(claims)} claims"
    return f'<ul class="verdicts" aria-label="{label}">{chips}</ul>'


def _contents(page: str, parts: dict[str, str]) -> str:
    sections = {"curves": "Curves", "claims": "Claims", "profiles": "Profiles"}
    sections |= {"tables": "Tables", "figures": "Figures", "provenance": "Settings and provenance"}
    there = [n for n in sections if parts.get(n) or f'<section id="{n}"' in page]
    return "".join(f'<li><a href="#{name}">{sections[name]}</a></li>' for name in there)


def _section(name: str, title: str, blocks: object) -> str:
    body = "".join(blocks)  # type: ignore[arg-type]
    return f'<section id="{name}">\n<h2>{title}</h2>\n{body}</section>\n' if body else ""


def _claims(found: Findings) -> str:
    if not found.claims:
        return ""
    items = "".join(map(_claim, found.claims))
    intro = f"<p>{_text(found.intro)}</p>"
    if found.departed:
        intro += (
            "<p><b>The settings differ from the paper's</b>, and the verdicts hold for these: "
            f"{_text(found.departed)}.</p>"
        )
    blocks = [intro, f'<ol class="claims">{items}</ol>']
    return _section("claims", _text(found.heading), blocks)


def _claim(claim: Claim) -> str:
    e = _text
    further = f"<p>Further data sets: {e(claim.further)}</p>" if claim.further else ""
    return (
        f'<li><span class="verdict {KINDS[claim.verdict]}">{SIGNS[claim.verdict]} '
        f"{claim.verdict}</span><div><h3>{e(claim.text)}</h3><p>{e(claim.numbers)}</p>{further}"
        f"<details><summary>Rule ({e(claim.source)})</summary>"
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


def _figures(found: Findings, formats: Sequence[str], of_paper: bool) -> str:
    if not formats or not found.figures:
        return ""
    items = []
    for plan in found.figures:
        links = ", ".join(f'<a href="{_link(plan, f)}">{f.upper()}</a>' for f in formats)
        image = _image(plan) if found.illustrated and "svg" in formats else ""
        items.append(f"<li>{image}{_text(plan.caption)} ({links})</li>")
    arranged = "Arranged as in the paper, ready" if of_paper else "Ready"
    intro = f"<p>{arranged} for LaTeX, in the folder of this page.</p>"
    return _section("figures", "Figures", [intro, f'<ul class="files">{"".join(items)}</ul>'])


def _fallback(figures: Sequence[PlannedFigure], formats: Sequence[str]) -> str:
    if "svg" not in formats:
        return ""
    return "".join(f"<p>{_image(plan)}</p>" for plan in figures)


def _image(plan: PlannedFigure) -> str:
    return f'<img src="{_link(plan, "svg")}" alt="{_text(plan.caption)}">'


def _provenance(results: Results) -> str:
    found = (tables.settings(results), tables.provenance(results), tables.failures(results))
    foot = (
        "<footer>Written by <code>desopt report</code>. Losses include the regularisation. "
        "Synthetic data sets are marked (generated) and have names of their own. Rounds are the "
        "paper's: a generation of ES-CSA counts as the number of rounds with the same number of "
        "function evaluations.</footer>"
    )
    return _section("provenance", "Settings and provenance", [*map(_table, found), foot])
