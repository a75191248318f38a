from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyrec.config.data import SourceConfig
from easyrec.data.column_types import kind_of
from easyrec.data.order import pieces
from easyrec.data.row_groups import Source
from easyrec.data.source import open_source, read_like
from easyrec.data.store import Store
from easyrec.errors import DataError, SchemaError


def opened(path: str | Path | list[str], store: Store | None = None, **options: object) -> Source:
    return open_source(
        SourceConfig.model_validate({"path": path if isinstance(path, list) else str(path), **options}),
        store or Store(),
    )


def test_types_of_several_files_are_unified(write: Callable[..., str], tmp_path: Path) -> None:
    write(
        {
            "a": [1, 2],
            "b": pa.array(["x", "y"]).dictionary_encode(),
            "t": pa.array([1, 2], pa.timestamp("s")),
        },
        "d/1.parquet",
    )
    write({"a": [2.5], "b": ["z"], "t": pa.array([3], pa.timestamp("ns")), "c": [[1]]}, "d/2.parquet")
    write({"b": pa.nulls(1), "a": pa.nulls(1), "c": [[0.5]]}, "d/3.parquet")
    source = opened(tmp_path / "d")
    assert [kind_of(source.schema.field(name).type) for name in "abtc"] == [
        "float",
        "string",
        "timestamp",
        "list<float>",
    ]
    assert source.schema.field("t").type == pa.timestamp("ns")
    assert source.read_all(["a", "b", "c"]).to_pydict() == {
        "a": [1.0, 2.0, 2.5, None], "b": ["x", "y", "z", None], "c": [None, None, [1.0], [0.5]],
    }  # fmt: skip


def test_types_that_do_not_fit_are_refused_naming_both_files(
    write: Callable[..., str], tmp_path: Path
) -> None:
    write({"a": [1], "b": [1]}, "d/1.parquet")
    write({"a": ["x"], "b": [1]}, "d/2.parquet")
    with pytest.raises(SchemaError, match=r"column 'a' is int in .*1\.parquet, but string in .*2\.parquet"):
        opened(tmp_path / "d")
    assert opened(tmp_path / "d", columns={"a": "string"}).read_all(["a"]).to_pydict() == {"a": ["1", "x"]}


