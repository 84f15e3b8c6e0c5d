"""A pole on a cart, pushed left or right by a policy: the steps until it falls.

The equations are those of Barto, Sutton and Anderson (1983), with Euler steps of 0.02 s, as every
benchmark has them. Sines are polynomials: a fall must not depend on a library's last bit.
"""

from __future__ import annotations

from desopt.kernels.jit import exact

GRAVITY, FORCE, STEP = 9.8, 10.0, 0.02
CART, POLE, HALF_LENGTH = 1.0, 0.1, 0.5
#: Where an episode ends: metres from the middle, and 12 degrees.
FAR, TILTED = 2.4, 0.20943951023931953


@exact
def sine_and_cosine(angle):
    """For angles below 0.5, to 1e-16."""
    square, sine, cosine = angle * angle, 1.0, 1.0
    for i in range(14, 0, -2):  # 1 - a^2/(2 3) (1 - a^2/(4 5) (...)), and likewise
        sine = 1.0 - sine * square / (i * (i + 1))
        cosine = 1.0 - cosine * square / (i * (i - 1))
    return angle * sine, cosine


@exact
def push(x, hidden, state):
    """What the policy says: a number above 0 is a push to the right.

    Linear in the state, or with a layer of hidden units z / (1 + |z|): five numbers for the input
    of each, then one for its output.
    """
    if hidden == 0:
        return x[0] * state[0] + x[1] * state[1] + x[2] * state[2] + x[3] * state[3]
    total = 0.0
    for h in range(hidden):
        z = x[5 * h + 4]
        for j in range(4):
            z += x[5 * h + j] * state[j]
        total += x[5 * hidden + h] * (z / (1.0 + abs(z)))
    return total


@exact
def steps_balanced(x, hidden, start, limit):
    """Steps from this state (place, speed, angle, its speed) until the end, at most ``limit``."""
    place, speed, angle, turning = start[0], start[1], start[2], start[3]
    mass, moment = CART + POLE, POLE * HALF_LENGTH
    for step in range(limit):
        if not (abs(place) <= FAR and abs(angle) <= TILTED):
            return step
        force = FORCE if push(x, hidden, (place, speed, angle, turning)) > 0.0 else -FORCE
        sine, cosine = sine_and_cosine(angle)
        common = (force + moment * turning * turning * sine) / mass
        turn = (GRAVITY * sine - cosine * common) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE * cosine * cosine / mass)
        )
        pull = common - moment * turn * cosine / mass
        place += STEP * speed
        speed += STEP * pull
        angle += STEP * turning
        turning += STEP * turn
    return limit


@exact
def mean_lost(x, hidden, starts, limit):
    """The mean share of the steps that episodes lost: 0 where no pole fell."""
    balanced = 0
    for i in range(starts.shape[0]):
        balanced += steps_balanced(x, hidden, starts[i], limit)
    return 1.0 - balanced / (limit * starts.shape[0])
