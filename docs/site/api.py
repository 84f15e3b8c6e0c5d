"""The pages of the API reference: every public name, from its docstring."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

#: Packages that need not be installed to build the site.
OPTIONAL = ["flwr", "ray", "torch"]

#: The public modules, and what each is for.
MODULES = {
    "desopt": "minimise, resume, replay; objectives, results and errors",
    "desopt.data": "data sets, their splits, and the shards of workers",
    "desopt.engines": "where workers run",
    "desopt.samplers": "distributions of mutations",
    "desopt.streams": "random numbers as a function of their place",
    "desopt.theory": "the paper's bounds",
    "desopt.testing": "the contracts as checks",
    "desopt.sklearn": "estimators for scikit-learn",
    "desopt.torch": "PyTorch modules by forward passes",
    "desopt.federate": "Flower's apps",
    "desopt.trackers": "callbacks for TensorBoard, MLflow, Weights & Biases, logging",
}

#: What a page begins with.
FIRST = {"minimize"}


def module_of(name: str) -> ModuleType:
    """The module that a public name stands for: ``desopt.streams`` lives in another folder."""
    package, _, attribute = name.partition(".")
    module = import_module(package)
    return getattr(module, attribute) if attribute else module


def public(name: str) -> dict[str, Any]:
    """The public objects of a module by name, without its modules and the version."""
    module = module_of(name)
    found = {each: getattr(module, each) for each in module.__all__ if not each.startswith("__")}
    shown = {each: thing for each, thing in found.items() if not inspect.ismodule(thing)}
    return dict(sorted(shown.items(), key=lambda pair: (pair[0] not in FIRST, rank(pair[1]))))


def rank(thing: Any) -> int:
    """Functions, then classes, errors, constants; each in the order of ``__all__``."""
    if inspect.isroutine(thing):
        return 0
    if not inspect.isclass(thing):
        return 3
    return 2 if issubclass(thing, BaseException) else 1


def is_plain(thing: Any) -> bool:
    """Whether it has no docstring of its own: a constant, a table, a union of types."""
    return not (inspect.isclass(thing) or inspect.isroutine(thing))


def comment(name: str, thing: Any) -> str:
    """The comment before the assignment of a constant, wherever that is."""
    from sphinx.pycode import ModuleAnalyzer

    homes = [m for m in list(sys.modules.values()) if m.__name__.startswith("desopt")]
    for home in homes:
        if vars(home).get(name) is thing:
            lines = ModuleAnalyzer.for_module(home.__name__).find_attr_docs().get(("", name))
            if lines:
                return "\n   ".join(lines)
    raise LookupError(f"{name} has no comment '#: ...' where it is assigned")


def entry(module: str, name: str, thing: Any) -> str:
    if is_plain(thing):
        return f".. py:data:: {name}\n\n   {comment(name, thing)}\n"
    if inspect.isclass(thing):
        others = ", ".join(each for each in dir(thing) if each.endswith("_request"))
        without = f"   :exclude-members: {others}\n" if others else ""  # made by scikit-learn
        return f".. autoclass:: {module}.{name}\n   :members:\n{without}"
    return f".. autofunction:: {module}.{name}\n"


def page(module: str) -> str:
    """A page in reStructuredText, as docstrings are."""
    text = inspect.getdoc(module_of(module)) or ""
    parts = [f"{module}\n{'=' * len(module)}\n", text, f".. py:module:: {module}\n"]
    for name, thing in public(module).items():
        parts.append(f"{name}\n{'-' * len(name)}\n")
        parts.append(entry(module, name, thing))
    return "\n\n".join(parts)


def index() -> str:
    rows = "\n".join(f"| [`{name}`]({name}.rst) | {what} |" for name, what in MODULES.items())
    pages = "\n".join(MODULES)
    return f"""# API reference

Every public name, from its docstring, with an example that `make docs` runs. The examples assume

```python
import numpy as np
import desopt
from desopt import data, streams, theory
```

| module | |
|---|---|
{rows}

```{{toctree}}
:hidden:

{pages}
```
"""
