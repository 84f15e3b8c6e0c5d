"""Stop a run in the middle, resume it from its journal, and get the same bits.

The journal holds the workers' answers, but no point. x is rebuilt from them, after the last round
or any other.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import desopt


def main() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2_000, 1_000))
    labels = np.sign(rows @ rng.standard_normal(1_000) + rng.standard_normal(2_000))

    def run(journal: Path | None = None, callbacks: Any = ()) -> Any:
        return desopt.minimize(
            "lr",
            None,
            (rows, labels),
            rounds=40,
            iterations=100,
            batch_size=200,
            step_size=0.1,
            journal=journal,
            callbacks=callbacks,
        )

    whole = run()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        half = run(path, callbacks=[lambda row: row["round"] == 15])
        print(f"stopped after {half.nit} rounds: {half.message}")
        print(f"journal: {path.stat().st_size:,} bytes; one copy of x would be {half.x.nbytes:,}")

        resumed = run(path)
        print(f"resumed and finished after {resumed.nit} rounds, loss {resumed.fun:.6f}")

        same = resumed.x.tobytes() == whole.x.tobytes()
        back = desopt.replay(path, round=15).tobytes() == half.x.tobytes()
    print(f"same bits as the uninterrupted run: {same}; round 15 replayed exactly: {back}")
    if not (same and back):
        raise SystemExit("the runs differ")


if __name__ == "__main__":
    main()
