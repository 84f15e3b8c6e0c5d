"""Install the wheel into a fresh environment outside the repository, and use it there.

    python .ci/try_wheel.py dist/desopt-*.whl

First the core alone, whose packages are counted: at most PACKAGES of them, of MEGABYTES together,
besides numba and what it needs. Then with the extras of the demo, which runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PACKAGES, MEGABYTES = 10, 300

#: Sizes of all packages in bytes, by name.
SIZES = """
import json
from importlib.metadata import distributions
print(json.dumps({
    found.metadata["Name"].lower(): sum(
        path.stat().st_size for file in found.files or () if (path := file.locate()).is_file()
    )
    for found in distributions()
}))
"""

SMOKE = """
import sys
from pathlib import Path
import numpy as np
import desopt

assert Path(desopt.__file__).is_relative_to(sys.prefix), desopt.__file__
rows = np.random.default_rng(0).standard_normal((2000, 20))
data = rows, np.sign(rows @ np.linspace(-1.0, 1.0, 20))
runs = [
    desopt.minimize("lr", None, data, rounds=10, engine=engine, journal=journal, progress=False)
    for engine, journal in (("serial", "run.journal"), ("threads", None), ("processes", None))
]
assert runs[0].fun < 0.5 * runs[0].initial_fun
assert {run.x.tobytes() for run in runs} == {desopt.replay("run.journal").tobytes()}
plain = desopt.minimize(lambda x: float(x @ x), np.ones(5), max_evaluations=500, progress=False)
assert plain.fun < 1e-3
print(f"desopt {desopt.__version__}: loss {runs[0].initial_fun:.3f} -> {runs[0].fun:.3f}")
"""


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="desopt-wheel-") as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        python = place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"

        def run(*arguments: str) -> str:
            """What Python in the new environment prints; nothing of ours is on its path."""
            environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
            return subprocess.run(
                [python, *arguments], cwd=place, env=environment, check=True, text=True,
                stdout=subprocess.PIPE,
            ).stdout  # fmt: skip

        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        ours = ("numba", "llvmlite", "numpy", "pip", "setuptools", "desopt")
        run(*pip, str(wheel))
        sizes = json.loads(run("-c", SIZES))
        beyond = {name: size for name, size in sizes.items() if name not in ours}
        total = sum(beyond.values()) / 1e6
        print(f"beside numba's, {len(beyond)} packages of {total:.0f} MB: {' '.join(beyond)}")
        assert len(beyond) <= PACKAGES, f"more than {PACKAGES} packages"
        assert total < MEGABYTES, f"more than {MEGABYTES} MB"
        print(run("-c", SMOKE), end="")
        run(*pip, f"{wheel}[sklearn,report]")
        print(run("-m", "desopt", "demo", "--quick", "--out", "demo"), end="")
        assert (place / "demo" / "demo.png").stat().st_size > 10_000


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
