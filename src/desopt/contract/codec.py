"""States as bytes."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import fields
from typing import Any

import numpy as np

from desopt.contract.types import FloatArray


def digest_of(x: FloatArray) -> str:
    """A short name for the bits of an array."""
    return hashlib.blake2b(np.ascontiguousarray(x, "<f8").tobytes(), digest_size=8).hexdigest()


def pack_state(state: Any) -> bytes:
    """A state: names and sizes as JSON, the arrays compressed."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in arrays}
    meta = json.dumps(
        {"plain": plain, "arrays": {name: a.size for name, a in arrays.items()}}
    ).encode()
    body = b"".join(np.ascontiguousarray(a, "<f8").tobytes() for a in arrays.values())
    return struct.pack("<I", len(meta)) + meta + zlib.compress(body, 1)


def unpack_state(payload: bytes, limit: int | None = None) -> dict[str, Any]:
    """The state's fields by name; refused where its arrays take more than ``limit`` bytes.

    Nothing is unpacked beyond the sizes that it declares.
    """
    meta, body = state_parts(payload)
    total = 8 * sum(meta["arrays"].values())
    if limit is not None and total > limit:
        raise ValueError(f"arrays of {total} bytes; {limit} are allowed")
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(body, total + 1)
    if len(unpacked) != total or not unpacker.eof:
        raise ValueError(f"its arrays do not have the {total} bytes that it declares")
    numbers = np.frombuffer(unpacked, "<f8").astype(np.float64)
    values: dict[str, Any] = dict(meta["plain"])
    at = 0
    for name, length in meta["arrays"].items():
        values[name] = numbers[at : at + length].copy()
        at += length
    return values


def state_parts(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Names and sizes of a state, checked, and its arrays as they are."""
    (size,) = struct.unpack_from("<I", payload)
    meta = json.loads(payload[4 : 4 + size])
    if meta.keys() != {"plain", "arrays"} or not isinstance(meta["plain"], dict):
        raise ValueError("not the fields of a state")
    if not all(type(size) is int and size >= 0 for size in meta["arrays"].values()):
        raise ValueError("sizes of arrays must be whole numbers")
    return meta, payload[4 + size :]
