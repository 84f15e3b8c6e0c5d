"""The gallery: the examples in examples/gallery, run, replayed and drawn.

An example has a title and a text as its docstring, the digest of its x as ``DIGEST``,
``run(journal)`` and ``draw(figure, result, journal)``; ``replay(journal)`` where a replay needs
parts that are not registered.
"""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from matplotlib.figure import Figure

import desopt
from desopt.contract.codec import digest_of
from desopt.system.plot_style import for_screen

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gallery"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "show")


class Example(NamedTuple):
    name: str
    title: str
    text: str
    digest: str
    source: str

    @property
    def picture(self) -> str:
        """A name of its own: all pictures of the site end up in one folder."""
        return f"gallery-{self.name}.png"


def example(path: Path, folder: Path, again: bool) -> Example:
    """Run a script and draw its picture; an error if x is not what the script says.

    ``again``: also where the picture exists.
    """
    sys.path.insert(0, str(FOLDER))  # as for `python examples/gallery/NAME.py`
    try:
        script: dict[str, Any] = runpy.run_path(str(path))
    finally:
        sys.path.remove(str(FOLDER))
    title, _, text = inspect.cleandoc(script["__doc__"]).partition("\n\n")
    shown = Example(path.stem, title, text, script["DIGEST"], path.read_text(encoding="utf-8"))
    if not again and (folder / shown.picture).exists():
        return shown
    print(f"running examples/gallery/{path.name}", flush=True)
    with TemporaryDirectory() as scratch, for_screen():
        journal = Path(scratch) / "run.journal"
        result = script["run"](journal)
        replayed = script.get("replay", desopt.replay)(journal)
        for how, digest in (("has", result.digest), ("replayed has", digest_of(replayed))):
            if digest != shown.digest:
                sys.exit(f"{path}: x {how} the digest {digest}, the script says {shown.digest}")
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        script["draw"](figure, result, journal)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / shown.picture, dpi=110)
    return shown


def page(shown: Example) -> str:
    return f"""# {shown.title}

{shown.text}

![{shown.title}]({shown.picture})

The digest of x is `{shown.digest}`: in this run, in its replay, and on your machine.

```sh
python examples/gallery/{shown.name}.py
```

````python
{shown.source}````
"""


def index(examples: list[Example], scripts: list[tuple[str, str]]) -> str:
    """Thumbnails of the examples, and the list of other scripts."""
    cells = "\n".join(
        f'<a href="{each.name}.html"><img src="../_images/{each.picture}" alt="" loading="lazy">'
        f"<span>{each.title}</span></a>"
        for each in examples
    )
    pages = "\n".join(each.name for each in examples)
    others = "\n".join(f"- [{name}](../{name}.md): {title}" for name, title in scripts)
    return f"""# Gallery

Examples that run in a second or two. Each states the digest of the x that it finds; `make docs`
runs it, replays its journal, and compares both with the digest.

```{{raw}} html
<div class="gallery">
{cells}
</div>
```

## More scripts

{others}

```{{toctree}}
:hidden:

{pages}
```
"""
