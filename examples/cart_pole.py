"""A pole to balance: a policy trained by episodes, and a simulator that threads must not share.

The first is compiled; a minibatch is a set of episodes, drawn by a sampler. The second stands for
a program that cannot be changed: it keeps its state in global variables, so each value is computed
by a process of its own, and threads only wait for these.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import desopt
from desopt.objectives.control import CartPole

PROGRAM = """
import json
from math import cos, sin

state = [0.0, 0.0, 0.0, 0.0]  # global: two runs at once would spoil each other

def push(force):
    x, v, angle, turning = state
    common = (force + 0.05 * turning**2 * sin(angle)) / 1.1
    turn = (9.8 * sin(angle) - cos(angle) * common) / (0.5 * (4 / 3 - 0.1 * cos(angle) ** 2 / 1.1))
    state[0] += 0.02 * v
    state[1] += 0.02 * (common - 0.05 * turn * cos(angle) / 1.1)
    state[2] += 0.02 * turning
    state[3] += 0.02 * turn

policy = json.load(open("policy.json"))
lost = 0
for start in (-0.05, -0.02, 0.02, 0.05):
    state[:] = [start, 0.0, -start, start]
    for step in range(200):
        if abs(state[0]) > 2.4 or abs(state[2]) > 0.2094395102393195:
            lost += 200 - step
            break
        push(10.0 if sum(w * s for w, s in zip(policy.values(), state)) > 0 else -10.0)
print("lost", lost / 800)
"""


def main() -> None:
    task = CartPole(hidden=4, spread=0.1)
    x0 = 0.1 * np.random.default_rng(0).standard_normal(6 * task.hidden)
    result = desopt.minimize(
        task, x0, task.episodes, workers=4, rounds=20, iterations=50, batch_size=10
    )
    new = task.episodes(np.random.default_rng(1), 20)
    before, after = (np.mean([task.balanced(x, start) for start in new]) for x in (x0, result.x))
    print(f"steps balanced, of {task.limit}: {before:.0f} -> {after:.0f} in 20 new episodes")

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "pole.py")
        program.write_text(PROGRAM, encoding="utf-8")
        names = ["place", "speed", "angle", "turning"]
        with desopt.Command(
            [sys.executable, "-S", str(program)],
            variables=names, input="policy.json", value=r"lost (\S+)", timeout=30.0,
        ) as simulate:  # fmt: skip
            result = desopt.minimize(
                simulate, np.zeros(4), method="cma-es", max_evaluations=40, engine="threads"
            )
    print(f"by the program: share lost {result.initial_fun:.2f} -> {result.best_fun:.2f}")


if __name__ == "__main__":
    main()
