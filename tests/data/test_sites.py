"""Data sets from several sites."""

from pathlib import Path

import numpy as np
import pytest
from helpers import real_sets

from desopt import data
from desopt.data import sites
from desopt.studies.datasets import digest


def test_sites_are_standardised_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1,0,5,100,200,0\n3,?,5,0,?,2\n")
    (tmp_path / "b").write_text("5,4,5,140,0,1\n")
    X, labels, places = sites.read(tmp_path, ("a", "b"))
    assert labels.tolist() == [0, 2, 1]
    assert places.tolist() == [0, 0, 1]
    root = 1.5**0.5
    expected = [[-root, -1, 0, -1, 0], [0, 0, 0, 0, 0], [root, 1, 0, 1, 0]]
    np.testing.assert_allclose(X, expected, atol=1e-15)
    for text, error in (
        ("1,x\n", "line 1: expected numbers or \\?"),
        ("1,2\n1\n", "line 2: 1 numb"),
    ):
        (tmp_path / "a").write_text(text)
        with pytest.raises(ValueError, match=error):
            sites.read(tmp_path, ("a",))


def test_missing_sites_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"heart/processed\.cleveland.*put them there"):
        data.load("heart-sites", data_dir=tmp_path)


def test_the_four_hospitals() -> None:
    folder = real_sets.SHARED.parent / "sites"
    if not (folder / "heart").is_dir():
        pytest.skip("the hospitals' files are not beside the clone")
    whole = data.load("heart-sites", data_dir=folder)  # no warning: the shape is the known one
    assert whole.sites is not None
    assert np.bincount(whole.sites).tolist() == [303, 294, 123, 200]
    assert int((whole.y > 0).sum()) == 509
    assert whole.density == data.CATALOGUE["heart-sites"].nonzeros / 920 / 13
    train, _ = data.train_test(whole)
    parts = data.split("sites", train.y, 4, seed=0, sites=train.sites)
    assert sum(map(len, parts)) == 736
    assert len(digest("heart-sites", str(folder))) == 32
