"""Names on a screen and in files; files that are written atomically."""

import os
import re
from pathlib import Path

import pytest

from desopt.studies import output


def test_names_become_files_and_lines() -> None:
    assert output.file_name("first study") == "first-study"
    for name in ("../../etc/x", "/x", "a\0b", "...", "", "x" * 999, "\u65e5" * 999, "a:b|c\\d"):
        found = output.file_name(name)
        assert found == Path(found).name
        assert 0 < len(found.encode()) <= output.MAX_FILE_NAME
        assert re.fullmatch(r"\w[\w.-]*", found)
    assert list(output.unique_names(["a", "A", "a-2", "a"])) == ["a", "A-2", "a-2-2", "a-3"]
    assert output.short("a\x1b\n\u2028\ud800") == r"a\x1b\n\u2028\ud800"
    long = {output.short("n" * count) for count in range(61, 99)}
    assert len(long) == 38
    assert max(map(len, long)) <= output.MAX_SHOWN


def test_what_fails_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    output.write_text(path, "good")
    old = tmp_path / ".index.html.1.part"
    old.touch()
    os.utime(old, (0, 0))  # left by a process that was killed
    with pytest.raises(UnicodeEncodeError):
        output.write_text(path, "bad\ud800")
    assert path.read_text() == "good"
    assert list(tmp_path.iterdir()) == [path]
