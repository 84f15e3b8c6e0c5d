"""The reader of LIBSVM text, against a slow one, against float(), against scikit-learn."""

import bz2
import gzip
import io
import lzma
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import real_sets
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import datasets

from desopt.data import libsvm
from desopt.kernels import text as kernel

NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
Rows = list[tuple[float, list[int], list[float]]]


# --- a reader written from the description of the format -------------------------------------


class Malformed(Exception):
    """In this line."""


def finite(text: bytes) -> float:
    if re.fullmatch(NUMBER, text) is None or math.isinf(float(text)):
        raise Malformed
    return float(text)


def slow_line(line: bytes) -> tuple[float, list[int], list[float]] | None:
    body, comment, _ = line.partition(b"#")
    if not comment and body.endswith(b"\r"):
        body = body[:-1]
    words = [word for word in re.split(rb"[ \t]", body) if word]
    if not words:
        return None
    label = finite(words.pop(0))
    if words and re.fullmatch(rb"qid:\d+", words[0]):
        words.pop(0)
    indices: list[int] = []
    values = []
    for word in words:
        index, colon, value = word.partition(b":")
        if not colon or re.fullmatch(rb"\d+", index) is None:
            raise Malformed
        if not (indices[-1] if indices else 0) < int(index) < 2**31:
            raise Malformed
        indices.append(int(index))
        values.append(finite(value))
    return label, indices, values


def slowly(text: bytes) -> Rows | int:
    """The rows, or the number of the first bad line."""
    rows = []
    for number, line in enumerate(text.split(b"\n"), 1):
        try:
            row = slow_line(line)
        except Malformed:
            return number
        if row is not None:
            rows.append(row)
    return rows


def quickly(text: bytes, piece: int = 1 << 20) -> Rows | int:
    rows = []
    try:
        for part in libsvm.parse(io.BytesIO(text), "x", piece):
            begin = 0
            for label, end in zip(part.labels.tolist(), part.ends.tolist(), strict=True):
                indices = (part.indices[begin:end] + 1).tolist()
                rows.append((label, indices, part.values[begin:end].tolist()))
                begin = end
    except ValueError as error:
        return line_of(error)
    return rows


def line_of(error: ValueError) -> int:
    found = re.match(r"x, line (\d+), column \d+: expected ", str(error))
    assert found is not None, error
    return int(found[1])


def bits(rows: Rows | int) -> object:
    """So that 0.0 and -0.0 differ."""
    if isinstance(rows, int):
        return rows
    return [(label.hex(), indices, [v.hex() for v in values]) for label, indices, values in rows]


# --- fuzzing ---------------------------------------------------------------------------------

BYTES = b"00123456789+-.eE::# \t\r\n\nqidnaf_x\x00\xff"


def written(sign: bytes, digits: int, point: int, exponent: bytes) -> bytes:
    """Digits with a point among them, before them (0), or nowhere."""
    text = b"%d" % digits
    point = min(point, len(text) + 1)
    pointed = text if point > len(text) else text[:point] + b"." + text[point:]
    return sign + pointed + exponent


digits = st.one_of(st.integers(0, 300), st.integers(2**53 - 3, 2**53 + 3), st.integers(0, 10**25))
exponent = st.one_of(st.just(b""), st.integers(-30, 30).map(lambda e: b"e%d" % e),
                     st.sampled_from([b"E+308", b"e-324", b"e309", b"e-007"]))  # fmt: skip
halfway = st.one_of(  # between two neighbours, of which the even one is right
    st.integers(2**52, 2**53 - 1).map(lambda i: b"%d.5" % i),
    st.integers(2**50, 2**51 - 1).map(lambda i: b"%d.125" % i),
    st.integers(2**50, 2**51 - 1).map(lambda i: b"%d.375" % i),
)
number = st.one_of(
    halfway,
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: repr(x).encode()),
    st.builds(written, st.sampled_from([b"", b"+", b"-"]), digits, st.integers(0, 25), exponent),
)
blank = st.sampled_from([b" ", b" ", b"\t", b"  "])


