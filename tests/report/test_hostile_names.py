"""Names that would run a script, leave a folder or steer a terminal, if a report let them."""

import base64
import hashlib
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.command import call
from helpers.fake_results import ENDS, case, curves, one_item, outcome, write

from desopt.report import claims, figures, page, tables
from desopt.report import write as writing
from desopt.report.findings import Findings
from desopt.report.results import Results, summarise

HOSTILE = (
    'x"><img src=x onerror="window.owned=1">.csv', "</script><script>window.owned=1</script>",
    "--><svg onload=window.owned=1>", "../../up.csv", "a/b", "a\\b", "A/B", "a b", "$\\frac$",
    "two\nlines", "\x1b[31mred\x07", "\u202eevil", "nul\0", "[/b][link=x]", "=1+1", "|`*_x_*`|",
    "_hidden", "{{js}}", "{0}%s", "&amp;", "\u65e5", "n" * 10_000, "n" * 10_001, "a$b$c",
    "__proto__", "[x]", "é", "e\u0301",
)  # fmt: skip


class Tags(HTMLParser):
    """The elements of a page with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def hostile() -> Results:
    """Every name as a data set, as an item, and as what a case failed with."""
    items = {
        name: [outcome(case(data=name, method=m), origin=name, machine=name) for m in claims.DES]
        for name in HOSTILE
    }
    every = [o for found in items.values() for o in found]
    failed = [outcome(case(data=n, run=3), status="failed", message=n, curve={}) for n in HOSTILE]
    series = {name: summarise(found) for name, found in items.items()}
    paper = {name: summarise(curves(HOSTILE[:4])) for name in ("curves", "alpha")}
    return Results({**paper, **series}, [*every, *failed], (), dict(zip(HOSTILE, HOSTILE)))  # noqa: B905


def test_names_cannot_reach_the_page(hostile: Results) -> None:
    plans = figures.planned(hostile)
    text = page.render(hostile, Findings(claims.judge(hostile), figures=plans), ["svg", "pdf"])
    found = Tags(text)
    scripts = [attributes for tag, attributes in found.found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not [tag for tag, _ in found.found if tag in ("svg", "iframe", "object", "base")]
    for _, attributes in found.found:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href"):
            assert re.fullmatch(r"figures/[\w.%-]+|#\w+|data:,", attributes.get(name) or "#x")
    assert not re.search(r"[^\n\x20-\x7e\xa0-\uffff]|\u202e", text)
    assert "window.owned=1" in found.text  # shown as what it is
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert set(HOSTILE) == set(data["data"])


def test_the_page_allows_its_own_script_only(hostile: Results) -> None:
    text = page.render(hostile, Findings(), [])
    policy = re.findall(r'Content-Security-Policy" content="(.*?)"', text)[0]
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        source = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_figures_of_any_name(hostile: Results, tmp_path: Path) -> None:
    plans = figures.planned(hostile)
    folded = {unicodedata.normalize("NFKD", plan.name).casefold() for plan in plans}
    assert len(folded) == len(plans) == len({plan.name for plan in plans})
    assert all(re.fullmatch(r"\w[\w.-]*", plan.name) for plan in plans)
    drawn = [name for name in HOSTILE if re.match(r"[$_\n\x1b\0\u65e5-]|n", name)]
    every, *_ = figures.planned(one_item("a/b", [outcome(case(data=name)) for name in drawn]))
    (svg,) = figures.save(every, tmp_path, ["svg"])
    assert list(tmp_path.iterdir()) == [svg]
    tags = {e.tag.rpartition("}")[2] for e in ET.parse(svg).iter()}
    assert tags.isdisjoint({"script", "image", "a", "foreignObject"})


def test_dollars_in_a_title_are_dollars(hostile: Results) -> None:
    own = [outcome(case(data="a$b$c"))]
    (axes,) = figures.planned(one_item("mine", own))[0].make().axes
    assert axes.get_title() == r"LR, a\$b\$c"


def test_tables_and_claims_of_any_name(hostile: Results, tmp_path: Path) -> None:
    table = tables.data_sets(hostile)
    lines = tables.write_latex(table, tmp_path).read_text().splitlines()
    body = [line for line in lines if line.endswith(r"\\") and "data set &" not in line]
    assert len(body) == len(HOSTILE) == len(lines) - 7
    assert not any(line.startswith("[") for line in body)
    assert tables._latex("[a]\n<|") == r"{[}a]\textbackslash{}n\textless{}\textbar{}"
    cell = writing._markdown("|`*_x_*`| <b> [l](http://x) &amp;\n")
    assert cell == (r"\|\`\*\_x\_\*\`\| &lt;b&gt; \[l\](http\://x) &amp;amp;" + "\\n")


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    bad = "\x1b]0;owned\x07[/b][link=x]"
    worse = [o for o in curves([bad, "b", "c"]) if o.case.method != "es-csa" or o.case.data != "b"]
    folder = write(tmp_path / "r", {"curves": [*worse, *curves(["d"], ends=ENDS | {"des": 9.0})]})
    done = call("report", folder, "--out", tmp_path / "out", "--format", "html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "[/b]" in done.stdout or "[link" in done.stdout
