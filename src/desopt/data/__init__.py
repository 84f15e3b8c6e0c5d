"""Data: a worker's shards, and generated stand-ins for data sets that are not at hand."""

from desopt.data.checks import all_finite
from desopt.data.sets import KNOWN, DataSet, Known, available, find, known, load
from desopt.data.shards import (
    Arrays,
    Dealt,
    Draw,
    Loader,
    Loaders,
    Nothing,
    OpenShard,
    Pick,
    Rows,
    Shard,
    as_rows,
    as_shards,
    distinct,
    fingerprint,
    partition,
    total_rows,
)
from desopt.data.splits import by_label, by_quantity, dirichlet, train_test

__all__ = [
    "KNOWN",
    "Arrays",
    "DataSet",
    "Dealt",
    "Draw",
    "Known",
    "Loader",
    "Loaders",
    "Nothing",
    "OpenShard",
    "Pick",
    "Rows",
    "Shard",
    "all_finite",
    "as_rows",
    "as_shards",
    "available",
    "by_label",
    "by_quantity",
    "dirichlet",
    "distinct",
    "find",
    "fingerprint",
    "known",
    "load",
    "partition",
    "total_rows",
    "train_test",
]