@st.composite
def line(draw: st.DrawFn) -> bytes:
    words = [draw(number)]
    if draw(st.integers(0, 5)) == 0:
        words.append(b"qid:%d" % draw(st.integers(0, 10**20)))
    indices = sorted(draw(st.sets(st.integers(1, 2**31 + 1), max_size=4)))
    words += [b"%d:%s" % (index, draw(number)) for index in indices]
    text = draw(blank).join(words)
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b" \n", b"# 1:2 x\n", b" #\r\n", b"\n\n"]))
    return text + end


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = bytearray(b"".join(draw(st.lists(line(), max_size=4))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        text[at : at + cut] = bytes(draw(st.lists(st.sampled_from(BYTES), max_size=3)))
    return bytes(text)


soup = st.lists(st.sampled_from(BYTES), max_size=60).map(bytes)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(st.one_of(mutated(), mutated(), soup, st.binary(max_size=40)), st.integers(1, 64))
def test_the_same_rows_as_a_slow_reader(text: bytes, piece: int) -> None:
    expected = bits(slowly(text))
    assert bits(quickly(text)) == expected
    assert bits(quickly(text, piece)) == expected


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(number, min_size=1, max_size=15))
@example([b"9007199254740993", b"9007199254740992", b"1e22", b"1e23", b"9007199254740992e22"])
@example([b"2.2250738585072011e-308", b"4.9e-324", b"2e-324", b"-0", b"-0.0e5", b"0e99999"])
@example(
    [b"1e-22", b"123456789012345678", b"0." + b"0" * 400 + b"1", b"1" * 300, b"1." + b"1" * 99]
)
@example([b"1e-99999999999999999999", b"0.1", b".3", b"3.", b"8.41e21", b"00001.50e+1"])
def test_numbers_are_those_of_float(texts: list[bytes]) -> None:
    finite_ones = [text for text in texts if not math.isinf(float(text))]
    rows = quickly(b"\n".join(b"%s 1:%s" % (text, text) for text in finite_ones))
    expected = [(float(text), [1], [float(text)]) for text in finite_ones]
    assert bits(rows) == bits(expected)


def test_what_is_too_close_to_call_is_left_to_float() -> None:
    """A wrong rounding is too rare for a test to meet; this is the doubt that prevents it."""
    texts = [
        b"4503599627370497.5",
        b"0.4503599627370498",
        b"1125899906842625.375",
        b"1e70",
        b"7e-64",
    ]
    text = bytearray(b"".join(b"1 1:%s\n" % number for number in texts))
    room = libsvm._Room(len(text))
    _, count, slows, _, _ = kernel.lines(
        np.frombuffer(text, np.uint8), room.labels, room.ends, room.indices, room.values, room.slow
    )
    assert count == 5
    assert room.slow[:slows, 0].tolist() == [0, 2, 3]


# --- by hand ---------------------------------------------------------------------------------


def test_what_is_accepted() -> None:
    text = (
        b"# a comment\n\n  \t \r\n+1 1:2 3:-.5e1 # rest\r\n-1.5\t2:7\n0 qid:3 5:1\n"
        b"2#x\n   1e0 2147483647:1 \n3"
    )
    assert quickly(text) == [
        (1.0, [1, 3], [2.0, -5.0]),
        (-1.5, [2], [7.0]),
        (0.0, [5], [1.0]),
        (2.0, [], []),
        (1.0, [2147483647], [1.0]),
        (3.0, [], []),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:2\nx 1:2\n", "line 2, column 1: expected a label.*; got 'x 1:2'"),
        (b"1 1:2\n\n# c\n1 1:2 2:\n", "line 4, column 9: expected a number .*; the line ends"),
        (b"1 1:2 2:nan\n", "line 1, column 9: expected a number"),
        (b"1 1:inf\n", "line 1, column 5: expected a number"),
        (b"nan 1:1\n", "line 1, column 1: expected a label"),
        (b"1 1:1e999\n", "line 1, column 5: expected a number that float64 can hold; got '1e999'"),
        (b"-1e400\n", "line 1, column 1: expected a number that float64 can hold"),
        (b"1 0:3\n", "line 1, column 3: expected an index of at least 1.*add 1"),
        (b"1 3:1 3:2\n", "line 1, column 7: expected an index above .* got the same again"),
        (b"1 3:1 2:2\n", "line 1, column 7: expected an index above .*; sort the entries"),
        (b"1 2147483648:1\n", "line 1, column 3: expected an index of at most 2147483647"),
        (b"1 99999999999999999999999:1\n", "column 3: expected an index of at most"),
        (b"1 3\n", "line 1, column 4: expected a colon"),
        (b"1 :3\n", "line 1, column 3: expected index:value"),
        (b"1 -1:3\n", "line 1, column 3: expected index:value"),
        (b"1 1:2x\n", "line 1, column 6: expected a space"),
        (b"1 1:2,2:3\n", "line 1, column 6: expected a space"),
        (b"1,2 1:2\n", "line 1, column 2: expected a space"),
        (b"1 1:1_0\n", "line 1, column 6: expected a space"),
        (b"1 1:0x1\n", "line 1, column 6: expected a space"),
        (b"1 1:1e\n", "line 1, column 5: expected a number"),
        (b"1 qid:x 1:2\n", "line 1, column 7: expected qid: and a whole number"),
        (b"1 1:2 qid:3\n", "line 1, column 7: expected index:value"),
        (b"1 1:2\r1 1:3\n", "line 1, column 6: expected a space"),
        (b"\xef\xbb\xbf1 1:2\n", r"line 1, column 1: expected a label.*got '\\\\xef"),
    ],
)
def test_what_is_not(text: bytes, message: str) -> None:
    for piece in (3, 1 << 20):
        with pytest.raises(
            ValueError, match=f"file.txt, {message}" if "line" in message else message
        ):
            list(libsvm.parse(io.BytesIO(text), "file.txt", piece))


