"""Lines of LIBSVM text to numbers: ``label [qid:q] index:value ...  # comment``.

The text is bytes that end in a newline, so no loop needs to look for the end of the buffer.
Numbers are correctly rounded. m 10^e with m <= 2^53 and abs(e) <= 22 is one multiplication or
division of exact numbers. Up to 19 digits and abs(e) <= 64 are multiplied with twice the
precision, which nearly always tells how to round. The places of all other numbers are noted,
for Python's ``float``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from desopt.kernels.jit import exact

# What was expected where parsing stopped; the messages are in desopt.data.libsvm.
(FINE, LABEL, SPACE, INDEX, COLON, VALUE, ZERO, LARGE, REPEATED, UNSORTED, QUERY) = range(11)

MAX_INDEX = 2**31 - 1

_TAB, _NEWLINE, _RETURN, _BLANK, _HASH = 9, 10, 13, 32, 35
_PLUS, _MINUS, _POINT, _COLON, _UPPER_E, _E, _Q = 43, 45, 46, 58, 69, 101, 113
_POWERS = np.array([float(f"1e{k}") for k in range(23)])
_TEN, _LARGEST = np.uint64(10), np.uint64(2**53)
_WIDE = 64
_HIGH = np.array([float(Fraction(10) ** e) for e in range(-_WIDE, _WIDE + 1)])  # 10^e and what
_REST = np.array([float(Fraction(10) ** e - Fraction(_HIGH[e + _WIDE]))  # rounding left of it
                  for e in range(-_WIDE, _WIDE + 1)])  # fmt: skip
_FAR = 100_000  # beyond any exponent of float64, well before an overflow


@exact
def _digit(c):
    """The digit's value, or something above 9."""
    return np.uint64(np.uint8(c - np.uint8(48)))


@exact
def _digits(text, at, mantissa, significant):
    """Read digits: (where they end, the mantissa, its digits, how many found no room)."""
    dropped = 0
    digit = _digit(text[at])
    while digit < _TEN:
        if significant < 19:
            mantissa = mantissa * _TEN + digit
            significant += mantissa != 0
        else:
            dropped += 1
        at += 1
        digit = _digit(text[at])
    return at, mantissa, significant, dropped


@exact
def _exponent(text, at):
    """Read what follows an e: (where it ends, the exponent); it ends at ``at`` if malformed."""
    first = at
    sign = text[at]
    if sign in (_MINUS, _PLUS):
        first += 1
    end, exponent = first, 0
    digit = _digit(text[end])
    while digit < _TEN:
        if exponent < _FAR:
            exponent = exponent * 10 + int(digit)
        end += 1
        digit = _digit(text[end])
    if end == first:
        return at, 0
    return end, -exponent if sign == _MINUS else exponent


@exact
def _halves(a):
    """a = high + low with 26 bits each (Veltkamp), so that products of halves are exact."""
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high


@exact
def _scaled(mantissa, exponent):
    """mantissa 10^exponent in twice the precision: (the nearest float64, whether it is sure)."""
    m = np.float64(mantissa)
    m_rest = np.float64(np.int64(mantissa - np.uint64(m)))
    p, p_rest = _HIGH[exponent + _WIDE], _REST[exponent + _WIDE]
    m_high, m_low = _halves(m)
    p_high, p_low = _halves(p)
    product = m * p
    rest = ((m_high * p_high - product) + m_high * p_low + m_low * p_high) + m_low * p_low
    rest += m * p_rest + m_rest * p
    value = product + rest
    rest -= value - product
    error = value * 2.0**-98  # several times more than all the roundings above
    return value, value + (rest + error) == value and value + (rest - error) == value


