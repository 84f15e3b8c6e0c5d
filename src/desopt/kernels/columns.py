"""The columns of a batch that the steps of a round touch, collected in one pass.

The columns a round will touch are known from the random stream (at most K l of them), so they get
numbers ("slots"), and one pass over the batch computes the margins at x and collects the entries
of these columns. Nothing here is proportional to n: no copy of x, no map of columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from desopt.kernels.jit import EXACT, exact_inline
from desopt.kernels.lanes import WIDTH, load, store
from desopt.kernels.layouts import AHEAD, Dense, fetch_row, fill_margins

_U = np.uint64

_FILTER = 1 << 16  # bits
_EMPTY = _U(0xFFFFFFFFFFFFFFFF)
_LOW, _32 = _U(0xFFFFFFFF), _U(32)


class DenseColumns(NamedTuple):
    """``values[slot, i]`` is y_i z_i[column of slot]."""

    values: Any


class SparseColumns(NamedTuple):
    """Entries start[slot] to start[slot + 1] are (row, y value)."""

    start: Any
    row: Any
    value: Any


@exact_inline
def number_columns(index):
    """Give every distinct column in ``index`` a slot.

    Returns the slot of each entry, the column of each slot, and a hash table from columns to
    slots: entries column << 32 | slot, and a filter with a bit for each column that it may
    have. Columns are random, so their low bits are a good hash.
    """
    size = 1024
    while size < 4 * index.size:  # sparse: a probe that misses its guess costs more than room
        size *= 2
    last = _U(size - 1)
    entries = np.full(size, _EMPTY, np.uint64)
    seen = np.zeros(_FILTER // 64, np.uint64)
    columns = np.empty(index.size, np.int64)
    slot = np.empty_like(index)
    count = 0
    for k in range(index.shape[0]):
        for j in range(index.shape[1]):
            column = _U(index[k, j])
            at = column & last
            while entries[at] >> _32 != column and entries[at] != _EMPTY:
                at = (at + _U(1)) & last
            if entries[at] == _EMPTY:
                entries[at] = (column << _32) | _U(count)
                columns[count] = column
                bit = column & _U(_FILTER - 1)
                seen[bit >> _U(6)] |= _U(1) << (bit & _U(63))
                count += 1
            slot[k, j] = entries[at] & _LOW
    return slot, columns[:count], (entries, seen)


@exact_inline
def _may_have(seen, column):
    """1 if the column's bit is in the filter, else 0."""
    bit = column & _U(_FILTER - 1)
    return (seen[bit >> _U(6)] >> (bit & _U(63))) & _U(1)


def collect(layout, rows, y, x, columns, table):
    """The batch's margins at x, and the columns that have a slot."""