def test_lines_longer_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b"1 " + b" ".join(b"%d:%d" % (i, i) for i in range(1, 400)) + b"\n"
    assert quickly(b"2\n" + long + b"3\n", 10) == slowly(b"2\n" + long + b"3\n")
    monkeypatch.setattr(libsvm, "LONGEST_LINE", 1000)
    with pytest.raises(ValueError, match="x, line 2: expected a line of at most 1000 bytes"):
        list(libsvm.parse(io.BytesIO(b"2\n" + long + b"3\n"), "x", 10))


# --- files -----------------------------------------------------------------------------------

TEXT = b"".join(b"%d %d:%d.25 %d:1e-3\n" % (i % 2, 1 + i % 7, i, 9 + i % 5) for i in range(500))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)],
)
def test_compressed_files(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"set{suffix}"
    path.write_bytes(pack(TEXT))
    X, labels = libsvm.read(path)
    expected = slowly(TEXT)
    assert isinstance(expected, list)
    assert labels.tolist() == [label for label, _, _ in expected]
    dense = np.zeros((500, 13))
    for row, (_, indices, values) in enumerate(expected):
        dense[row, np.array(indices) - 1] = values
    np.testing.assert_array_equal(X.toarray(), dense)
    if suffix:
        path.write_bytes(pack(TEXT)[:-20])
        with pytest.raises(
            ValueError, match=f"set{suffix} cannot be read.*cut short: get it again"
        ):
            libsvm.read(path)
        path.write_bytes(TEXT)
        with pytest.raises(ValueError, match=f"set{suffix} cannot be read"):
            libsvm.read(path)


def test_a_file_without_rows(tmp_path: Path) -> None:
    for text in (b"", b"# nothing\n\n"):
        (tmp_path / "empty").write_bytes(text)
        with pytest.raises(ValueError, match="empty holds no rows; expected lines such as"):
            libsvm.read(tmp_path / "empty")


@pytest.mark.parametrize(
    "name", ["cancer", "digits", "text", *real_sets.there("heart_scale", "mushrooms", "a9a")]
)  # fmt: skip
def test_real_files_as_scikit_learn_reads_them(name: str, tmp_path: Path) -> None:
    file = real_sets.SHARED / name
    if not file.is_file():
        file = tmp_path / name
        datasets.dump_svmlight_file(*real_sets.read(name), str(file), zero_based=False)
    X, labels = libsvm.read(file)
    theirs, their_labels = datasets.load_svmlight_file(str(file))
    assert X.shape == theirs.shape
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = [
        (X.data, theirs.data), (X.indices, theirs.indices), (X.indptr, theirs.indptr),
        (labels, their_labels),
    ]  # fmt: skip
    for mine, other in pairs:
        np.testing.assert_array_equal(mine, other)
