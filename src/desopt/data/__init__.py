"""Data sets by name or file, their splits, and the shards of the workers.

>>> from desopt import data
>>> data.CATALOGUE["ijcnn1"].rows
49990
>>> isinstance(data.NoData(), data.Shard), isinstance(data.NoData(), data.OpenShard)
(True, True)
"""

from desopt.data.catalogue import CATALOGUE, CatalogueEntry, DataSet, available, find, load, names
from desopt.data.checks import all_finite
from desopt.data.gather import expected_passes
from desopt.data.sharding import (
    as_shards,
    distinct,
    fingerprint,
    partition,
    restricted,
    shares,
    side_by_side,
    total_rows,
)
from desopt.data.shards import (
    Arrays,
    Batch,
    Draw,
    Loader,
    Loaders,
    NoData,
    OpenShard,
    Partitioned,
    Rows,
    Shard,
    as_rows,
)
from desopt.data.splits import by_label, by_quantity, dirichlet, split, train_test

__all__ = [
    "CATALOGUE",
    "Arrays",
    "Batch",
    "CatalogueEntry",
    "DataSet",
    "Draw",
    "Loader",
    "Loaders",
    "NoData",
    "OpenShard",
    "Partitioned",
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
    "expected_passes",
    "find",
    "fingerprint",
    "load",
    "names",
    "partition",
    "restricted",
    "shares",
    "side_by_side",
    "split",
    "total_rows",
    "train_test",
]
