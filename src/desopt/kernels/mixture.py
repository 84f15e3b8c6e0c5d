"""The (1+1) search with mixture mutations on a linear model: O(l) coordinates per step.

A step of l coordinates changes only the margins of the rows that have those columns. The
columns a round will touch are known from the random stream (at most K l of them), so they get
numbers ("slots"), and one pass over the batch computes the margins at x and collects the
entries of these columns. Nothing here is proportional to n: no copy of x, no map of columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from desopt.jit import FUSED, exact
from desopt.kernels.layouts import Dense
from desopt.kernels.losses import CHUNK, fill_losses, sum_losses
from desopt.kernels.steps import apply_row, undo_row

_U = np.uint64

_FILTER = 1 << 16  # bits


class DenseColumns(NamedTuple):
    """``values[slot, i]`` is y_i z_i[column of slot]."""

    values: Any


class SparseColumns(NamedTuple):
    """Entries start[slot] to start[slot + 1] are (row, y value)."""

    start: Any
    row: Any
    value: Any


@exact
def number_columns(index):
    """Give every distinct column in ``index`` a slot.

    Returns the slot of each entry, the column of each slot, and a hash table (keys, slots,
    filter) from columns to slots. Columns are random, so their low bits are a good hash.
    """
    size = 1024
    while size < 2 * index.size:
        size *= 2
    keys = np.full(size, -1, np.int64)
    slots = np.empty(size, np.int32)
    seen = np.zeros(_FILTER // 64, np.uint64)
    columns = np.empty(index.size, np.int64)
    slot = np.empty(index.shape, np.int32)
    count = 0
    for k in range(index.shape[0]):
        for j in range(index.shape[1]):
            column = index[k, j]
            at = _U(column & (size - 1))
            while keys[at] != column and keys[at] >= 0:
                at = (at + _U(1)) & _U(size - 1)
            if keys[at] < 0:
                keys[at] = column
                slots[at] = count
                columns[count] = column
                bit = column & (_FILTER - 1)
                seen[_U(bit >> 6)] |= _U(1) << _U(bit & 63)
                count += 1
            slot[k, j] = slots[at]
    return slot, columns[:count], (keys, slots, seen)


def collect(layout, rows, y, x, columns, table):
    """The batch's margins at x, and the columns that have a slot."""


@overload(collect, jit_options=FUSED)
def _collect(layout, rows, y, x, columns, table):
    if layout.instance_class is Dense:

        def dense(layout, rows, y, x, columns, table):
            b = rows.size
            margin = np.zeros(b)
            values = np.empty((columns.size, b))
            for first in range(0, b, 8):  # eight rows at a time: whole cache lines of ``values``
                last = min(first + 8, b)
                for c in range(columns.size):
                    for i in range(first, last):
                        values[c, i] = y[rows[i]] * layout.values[rows[i], columns[c]]
                for i in range(first, last):
                    total = 0.0
                    for j in range(x.size):
                        total += layout.values[rows[i], j] * x[j]
                    margin[i] = y[rows[i]] * total
            return margin, DenseColumns(values)

        return dense

    def csr(layout, rows, y, x, columns, table):
        keys, slots, seen = table
        last_key = _U(keys.size - 1)
        margin = np.empty(rows.size)
        found = 0
        hit_slot = np.empty(4 * columns.size + 64, np.int32)
        hit_row = np.empty(hit_slot.size, np.int32)
        hit_value = np.empty(hit_slot.size)
        for i in range(rows.size):
            begin, end = layout.indptr[rows[i]], layout.indptr[rows[i] + 1]
            if found + (end - begin) > hit_slot.size:
                hit_slot = _longer(hit_slot, found + (end - begin))
                hit_row = _longer(hit_row, hit_slot.size)
                hit_value = _longer(hit_value, hit_slot.size)
            total = 0.0
            for p in range(begin, end):
                column = _U(layout.indices[p])
                total += layout.data[p] * x[column]
                bit = column & _U(_FILTER - 1)
                if (seen[bit >> _U(6)] >> (bit & _U(63))) & _U(1):
                    at = column & last_key
                    while keys[at] != layout.indices[p] and keys[at] >= 0:
                        at = (at + _U(1)) & last_key
                    if keys[at] >= 0:
                        hit_slot[found] = slots[at]
                        hit_row[found] = i
                        hit_value[found] = y[rows[i]] * layout.data[p]
                        found += 1
            margin[i] = y[rows[i]] * total
        return margin, _by_slot(hit_slot[:found], hit_row, hit_value, columns.size)

    return csr


@exact
def _longer(array, least):
    """The same array with room for at least this much."""
    out = np.empty(max(2 * array.size, least), array.dtype)
    for j in range(array.size):  # a slice assignment would take seconds to compile
        out[j] = array[j]
    return out


@exact
def _by_slot(slot, hit_row, hit_value, count):
    """Sort the hits by slot, keeping the order of rows."""
    start = np.zeros(count + 1, np.int64)
    for s in slot:
        start[s + 1] += 1
    for s in range(count):
        start[s + 1] += start[s]
    fill = start[:-1].copy()
    row = np.empty(slot.size, np.uint32)
    value = np.empty(slot.size)
    for h in range(slot.size):
        at = _U(fill[slot[h]])
        fill[slot[h]] += 1
        row[at] = hit_row[h]
        value[at] = hit_value[h]
    return SparseColumns(start, row, value)


