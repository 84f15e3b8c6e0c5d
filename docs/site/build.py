"""Build the documentation site: python docs/site/build.py [--quick].

The pages are the Markdown of the repository. They are copied to a folder that Sphinx reads, with
docs/ as its top, and their links are changed accordingly:

========================================  ======================================================
page                                      from
========================================  ======================================================
index.html                                docs/index.md; the contents are those of docs/README.md
NAME.html                                 docs/NAME.md
methods.html                              the tables of README.md
CONTRIBUTING.html, results/.../*.html     the files of the same names
examples/NAME.py.html and the like        sources that a page links to
gallery/NAME.html                         examples/gallery/NAME.py, which is run
api/MODULE.html                           the docstrings of public names
========================================  ======================================================
"""

from __future__ import annotations

import argparse
import ast
import os
import posixpath
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound
from sphinx.cmd.build import main as sphinx
from sphinx.ext.autodoc.mock import mock

sys.path.insert(0, str(Path(__file__).parent))
import api
import gallery

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: Markdown outside docs/ that is part of the site.
OTHERS = ("[!R]*.md", "examples/*/README.md", "results/**/*.md")  # README.md: methods.md
#: Pages that have no Markdown in the repository, by the heading that they belong to.
GENERATED = {
    "Start": {"gallery/index.md": "Gallery"},
    "Reference": {"api/index.md": "API reference"},
}
SHOWN = {".py": "python", ".toml": "toml", ".css": "css"}  # sources that get a page
LINK = re.compile(r"(!?)(\[[^\]]*\])\(([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *```)([a-z]+)$", re.M)


class Stage:
    """The folder that Sphinx reads, and the files that are copied to the site as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.extra = folder / "pages", folder / "files"
        self.written: set[Path] = set()

    def write(self, name: str, text: str) -> None:
        """Write a page; one that is as it was keeps its time, so that Sphinx need not read it."""
        path = self.folder / name
        self.written.add(path)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def copy(self, source: Path, name: str, *, extra: bool = False) -> None:
        path = (self.extra if extra else self.folder) / name
        self.written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)

    def remove_others(self) -> None:
        for folder in (self.folder, self.extra):
            for path in folder.rglob("*"):
                if path.is_file() and path not in self.written:
                    path.unlink()


def address(path: str) -> str:
    """Where a file of the repository is in the site's sources."""
    if path == "README.md":
        return "methods.md"
    return path.removeprefix("docs/")


def page(stage: Stage, text: str, origin: str) -> str:
    """The text of a page, with links and fences as the site needs them."""
    here = posixpath.dirname(origin)
    home = posixpath.dirname(address(origin))

    def link(found: re.Match[str]) -> str:
        image, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or "://" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(here, target))
        source, name = ROOT / path, address(path)
        if not source.exists() and not (stage.folder / name).exists():
            sys.exit(f"{origin} links to {target}, which does not exist")
        attributes = ""
        if image:
            stage.copy(source, name)
        elif source.is_dir():
            scripts = path in ("examples", "examples/gallery")
            name = "gallery/index.md" if scripts else f"{name}/README.md"
        elif source.suffix in SHOWN:
            name += ".md"
            show(stage, path, name)
        elif source.suffix != ".md":
            stage.copy(source, name, extra=True)
            if source.suffix == ".html":  # a report: with its figures
                for part in (part for part in source.parent.rglob("*") if part.is_file()):
                    stage.copy(part, address(part.relative_to(ROOT).as_posix()), extra=True)
            attributes = "{.external}"
        return f"{image}{label}({posixpath.relpath(name, home or '.')}{anchor}){attributes}"

    return FENCE.sub(known_language, outside_code(text, lambda part: LINK.sub(link, part)))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """``change`` applied to what is not in a fence."""
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def known_language(fence: re.Match[str]) -> str:
    """Fences of test vectors have names that no highlighter knows."""
    try:
        get_lexer_by_name(fence[2])
    except ClassNotFound:
        return f"{fence[1]}text"
    return fence[0]


