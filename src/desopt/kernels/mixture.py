"""The (1+1) search with mixture mutations on a linear model: O(l) coordinates per step.

A step of l coordinates changes only the margins of the rows that have those columns
(``kernels.columns``).

``box`` is None or (lower, upper). A step out of it is projected. ``tilt`` is None or what
``kernels.correction`` adds to the comparisons. ``scored`` is None or what ``kernels.scores`` needs
besides margins. With None, no code is compiled for any of them.
"""

from __future__ import annotations

import math

import numpy as np
from numba.core.types import BaseTuple
from numba.extending import overload

from desopt.kernels.columns import DenseColumns, collect, number_columns, shift_margins
from desopt.kernels.jit import EXACT, exact, exact_inline
from desopt.kernels.lanes import WIDTH
from desopt.kernels.layouts import take_members
from desopt.kernels.losses import fill_losses
from desopt.kernels.lowlevel import prefetch
from desopt.kernels.philox import draw_mixture, fill_integers
from desopt.kernels.scores import sum_batch
from desopt.kernels.steps import apply_row, project_row, undo_row

_U = np.uint64

#: Returned by a search that did not start, since the value at x is not finite: changes of an
#: infinite value mean nothing.
UNSEARCHED = -1

_UNTOUCHED = _U(0xFFFFFFFFFFFFFFFF)
_LOW, _32 = _U(0xFFFFFFFF), _U(32)
_AHEAD = 2  # steps whose estimates are asked for before they are needed