def test_files_that_are_no_parts_of_one_table_are_refused(write: Callable[..., str], tmp_path: Path) -> None:
    write({"a": [1], "b": [1]}, "d/1.parquet")
    write({"c": ["x"], "d": [1]}, "d/2.parquet")
    with pytest.raises(SchemaError, match="hardly a column in common"):
        opened(tmp_path / "d")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_hive_partitions_are_columns(write: Callable[..., str], tmp_path: Path, suffix: str) -> None:
    for year, country in ((2023, "de"), (2024, "fr"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / "d" / f"year={year}" / f"country={country}"
        folder.mkdir(parents=True)
        table = pa.table({"a": [year, 1]})
        if suffix == "parquet":
            pq.write_table(table, folder / "x.parquet")
        else:
            (folder / "x.csv").write_text(f"a\n{year}\n1\n")
    source = opened(tmp_path / "d")
    assert source.read_all().to_pydict() == {
        "a": [2023, 1, 2024, 1, 2024, 1],
        "year": [2023, 2023, 2024, 2024, 2024, 2024],
        "country": ["de", "de", None, None, "fr", "fr"],
    }
    only = pa.concat_tables(
        [table for group in source.groups for _, table in source.read(group, ["country"])]
    )
    assert only.column("country").to_pylist() == ["de", "de", None, None, "fr", "fr"]


def test_a_url_is_read_like_a_file() -> None:
    filesystem = fsspec.filesystem("memory")
    with filesystem.open("/bucket/a.parquet", "wb") as handle:
        pq.write_table(pa.table({"a": range(10)}), handle, row_group_size=3)
    filesystem.pipe("/bucket/b/b.csv", b"a,b\n1,x\n")
    try:
        source = opened("memory://bucket/a.parquet")
        assert source.read_all().column("a").to_pylist() == list(range(10))
        assert source.place(9) == "memory://bucket/a.parquet, row 10"
        assert opened("memory://bucket/b/").read_all().to_pylist() == [{"a": 1, "b": "x"}]
    finally:
        filesystem.rm("/bucket", recursive=True)


def test_rows_are_read_from_any_place(write: Callable[..., str]) -> None:
    source = opened(write({"a": range(100)}, row_group_size=30))
    assert [group.rows for group in source.groups] == [30, 30, 30, 10]
    segments = source.segments(12)
    assert sum(segment.rows for segment in segments) == 100
    assert max(segment.rows for segment in segments) <= 12
    for segment in reversed(segments):
        for first_row, table in source.read(segment, batch_rows=5):
            assert table.num_rows <= 5
            assert table.column("a").to_pylist() == list(range(first_row, first_row + table.num_rows))


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_pieces_hold_every_row_once_beside_its_position(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    monkeypatch.setattr("easyrec.data.order.SEGMENT_ROWS", 20)
    monkeypatch.setattr("easyrec.data.order.BATCH_ROWS", 32)
    source = opened(
        [write({"a": range(100)}, "1.parquet", row_group_size=50), write({"a": range(100, 105)}, "2.parquet")]
    )
    seen: list[int] = []
    for positions, table in pieces(source, ["a"], seed):
        assert table.column("a").to_pylist() == positions.tolist()
        seen += positions.tolist()
    assert sorted(seen) == list(range(105))
    assert (seen == list(range(105))) == (seed is None)
    if seed is not None:
        assert max(seen[:32]) - min(seen[:32]) > 50  # several places at once
        again = [row for positions, _ in pieces(source, ["a"], seed) for row in positions.tolist()]
        assert again == seen


def test_small_stored_dictionaries_are_read_as_dictionaries(write: Callable[..., str]) -> None:
    few, many = ["x", "y", None] * 1000, [f"value-{index:012d}" for index in range(3000)]
    source = opened(write({"few": few, "many": many}))
    (_, table), *_ = source.read(source.groups[0])
    assert pa.types.is_dictionary(table.schema.field("few").type)
    assert pa.types.is_string(table.schema.field("many").type) or len(many) * 16 < 64 * 1024
    assert table.column("few").to_pylist() == few


def test_text_is_converted_once_for_as_long_as_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    store = Store(tmp_path / "cache")
    opened(path, store)
    (folder,) = (tmp_path / "cache").iterdir()
    before = folder.stat().st_mtime_ns
    opened(path, store)
    assert [entry.stat().st_mtime_ns for entry in (tmp_path / "cache").iterdir()] == [before]
    path.write_text("a\n2\n3\n")
    os.utime(path, (1, 1))
    assert opened(path, store).read_all().column("a").to_pylist() == [2, 3]
    assert opened(path, store, columns={"a": "string"}).read_all().column("a").to_pylist() == ["2", "3"]


def test_a_folder_of_the_store_is_whole_or_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise DataError("stop")

    with pytest.raises(DataError, match="stop"):
        store.build("thing", 1, fail)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".building-999999999-x").mkdir()  # a process that was killed
    folder = store.build("thing", 1, lambda folder: (folder / "file").touch())
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert store.build("thing", 1, fail) == folder
    assert store.build("thing", 2, lambda folder: None) != folder


def test_a_full_disk_is_an_error_in_words(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"the cache folder .* cannot be written: No space left on device"):
        Store(tmp_path).build("thing", 1, fill)


def test_other_files_are_read_alike_unless_their_suffix_says_another_format() -> None:
    text = SourceConfig(
        path=("rows.data.gz",), format="csv", options={"header": False}, columns={"x": "int64"}
    )
    for path in ("other.data.gz", "other.csv", "folder", "part-*"):
        assert read_like(text, [path]) == text.model_copy(update={"path": (path,)})
    assert read_like(text, ["a.parquet"]) == SourceConfig(path=("a.parquet",), columns={"x": "int64"})
    own = SourceConfig(path=("rows.txt",), format="logfile", options={"zone": "UTC"})
    assert read_like(own, ["b.txt"]).format == "logfile"
    assert read_like(own, ["b.parquet"]).format is None
    assert read_like(SourceConfig(path=("a.parquet",)), ["b.csv"]).options == {}