def show(stage: Stage, path: str, name: str) -> None:
    """A page with a source file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = SHOWN[Path(path).suffix]
    stage.write(name, f"---\norphan: true\n---\n\n# {path}\n\n````{language}\n{text}````\n")


def sections() -> dict[str, dict[str, str]]:
    """The contents of docs/README.md: by heading, the titles of the linked files."""
    chapters = re.split(r"^## (.+)$", (DOCS / "README.md").read_text(encoding="utf-8"), flags=re.M)
    return {
        title: {
            address(posixpath.normpath(f"docs/{file}")): name
            for name, file in re.findall(r"^- \[([^\]]+)\]\(([^)#]+)", body, re.M)
        }
        for title, body in zip(chapters[1::2], chapters[2::2], strict=True)
    }


def contents() -> str:
    """The hidden tables of contents below the first page: the site's navigation."""
    tables = []
    for title, pages in sections().items():
        pages = pages | GENERATED.get(title, {})
        entries = "\n".join(f"{name} <{file}>" for file, name in pages.items())
        tables.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n")
    return "".join(tables)


def methods() -> str:
    """The tables of methods and engines, which the README has."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"^## (?:Methods|Engines)$.*?(?=^## )", text, re.M | re.S)
    return "# Methods and engines\n\n" + "".join(tables)


def stage_api(stage: Stage) -> None:
    with mock(api.OPTIONAL):
        for module in api.MODULES:
            stage.write(f"api/{module}.rst", api.page(module))
    stage.write("api/index.md", api.index())


def stage_gallery(stage: Stage, quick: bool) -> None:
    examples = []
    for path in gallery.EXAMPLES:
        shown = gallery.example(path, stage.folder / "gallery", again=not quick)
        stage.written.add(stage.folder / "gallery" / shown.picture)
        stage.write(f"gallery/{shown.name}.md", gallery.page(shown))
        examples.append(shown)
    scripts = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        show(stage, name, f"{name}.md")
        title = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")
        scripts.append((name, title[0]))
    stage.write("gallery/index.md", gallery.index(examples, scripts))


def stage_pages(stage: Stage) -> None:
    sources = [path for path in DOCS.glob("*.md") if path.name != "README.md"]
    for pattern in OTHERS:
        sources += ROOT.glob(pattern)
    listed = {name for names in sections().values() for name in names}
    for source in sorted(sources):
        path = source.relative_to(ROOT).as_posix()
        text = page(stage, source.read_text(encoding="utf-8"), path)
        if path == "docs/index.md":
            text += contents()
        elif address(path) not in listed and not path.startswith("docs/"):
            text = f"---\norphan: true\n---\n\n{text}"  # reached by links
        stage.write(address(path), text)
    stage.write("methods.md", page(stage, methods(), "README.md"))


def build(out: Path, work: Path, quick: bool) -> int:
    stage = Stage(work)
    stage_gallery(stage, quick)
    stage_pages(stage)
    stage_api(stage)
    stage.remove_others()
    # Drawn anew by the code that they show; the committed ones are for GitHub.
    for script in () if quick else sorted((DOCS / "pictures").glob("*.py")):
        print(f"running docs/pictures/{script.name}", flush=True)
        runpy.run_path(str(script))["draw"](stage.folder / "pictures")
    shutil.rmtree(out, ignore_errors=True)
    settings = ["-c", str(DOCS / "site"), "-d", str(work / "doctrees"), "-j", "auto"]
    print("building the pages", flush=True)
    failed: int = sphinx([*settings, "-q", "-W", "--keep-going", str(stage.folder), str(out)])
    if not failed:
        shutil.copytree(stage.extra, out, dirs_exist_ok=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--quick", action="store_true", help="keep the pictures that are there")
    given = parser.parse_args()
    out = given.out.resolve()
    os.environ.setdefault("MPLBACKEND", "Agg")
    if failed := build(out, ROOT / "build" / "docs", given.quick):
        sys.exit(failed)
    print(f"open {out / 'index.html'}")


if __name__ == "__main__":
    main()