@exact
def search_touched(
    columns, margin, values, slot, step, kind, penalty, accepted, box=None, tilt=None
):  # fmt: skip
    """The search where a step touches few rows: only their losses are computed anew.

    ``values`` are the coordinates of v that have slots; a rejected step restores them. The value
    at x is finite. Returns the number of values that are not.
    """
    b, l = margin.size, slot.shape[1]
    cost = np.empty(b)
    fill_losses(kind, margin, cost, b)
    drawn = np.full(values.size, -1, np.int64)
    # Which step touched a row last, and where it then stands in the three lists below.
    tag = np.full(b, _UNTOUCHED, np.uint64)
    touched = np.empty(b, np.uint32)
    new_margin = np.zeros(b + WIDTH)
    new_cost = np.empty(b + WIDTH)
    old = np.empty(l)
    start, row, value = columns.start, columns.row, columns.value
    nans = 0
    for k in range(slot.shape[0]):
        count = _U(0)
        penalty_change = 0.0
        apply_row(values, slot, step, k, old)
        if box is not None:
            project_row(values, slot, k, box)
        for j in range(l):
            s = _U(slot[k, j])
            if drawn[s] == k:  # again: its whole change was counted the first time
                continue
            drawn[s] = k
            change = values[s] - old[j]
            penalty_change += change * (values[s] + old[j])
            for p in range(start[s], start[s + _U(1)]):
                i = row[p]
                if tag[i] >> _32 != _U(k):
                    tag[i] = (_U(k) << _32) | count
                    touched[count] = i
                    new_margin[count] = margin[i] + change * value[p]
                    count += _U(1)
                else:
                    new_margin[tag[i] & _LOW] += change * value[p]
        fill_losses(kind, new_margin, new_cost, (np.int64(count) + WIDTH - 1) // WIDTH * WIDTH)
        loss_change = 0.0
        for t in range(count):
            loss_change += new_cost[t] - cost[touched[t]]
        total_change = loss_change / b + 0.5 * penalty * penalty_change
        decisive, stays = total_change, False
        if tilt is not None:
            decisive, stays = tilted(tilt, slot, k, old, total_change)
        if decisive <= 0.0:
            accepted[k] = True
        if decisive <= 0.0 and not stays:
            for t in range(count):
                margin[touched[t]] = new_margin[t]
                cost[touched[t]] = new_cost[t]
        else:
            nans += not np.isfinite(total_change)
            undo_row(values, slot, k, old)
    return nans


@exact_inline
def tilted(tilt, slot, k, old, change):
    """The change of f_i + c^T v + mu/2 ||v - x||^2 by step k, and whether v stays in any case.

    ``old`` are the values that the step replaced, in the order of its coordinates. Leaves the
    change of f_i.
    """
    linear, x, step, mu, stays, differences = tilt
    differences[k] = change
    away = 0.0
    for j in range(slot.shape[1]):
        s, u = _U(slot[k, j]), step[k, j]
        away += u * ((old[j] - x[s]) + (old[j] + u - x[s]))
    return change + (linear[k] + 0.5 * mu * away), stays


@exact
def search_all_rows(
    columns, margin, values, slot, step, kind, penalty, accepted, box=None, tilt=None, scored=None
):  # fmt: skip
    """The search where a step touches many rows: all losses are computed."""
    b, l = margin.size, slot.shape[1]
    total = sum_batch(kind, margin, scored)
    trial = np.empty(b)
    drawn = np.full(values.size, -1, np.int64)
    old, changes = np.empty(l), np.empty(l)
    slots = np.empty(l, np.int64)
    nans = 0
    for k in range(slot.shape[0]):
        count = 0
        penalty_change = 0.0
        apply_row(values, slot, step, k, old)
        if box is not None:
            project_row(values, slot, k, box)
        for j in range(l):
            s = slot[k, j]
            if drawn[s] == k:
                continue
            drawn[s] = k
            change = values[s] - old[j]
            penalty_change += change * (values[s] + old[j])
            slots[count], changes[count] = s, change
            count += 1
        shift_margins(columns, slots, changes, count, margin, trial)
        new_total = sum_batch(kind, trial, scored)
        total_change = (new_total - total) / b + 0.5 * penalty * penalty_change
        decisive, stays = total_change, False
        if tilt is not None:
            decisive, stays = tilted(tilt, slot, k, old, total_change)
        if decisive <= 0.0:
            accepted[k] = True
        if decisive <= 0.0 and not stays:
            margin, trial, total = trial, margin, new_total
        else:
            nans += not np.isfinite(total_change)
            undo_row(values, slot, k, old)
    return nans


def run_search(columns, margin, values, slot, step, kind, penalty, accepted, box, tilt, scored):
    """The search that suits the columns and the loss."""


@overload(run_search, jit_options=EXACT, inline="always")
def _run_search(columns, margin, values, slot, step, kind, penalty, accepted, box, tilt, scored):
    # A loss of the whole batch, or with weights, is computed from all of its rows.
    if columns.instance_class is DenseColumns or isinstance(scored, BaseTuple):

        def every(columns, margin, values, slot, step, kind, penalty, accepted, box, tilt, scored):
            return search_all_rows(
                columns, margin, values, slot, step, kind, penalty, accepted, box, tilt, scored
            )

        return every

    def sparse(columns, margin, values, slot, step, kind, penalty, accepted, box, tilt, scored):
        rows_per_step = slot.shape[1] * columns.row.size / values.size
        if 4.0 * rows_per_step > margin.size:
            return search_all_rows(
                columns, margin, values, slot, step, kind, penalty, accepted, box, tilt
            )
        return search_touched(
            columns, margin, values, slot, step, kind, penalty, accepted, box, tilt
        )

    return sparse


def box_at(box, columns):
    """The box of the columns that have slots."""


@overload(box_at, jit_options=EXACT, inline="always")
def _box_at(box, columns):
    if not isinstance(box, BaseTuple):
        return lambda box, columns: None

    def gather(box, columns):
        lower, upper = np.empty(columns.size), np.empty(columns.size)
        for c in range(columns.size):
            lower[c], upper[c] = box[0][columns[c]], box[1][columns[c]]
        return lower, upper

    return gather


def tilt_at(tilt, index, step, values):
    """The tilt of every step, where v starts at these values; and the changes of f_i expected."""


@overload(tilt_at, jit_options=EXACT, inline="always")
def _tilt_at(tilt, index, step, values):
    if not isinstance(tilt, BaseTuple):
        return lambda tilt, index, step, values: None

    def of_steps(tilt, index, step, values):
        g, delta, h, gain, of_g, of_h, mu, stays, alpha, differences, expected = tilt
        linear = np.empty(step.shape[0])
        for k in range(step.shape[0]):
            if k + _AHEAD < step.shape[0]:
                for j in range(step.shape[1]):
                    ahead = index[k + _AHEAD, j]
                    prefetch(g, ahead)
                    prefetch(delta, ahead)
                    if of_h != 0.0:
                        prefetch(h, ahead)
            of_c, slope, even = 0.0, 0.0, 0.0
            for j in range(step.shape[1]):
                r, u = _U(index[k, j]), step[k, j]
                of_c += (gain * g[r] - delta[r]) * u
                slope += (of_g * g[r] + delta[r]) * u
                if of_h != 0.0:
                    even += of_h * h[r] * abs(u)
            linear[k] = of_c
            expected[k] = slope + math.sqrt(alpha[k]) * even
        return linear, values.copy(), step, mu, stays, differences

    return of_steps


@exact
def search_mixture(
    layout, members, size, b, rows_key, y, x, scale, l, gaussian, kind, penalty, accepted, key,
    first, box=None, tilt=None, scored=None,
):  # fmt: skip
    """Steps of l coordinates from x, on b rows drawn from the members (b = 0: on all of them).

    The first step is that of iteration ``first``. Rows and steps are drawn here: a worker's round
    is one call without the GIL. Returns the number of values that are not finite (or UNSEARCHED),
    the touched columns, v there, and v - x there.
    """
    rows = members
    if b > 0:
        rows = np.empty(b, np.int64)
        fill_integers(rows, size, *rows_key)
        take_members(members, rows, rows)
    iterations = np.empty(scale.size, np.int64)
    for k in range(scale.size):  # np.arange would take half a second to compile
        iterations[k] = first + k
    c1, c2, c3, k0, k1 = key
    index, step = draw_mixture(iterations, scale, l, x.size, gaussian, c1, c2, c3, k0, k1)
    accepted[:] = False
    slot, columns, table = number_columns(index)
    margin, collected = collect(layout, rows, y, x, columns, table)
    values = np.empty(columns.size)
    for c in range(columns.size):
        values[c] = x[columns[c]]
    nans = np.int64(UNSEARCHED)
    if np.isfinite(sum_batch(kind, margin, scored)):
        of_slots = box_at(box, columns)
        found = run_search(
            collected, margin, values, slot, step, kind, penalty, accepted, of_slots,
            tilt_at(tilt, index, step, values), scored,
        )  # fmt: skip
        nans = np.int64(found)
    change = np.empty(columns.size)
    for c in range(columns.size):
        change[c] = values[c] - x[columns[c]]
    return nans, columns, values, change


@exact
def mixture_change(x, index, step, box):
    """The columns that these steps touch, and v_K - x there; costs O(K l)."""
    slot, columns, _table = number_columns(index)
    of_slots = box_at(box, columns)
    change = np.empty(columns.size)
    for c in range(columns.size):
        change[c] = x[columns[c]]
    for k in range(index.shape[0]):
        for j in range(index.shape[1]):
            change[slot[k, j]] += step[k, j]
        if box is not None:
            project_row(change, slot, k, of_slots)
    for c in range(columns.size):
        change[c] -= x[columns[c]]
    return columns, change


@exact
def mixture_changes(x, scale, l, gaussian, box, masks, workers, c1, c3, k0, k1):
    """``mixture_change`` by the accept bits of several workers, masks[i] those of workers[i].

    Returns all columns and changes, and where each worker's end. Only accepted steps are drawn.
    """
    accepted = np.zeros(masks.shape[0] + 1, np.int64)
    for i in range(masks.shape[0]):
        for k in range(scale.size):
            accepted[i] += (masks[i, k >> 3] >> (k & 7)) & 1
    columns, changes = np.empty(accepted.sum() * l, np.int64), np.empty(accepted.sum() * l)
    ends = np.zeros(masks.shape[0], np.int64)
    end = 0
    for i in range(masks.shape[0]):
        which, of_which = np.empty(accepted[i], np.int64), np.empty(accepted[i])
        count = 0
        for k in range(scale.size):
            if (masks[i, k >> 3] >> (k & 7)) & 1:
                which[count], of_which[count] = k, scale[k]
                count += 1
        worker = np.uint64(workers[i])
        index, step = draw_mixture(which, of_which, l, x.size, gaussian, c1, worker, c3, k0, k1)
        column, change = mixture_change(x, index, step, box)
        for c in range(column.size):
            columns[end + c], changes[end + c] = column[c], change[c]
        end += column.size
        ends[i] = end
    return columns[:end], changes[:end], ends
