"""Data: a worker's shards, and generated stand-ins for data sets that are not at hand."""

from desopt.data.shards import (
    Draw,
    Loader,
    Nothing,
    OpenShard,
    Rows,
    Shard,
    all_finite,
    as_rows,
    as_shards,
    fingerprint,
    partition,
    parts,
    total_rows,
)

__all__ = [
    "Draw",
    "Loader",
    "Nothing",
    "OpenShard",
    "Rows",
    "Shard",
    "all_finite",
    "as_rows",
    "as_shards",
    "fingerprint",
    "partition",
    "parts",
    "total_rows",
]
