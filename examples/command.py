"""Any program as a function: parameters in a file, the value in its output, crashes and hangs.

The program here simulates a damped oscillator, in a file of its own. For some parameters it
crashes, for some it hangs: these trials fail, and the search goes on without them.
"""

import sys
import tempfile
from pathlib import Path

import desopt

PROGRAM = """
import json, sys, time

p = json.load(open("params.json"))
stiffness, damping = p["stiffness"], p["damping"]
if stiffness <= 0:
    sys.exit("stiffness must be positive")
if damping < 0:
    time.sleep(1000)  # it swings for ever
position, speed, error = 1.0, 0.0, 0.0
for step in range(400):
    speed -= 0.02 * (stiffness * position + damping * speed)
    position += 0.02 * speed
    error += 0.02 * (position**2 + 0.1 * speed**2)
print("steps 400")
print(f"error {error!r}")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "simulate.py")
        program.write_text(PROGRAM, encoding="utf-8")
        with desopt.Command(
            [sys.executable, "-S", str(program)],
            variables=["stiffness", "damping"],
            input="params.json",  # {"stiffness": ..., "damping": ...}
            value=r"error (\S+)",  # the last match in its output
            timeout=1.0,  # seconds, after which it is killed with all that it has started
        ) as simulate:
            for x in ([-1.0, 0.1], [1.0, -0.1]):
                try:
                    simulate(x)
                except desopt.Failed as failure:
                    print(f"{x}: {failure.reason}")
            result = desopt.minimize(
                simulate, [1.0, 0.1], method="es", workers=1, rounds=1, iterations=30,
                step_size=0.5, engine="serial",
            )  # fmt: skip
        print(f"error  {result.initial_fun:.3f} -> {result.fun:.3f}, {result.nfev} programs run")


if __name__ == "__main__":
    main()
