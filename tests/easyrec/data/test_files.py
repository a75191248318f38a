from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from easyrec.data.files import find_files, format_of
from easyrec.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "sub/c.csv", "_SUCCESS", ".hidden.csv", "_temporary/d.csv", "notes.md"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n")
    return tmp_path / "data"


def names(paths: list[str], root: Path) -> list[str]:
    return [os.path.relpath(file.location, root) for file in find_files(paths)]


def test_a_folder_is_searched_to_any_depth_in_the_order_of_names(folder: Path) -> None:
    assert names([str(folder)], folder) == ["a.csv", "b.csv", "sub/c.csv"]


def test_a_glob_and_a_list_keep_their_order_and_take_no_file_twice(folder: Path) -> None:
    assert names([str(folder / "*.csv")], folder) == ["a.csv", "b.csv"]
    assert names([str(folder / "b.csv"), str(folder / "*.csv")], folder) == ["b.csv", "a.csv"]


def test_hive_partitions_are_read_from_the_path(tmp_path: Path) -> None:
    for value in (
        "day=2024-01-01/country=de",
        "day=2024-01-02/country=__HIVE_DEFAULT_PARTITION__",
        "day=x%2Fy/country=fr",
    ):
        (tmp_path / value).mkdir(parents=True)
        (tmp_path / value / "part.csv").write_text("x\n1\n")
    assert [dict(file.partitions) for file in find_files([str(tmp_path)])] == [
        {"day": "2024-01-01", "country": "de"},
        {"day": "2024-01-02", "country": None},
        {"day": "x/y", "country": "fr"},
    ]


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/bucket/logs/a.csv", b"x\n1\n")
    yield filesystem
    filesystem.rm("/bucket", recursive=True)


def test_urls_are_read_with_fsspec(memory: fsspec.AbstractFileSystem) -> None:
    for path in ("memory://bucket/logs", "memory://bucket/logs/*.csv", "memory://bucket/logs/a.csv"):
        (file,) = find_files([path])
        assert file.name == "memory://bucket/logs/a.csv"
        assert file.open().read() == b"x\n1\n"
        assert file.local_path() is None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data/a.cvs", r"a\.cvs does not exist\. Did you mean 'a\.csv'\?"),
        ("dta/a.csv", r"dta in it does not\. Did you mean 'data'\?"),
        ("data/*.parquet", r"nothing matches .*; looked in .*data, it holds .*a\.csv"),
        ("nowhere/*.csv", r"nothing matches .*: the folder does not exist"),
        ("empty", r"the folder .*empty is empty"),
        ("text", r"holds no file to read; there is readme\.md\. Suffixes that are read: \.parquet"),
        ("unknown://x", r"Protocol not known: unknown"),
    ],
)
def test_what_is_missing_is_named_with_what_is_there(folder: Path, path: str, message: str) -> None:
    root = folder.parent
    (root / "empty").mkdir()
    (root / "text").mkdir()
    (root / "text" / "readme.md").write_text("hello")
    with pytest.raises(DataError, match=message):
        find_files([path if "://" in path else str(root / path)])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a.parquet", "parquet"), ("a.pq", "parquet"), ("a.csv", "csv"), ("a.TSV", "csv"), ("a.txt", "csv"),
        ("a.csv.gz", "csv"), ("a.jsonl.gz", "json"), ("a.ndjson", "json"), ("a.json", "json"), ("a.test.gz", "csv"),
        ("a.xlsx", None), ("a", None),
    ],
)  # fmt: skip
def test_the_suffix_tells_the_format(name: str, known: str | None) -> None:
    assert format_of(name) == known