@overload(collect, jit_options=EXACT)
def _collect(layout, rows, y, x, columns, table):
    if layout.instance_class is Dense:

        def dense(layout, rows, y, x, columns, table):
            b, given = rows.size, layout.values
            margin = np.empty(b)
            fill_margins(layout, rows, y, x, margin)
            values = np.empty((columns.size, b))
            for first in range(0, b, 8):  # eight rows at a time: whole cache lines of ``values``
                last = min(first + 8, b)
                for c in range(columns.size):
                    j = columns[c]
                    for t in range(first, last):
                        values[c, t] = y[rows[t]] * given[rows[t], j]
            return margin, DenseColumns(values)

        return dense

    def csr(layout, rows, y, x, columns, table):
        indptr, indices, data = layout.indptr, layout.indices, layout.data
        entries, seen = table
        margin = np.empty(rows.size)
        # Entries that pass the filter, as (row << 32) + column, and their values: looked up all at
        # once afterwards, so that look-ups need not wait for each other.
        maybe = np.empty(4 * columns.size + 1024, np.uint64)
        value = np.empty(maybe.size)
        passed = _U(0)
        for i in range(rows.size):
            fetch_row(indptr, indices, data, rows[min(i + AHEAD, rows.size - 1)])
            begin, end = _U(indptr[rows[i]]), _U(indptr[rows[i] + 1])
            if passed + (end - begin) >= _U(maybe.size):
                least = np.int64(passed + (end - begin)) + 1
                maybe, value = _longer(maybe, least), _longer(value, least)
            # Two sums, so that one addition need not wait for the other, and no branch on the
            # filter: where the hits are cannot be predicted.
            of_row = _U(i) << _32
            pairs = begin + ((end - begin) & ~_U(1))
            even, odd = 0.0, 0.0
            for p in range(begin, pairs, _U(2)):
                one, two = _U(indices[p]), _U(indices[p + _U(1)])
                even += data[p] * x[one]
                odd += data[p + _U(1)] * x[two]
                maybe[passed], value[passed] = of_row | one, data[p]
                passed += _may_have(seen, one)
                maybe[passed], value[passed] = of_row | two, data[p + _U(1)]
                passed += _may_have(seen, two)
            if pairs != end:
                one = _U(indices[pairs])
                even += data[pairs] * x[one]
                maybe[passed], value[passed] = of_row | one, data[pairs]
                passed += _may_have(seen, one)
            margin[i] = y[rows[i]] * (even + odd)
        return margin, _look_up(maybe[: np.int64(passed)], value, rows, y, entries, columns)

    return csr


@exact_inline
def _longer(array, least):
    """The same array with room for at least this much."""
    out = np.empty(max(2 * array.size, least), array.dtype)
    for j in range(array.size):  # a slice assignment would take seconds to compile
        out[j] = array[j]
    return out


@exact_inline
def _look_up(maybe, value, rows, y, entries, columns):
    """The entries whose column has a slot, sorted by slot, their values times the labels."""
    last = _U(entries.size - 1)
    slot = np.empty(maybe.size, np.int32)
    start = np.zeros(columns.size + 1, np.uint64)
    for t in range(maybe.size):
        column = maybe[t] & _LOW
        at = column & last
        entry = entries[at]
        while entry >> _32 != column and entry != _EMPTY:
            at = (at + _U(1)) & last
            entry = entries[at]
        if entry == _EMPTY:
            slot[t] = -1
        else:
            slot[t] = entry & _LOW
            start[(entry & _LOW) + _U(1)] += _U(1)
    for s in range(columns.size):
        start[s + 1] += start[s]
    fill = start[:-1].copy()
    row = np.empty(np.int64(start[-1]), np.uint32)
    signed = np.empty(row.size)
    for t in range(maybe.size):
        if slot[t] >= 0:
            at = fill[_U(slot[t])]
            fill[_U(slot[t])] += _U(1)
            row[at] = maybe[t] >> _32
            signed[at] = y[rows[_U(row[at])]] * value[t]
    return SparseColumns(start, row, signed)


def shift_margins(columns, slots, changes, count, margin, out):
    """out = margin + sum_c changes[c] column_slots[c], c < count, added in this order."""


@overload(shift_margins, jit_options=EXACT)
def _shift_margins(columns, slots, changes, count, margin, out):
    if columns.instance_class is DenseColumns:

        def dense(columns, slots, changes, count, margin, out):
            values, b = columns.values, margin.size
            whole = b // WIDTH * WIDTH
            for i in range(0, whole, WIDTH):
                lanes = load(margin, i)
                for c in range(count):
                    lanes = lanes + changes[c] * load(values, slots[c] * b + i)
                store(out, i, lanes)
            for i in range(whole, b):
                out[i] = margin[i]
                for c in range(count):
                    out[i] += changes[c] * values[slots[c], i]

        return dense

    def sparse(columns, slots, changes, count, margin, out):
        start, row, value = columns.start, columns.row, columns.value
        for i in range(margin.size):
            out[i] = margin[i]
        for c in range(count):
            s, change = _U(slots[c]), changes[c]
            for p in range(start[s], start[s + _U(1)]):
                out[row[p]] += change * value[p]

    return sparse