@exact
def number(text, at):
    """Read a decimal number: (where it ends, its value, whether the value is exact).

    It ends where it began if there is none.
    """
    start = at
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    first = at
    at, mantissa, significant, dropped = _digits(text, at, np.uint64(0), 0)
    exponent, count = dropped, at - first
    if text[at] == _POINT:
        first = at + 1
        at, mantissa, significant, more = _digits(text, first, mantissa, significant)
        count += at - first
        exponent -= at - first - more
        dropped += more
    if count == 0:
        return start, 0.0, True
    if text[at] == _E or text[at] == _UPPER_E:
        end, written = _exponent(text, at + 1)
        if end == at + 1:
            return start, 0.0, True
        at = end
        exponent += written
    value, known = 0.0, mantissa == 0
    if not known and dropped == 0 and -_WIDE <= exponent <= _WIDE:
        if mantissa <= _LARGEST and -22 <= exponent <= 22:
            known, value = True, np.float64(mantissa)
            value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
        else:
            value, known = _scaled(mantissa, exponent)
    return at, -value if negative else value, known


@exact
def _line_ends(text, at):
    c = text[at]
    return c in (_NEWLINE, _HASH) or (c == _RETURN and text[at + 1] == _NEWLINE)


@exact
def _after_blanks(text, at):
    while text[at] == _BLANK or text[at] == _TAB:
        at += 1
    return at


@exact
def _index(text, at):
    """Read an index and its colon: (where the value starts, the index, what is wrong)."""
    first, index = at, 0
    digit = _digit(text[at])
    while digit < _TEN:
        if index <= MAX_INDEX:
            index = index * 10 + int(digit)
        at += 1
        digit = _digit(text[at])
    if at == first:
        return at, 0, INDEX
    if text[at] != _COLON:
        return at, 0, COLON
    if index == 0:
        return first, 0, ZERO
    if index > MAX_INDEX:
        return first, 0, LARGE
    return at + 1, index, FINE


@exact
def _query(text, at):
    """Skip ``qid:17``, which only rankers need: (where it ends, what is wrong)."""
    if text[at] != _Q:
        return at, FINE
    for c in (105, 100, _COLON):
        at += 1
        if text[at] != c:
            return at, QUERY
    first = at + 1
    at, _mantissa, _significant, _dropped = _digits(text, first, np.uint64(0), 0)
    return at, FINE if at > first else QUERY


@exact
def _features(text, at, indices, values, count, slow, slows):
    """Read the rest of a line: (where it stopped, entries, slow numbers, what is wrong)."""
    last = 0
    first = True
    while True:
        blanks = at
        at = _after_blanks(text, at)
        if _line_ends(text, at):
            return at, count, slows, FINE
        if at == blanks:
            return at, count, slows, SPACE
        if first:
            first = False
            end, wrong = _query(text, at)
            if wrong != FINE:
                return end, count, slows, wrong
            if end > at:
                at = end
                continue
        start, index, wrong = _index(text, at)
        if wrong == FINE and index <= last:
            start, wrong = at, REPEATED if index == last else UNSORTED
        if wrong != FINE:
            return start, count, slows, wrong
        at, value, known = number(text, start)
        if at == start:
            return at, count, slows, VALUE
        if not known:
            slow[slows, 0], slow[slows, 1], slow[slows, 2] = count, start, at
            slows += 1
        indices[count], values[count], last = index - 1, value, index
        count += 1


@exact
def lines(text, labels, ends, indices, values, slow):
    """Read whole lines. Row r is labels[r] and the entries up to ends[r].

    slow[:, 0] says which value is missing, or ~r for the label of row r, and slow[:, 1:] from
    where to where it stands. Gives (rows, entries, slow numbers, where it stopped, what is
    wrong there).
    """
    at, rows, count, slows = 0, 0, 0, 0
    while at < text.size:
        at = _after_blanks(text, at)
        if not _line_ends(text, at):
            start = at
            at, value, known = number(text, at)
            if at == start:
                return rows, count, slows, at, LABEL
            if not known:
                slow[slows, 0], slow[slows, 1], slow[slows, 2] = ~rows, start, at
                slows += 1
            labels[rows] = value
            at, count, slows, wrong = _features(text, at, indices, values, count, slow, slows)
            if wrong != FINE:
                return rows, count, slows, at, wrong
            ends[rows] = count
            rows += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
    return rows, count, slows, at, FINE
