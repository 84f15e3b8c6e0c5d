"""The step sizes of the (1+1) searches: the paper's, or found and followed by accept bits alone.

A method has a *schedule*, made by ``schedule_of``: ``Fixed`` for a number, ``Auto`` for
``step_size="auto"``. It uses them alike::

    init:    State(0, x0, ..., **schedule.start(x0))       # Auto: the fields of Adapted
    plan:    Task(round, x, schedule.scalars(state))       # Auto: the level log2(alpha)
    search:  schedule.search(task, worker, part)           # part makes a OnePlusOne
    merge:   proposals = schedule.proposals(round, scalars, worker, n)
             tally = schedule.tally(state, n)
             answers = tally.of(answers, change)           # counts them as they pass
             State(..., **tally.outcome(total))            # total: the sum of v_i - x

With "auto" a method's state has the fields of ``Adapted`` beside its own. All of it is decided by
the answers, so that replays need nothing else, and an answer is K bits as ever.
"""

from desopt.methods.step_size.ramp import RAMP
from desopt.methods.step_size.schedules import AUTO, Fixed, schedule_of
from desopt.methods.step_size.sizes import decreasing
from desopt.methods.step_size.tally import Adapted

__all__ = ["AUTO", "RAMP", "Adapted", "Fixed", "decreasing", "schedule_of"]
