"""Sphinx's settings for the site; build.py calls Sphinx. Nothing is loaded from a network."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from desopt import __version__

sys.path.insert(0, str(Path(__file__).parent))
import excerpts

project = "desopt"
version = release = __version__
copyright = "The desopt developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"

# Pages are those of the repository, so what GitHub does not know is not used in them.
myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 4
highlight_language = "text"

autodoc_mock_imports = ["flwr", "ray", "torch"]  # the same site whether they are installed or not
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # prose says what is taken
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"desopt {version}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {"color-brand-primary": "#005a8e", "color-brand-content": "#005a8e"},
    "dark_css_variables": {"color-brand-primary": "#6cb6e8", "color-brand-content": "#6cb6e8"},
}
html_math_renderer = "mathml"


def visit_math(translator: Any, node: nodes.Element) -> None:
    """Formulas as MathML, which browsers draw by themselves: no script, no fonts."""
    block = isinstance(node, nodes.math_block)
    mathml = tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def enlargeable(app: Any, page: nodes.document) -> None:
    """Pictures link to themselves: on a phone their letters are small."""
    for image in page.findall(nodes.image):
        image.setdefault("width", "100%")  # Sphinx links those with a width; style.css undoes it


def setup(app: Any) -> None:
    excerpts.setup(app)
    app.connect("doctree-read", enlargeable)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