@exact
def search_touched(columns, margin, values, slot, step, kind, penalty, accepted):
    """The search where a step touches few rows: only their losses are computed anew.

    ``values`` are the coordinates of v that have slots; a rejected step restores them. Returns
    the number of undecidable (NaN) steps.
    """
    b, l = margin.size, slot.shape[1]
    cost = np.empty(b)
    fill_losses(kind, margin, cost, b)
    drawn = np.full(values.size, -1, np.int64)
    stamp = np.full(b, -1, np.int64)
    place = np.empty(b, np.int64)  # where a touched row stands in the three lists below
    touched = np.empty(b, np.uint32)
    new_margin = np.zeros(b + CHUNK)
    new_cost = np.empty(b + CHUNK)
    old = np.empty(l)
    nans = 0
    for k in range(slot.shape[0]):
        count = 0
        penalty_change = 0.0
        apply_row(values, slot, step, k, old)
        for j in range(l):
            s = _U(slot[k, j])
            if drawn[s] == k:  # again: its whole change was counted the first time
                continue
            drawn[s] = k
            change = values[s] - old[j]
            penalty_change += change * (values[s] + old[j])
            for p in range(columns.start[s], columns.start[s + _U(1)]):
                i = columns.row[p]
                if stamp[i] != k:
                    stamp[i] = k
                    place[i] = count
                    touched[count] = i
                    new_margin[count] = margin[i]
                    count += 1
                new_margin[_U(place[i])] += change * columns.value[p]
        fill_losses(kind, new_margin, new_cost, (count + CHUNK - 1) // CHUNK * CHUNK)
        loss_change = 0.0
        for t in range(count):
            loss_change += new_cost[t] - cost[touched[t]]
        total_change = loss_change / b + 0.5 * penalty * penalty_change
        if total_change <= 0.0:
            accepted[k] = True
            for t in range(count):
                margin[touched[t]] = new_margin[t]
                cost[touched[t]] = new_cost[t]
        else:
            nans += total_change != total_change
            undo_row(values, slot, k, old)
    return nans


def add_column(columns, s, change, margin):
    """margin += change column_s."""


@overload(add_column, jit_options=FUSED)
def _add_column(columns, s, change, margin):
    if columns.instance_class is DenseColumns:

        def dense(columns, s, change, margin):
            for i in range(margin.size):
                margin[i] += change * columns.values[s, i]

        return dense

    def sparse(columns, s, change, margin):
        for p in range(columns.start[s], columns.start[s + 1]):
            margin[columns.row[p]] += change * columns.value[p]

    return sparse


@exact
def search_all_rows(columns, margin, values, slot, step, kind, penalty, accepted):
    """The search where a step touches many rows: all losses are computed, in SIMD."""
    b, l = margin.size, slot.shape[1]
    total = sum_losses(kind, margin)
    trial = np.empty(b)
    drawn = np.full(values.size, -1, np.int64)
    old = np.empty(l)
    nans = 0
    for k in range(slot.shape[0]):
        for i in range(b):
            trial[i] = margin[i]
        penalty_change = 0.0
        apply_row(values, slot, step, k, old)
        for j in range(l):
            s = slot[k, j]
            if drawn[s] == k:
                continue
            drawn[s] = k
            change = values[s] - old[j]
            penalty_change += change * (values[s] + old[j])
            add_column(columns, s, change, trial)
        new_total = sum_losses(kind, trial)
        total_change = (new_total - total) / b + 0.5 * penalty * penalty_change
        if total_change <= 0.0:
            accepted[k] = True
            margin, trial, total = trial, margin, new_total
        else:
            nans += total_change != total_change
            undo_row(values, slot, k, old)
    return nans


def run_search(columns, margin, values, slot, step, kind, penalty, accepted):
    """The search that suits the columns."""


@overload(run_search, jit_options=FUSED)
def _run_search(columns, margin, values, slot, step, kind, penalty, accepted):
    if columns.instance_class is DenseColumns:
        return lambda columns, margin, values, slot, step, kind, penalty, accepted: search_all_rows(
            columns, margin, values, slot, step, kind, penalty, accepted
        )

    def sparse(columns, margin, values, slot, step, kind, penalty, accepted):
        rows_per_step = slot.shape[1] * columns.row.size / values.size
        if 4.0 * rows_per_step > margin.size:
            return search_all_rows(columns, margin, values, slot, step, kind, penalty, accepted)
        return search_touched(columns, margin, values, slot, step, kind, penalty, accepted)

    return sparse


@exact
def search_mixture(layout, rows, y, x, index, step, kind, penalty, accepted):
    """K steps of l coordinates from x. Returns (NaN steps, touched columns, v there)."""
    slot, columns, table = number_columns(index)
    margin, collected = collect(layout, rows, y, x, columns, table)
    values = np.empty(columns.size)
    for c in range(columns.size):
        values[c] = x[columns[c]]
    nans = run_search(collected, margin, values, slot, step, kind, penalty, accepted)
    return nans, columns, values


@exact
def displace_mixture(total, x, index, step, accepted):
    """total += v_K - x, where v_K is x after the accepted steps; costs O(K l)."""
    slot, columns, _table = number_columns(index)
    values = np.empty(columns.size)
    for c in range(columns.size):
        values[c] = x[columns[c]]
    for k in range(index.shape[0]):
        if accepted[k]:
            for j in range(index.shape[1]):
                values[slot[k, j]] += step[k, j]
    for c in range(columns.size):
        total[columns[c]] += values[c] - x[columns[c]]
