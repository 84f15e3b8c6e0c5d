"""Excerpts in the results of the search, from disk as well.

Sphinx's search fetches the pages that it has found, which browsers refuse from disk. Here the text
of all pages comes as a script, which the search page loads, and ``fetch`` on that page reads it.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

NAME = "texts.js"
FETCH = """\
window.fetch = async (page) =>
  new Response(texts[page.slice(document.documentElement.dataset.content_root.length)] ?? "");
"""
#: Titles are in the result already, arguments are no prose; the others are not shown.
LEFT_OUT = nodes.title, addnodes.desc_parameterlist, nodes.Invisible, nodes.raw


def text_of(node: nodes.Node) -> str:
    """The text of a page; its sections have the ids by which the search names them."""
    if isinstance(node, nodes.Text):
        return escape(node.astext(), quote=False)
    if isinstance(node, LEFT_OUT):
        return ""
    inner = "".join(map(text_of, node.children))
    if isinstance(node, nodes.section):
        return f'<section id="{escape(node["ids"][0])}">{inner}</section>'
    if isinstance(node, addnodes.desc_signature):
        return f"{inner}: "
    return inner if isinstance(node, nodes.Inline) else f"{inner} "


def on_search_page(app: Any, page: str, *_: Any) -> None:
    if page == "search":
        app.add_js_file(NAME)  # of this page only


def write(app: Any, error: Exception | None) -> None:
    if error is not None:
        return
    suffix = app.builder.out_suffix
    texts = {
        f"{name}{suffix}": f'<div role="main">{text_of(app.env.get_doctree(name))}</div>'
        for name in sorted(app.env.found_docs)
    }
    path = Path(app.outdir) / "_static" / NAME
    path.write_text(f"const texts = {json.dumps(texts)};\n{FETCH}", encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("html-page-context", on_search_page)
    app.connect("build-finished", write)
