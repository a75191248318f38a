"""Every format gives the same table back, and says where a file is wrong."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import itertools
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from easyrec.config.data import READERS, ReaderConfig, SourceConfig
from easyrec.data.files import DataFile
from easyrec.data.readers.base import Reader
from easyrec.data.row_groups import Source
from easyrec.data.source import open_source, open_stream
from easyrec.data.store import Store
from easyrec.errors import ConfigError, DataError, SchemaError

DAY = datetime.datetime(2024, 2, 29, 12, 30)
TABLE = pa.table(
    {
        "whole": pa.array([1, None, -(2**63), 2**63 - 1]),
        "real": pa.array([0.5, None, -1e300, 3.0]),
        "text": pa.array(["plain", None, 'a "quoted", line\nbreak', "Zoë 你好 \t;|"]),
        "code": pa.array(["007", "08", None, "1"]),
        "yes": pa.array([True, False, None, True]),
        "moment": pa.array([DAY, None, datetime.datetime(1969, 1, 1), DAY], pa.timestamp("us")),
    }
)


@pytest.fixture
def open_file(tmp_path: Path) -> Callable[..., Source]:
    """Writes bytes under a name and opens them as a table."""
    store = Store()

    def opener(content: bytes, name: str = "data.csv", on_error: Any = "fail", **options: Any) -> Source:
        path = tmp_path / name
        path.write_bytes(content)
        return open_source(SourceConfig(path=str(path), **options), store, on_error=on_error)

    return opener


def as_csv(table: pa.Table, **options: Any) -> str:
    return table.to_pandas(types_mapper=pd.ArrowDtype).to_csv(index=False, **options)


def as_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def as_json(table: pa.Table) -> str:
    rows = [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
    return "\n".join(json.dumps(row, default=str) for row in rows)


def plain(source: Source) -> list[dict[str, Any]]:
    return source.read_all().select(sorted(source.schema.names)).to_pylist()


EXPECTED = TABLE.select(sorted(TABLE.column_names)).to_pylist()


def test_parquet_gives_the_same_table_back(open_file: Callable[..., Source]) -> None:
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer, row_group_size=3)
    assert plain(open_file(buffer.getvalue(), "data.parquet")) == EXPECTED


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_csv_gives_the_same_table_back(open_file: Callable[..., Source], delimiter: str) -> None:
    source = open_file(as_csv(TABLE, sep=delimiter).encode())
    assert plain(source) == EXPECTED


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "gb18030"])
def test_csv_is_read_in_its_encoding(open_file: Callable[..., Source], encoding: str) -> None:
    source = open_file(as_csv(TABLE).encode(encoding), options={"encoding": encoding})
    assert plain(source) == EXPECTED


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text_is_recognised_by_its_bytes(
    open_file: Callable[..., Source], compress: Callable[[bytes], bytes]
) -> None:
    assert plain(open_file(compress(as_csv(TABLE).encode()), "data.csv")) == EXPECTED
    assert plain(open_file(compress(as_json(TABLE).encode()), "data.jsonl.gz")) == EXPECTED


def test_json_lines_give_the_same_table_back_without_the_missing_keys(
    open_file: Callable[..., Source],
) -> None:
    assert plain(open_file(as_json(TABLE).encode(), "data.jsonl")) == EXPECTED


def test_the_stream_of_a_file_is_its_table(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(as_csv(TABLE))
    stream = open_stream(SourceConfig(path=str(tmp_path / "data.csv")))
    tables = list(stream.tables(["code", "whole"], batch_rows=3))
    assert [table.num_rows for table in tables] == [3, 1]
    assert pa.concat_tables(tables).to_pylist() == TABLE.select(["code", "whole"]).to_pylist()


cell = st.one_of(
    st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=8)
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(cell, st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), min_size=1, max_size=12
    ),
    format_name=st.sampled_from(["csv", "json", "parquet"]),
)
@example(rows=[("NULL", 1)], format_name="csv")
@example(rows=[("\n", 1), ("'", None)], format_name="csv")
def test_any_text_and_number_survive_each_format(
    tmp_path: Path, rows: list[tuple[str | None, int | None]], format_name: str
) -> None:
    table = pa.table(
        {
            "text": pa.array([text for text, _ in rows], pa.string()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "end": pa.array(["."] * len(rows)),
        }
    )
    path = tmp_path / f"data.{format_name}"
    if format_name == "parquet":
        pq.write_table(table, path)
    elif format_name == "json":
        path.write_text(as_json(table), encoding="utf-8", newline="")
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(
                handle, quoting=csv.QUOTE_NOTNULL if hasattr(csv, "QUOTE_NOTNULL") else csv.QUOTE_NONNUMERIC
            )
            writer.writerow(table.column_names)
            for row in table.to_pylist():
                # QUOTE_NOTNULL came with Python 3.12: numbers stand unquoted, a missing text is an unquoted nothing.
                writer.writerow([_Raw() if value is None else value for value in row.values()])
    options = {"options": {"delimiter": ",", "null_values": [""]}} if format_name == "csv" else {}
    declared = {"columns": {"text": "string", "number": "int64"}}
    source = open_source(SourceConfig(path=str(path), **options, **declared), Store())
    assert source.read_all(table.column_names).to_pylist() == table.to_pylist()


class _Raw(float):
    """What the csv module writes as nothing, unquoted."""

    def __repr__(self) -> str:
        return ""

    __str__ = __repr__


def test_parquet_columns_of_every_kind_become_one_of_a_few_types(open_file: Callable[..., Source]) -> None:
    table = pa.table(
        {
            "small": pa.array([1, None], pa.int8()),
            "unsigned": pa.array([1, 2**63 - 1], pa.uint64()),
            "half": pa.array([1.5, None], pa.float16()),
            "decimal": pa.array([1, None], pa.decimal128(10, 2)),
            "large": pa.array(["a", None], pa.large_string()),
            "bytes": pa.array([b"a", None]),
            "dictionary": pa.array(["a", None]).dictionary_encode(),
            "numbers": pa.array([1, 2]).dictionary_encode(),
            "date": pa.array([datetime.date(2024, 1, 1), None]),
            "seconds": pa.array([1, None], pa.timestamp("s", "Europe/Berlin")),
            "nanoseconds": pa.array([1, None], pa.timestamp("ns")),
            "list": pa.array([["a", None], []], pa.large_list(pa.large_string())),
            "fixed": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": 1}, None]),
            "nothing": pa.nulls(2),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    source = open_file(buffer.getvalue(), "data.parquet")
    types = {column.name: str(column.type).replace("element: ", "item: ") for column in source.schema}
    assert types == {
        "small": "int64", "unsigned": "int64", "half": "float", "decimal": "double",
        "large": "dictionary<values=string, indices=int32, ordered=0>",
        "bytes": "string", "dictionary": "dictionary<values=string, indices=int32, ordered=0>", "numbers": "int64",
        "date": "timestamp[us]", "seconds": "timestamp[ms, tz=Europe/Berlin]", "nanoseconds": "timestamp[ns]",
        "list": "list<item: string>", "fixed": "list<item: float>", "map": "map<string, double>",
        "nothing": "null",
    }  # fmt: skip
    rows = source.read_all().to_pylist()
    assert rows[0]["list"] == ["a", None]
    assert rows[1]["list"] == []
    assert rows[0]["map"] == [("a", 1.0)]
    assert rows[1]["map"] is None
    assert rows[0]["fixed"] == [1.0, 2.0]
    assert rows[0]["decimal"] == 1.0


def test_a_number_beyond_64_bits_is_refused_unless_its_column_is_declared_text(
    open_file: Callable[..., Source],
) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64())}), buffer)
    with pytest.raises(SchemaError, match=r"column 'id' holds 18446744073709551615.*`id: string`"):
        open_file(buffer.getvalue(), "data.parquet").read_all()
    source = open_file(buffer.getvalue(), "data.parquet", columns={"id": "string"})
    assert source.read_all().column("id").to_pylist() == ["1", "18446744073709551615"]


def test_json_holds_lists_and_maps_and_whole_numbers_beside_text(open_file: Callable[..., Source]) -> None:
    lines = [
        {"id": 1, "tags": ["a"], "weights": {"a": 1.5, "b": 2}, "sizes": []},
        {"id": "x7", "tags": [], "sizes": [1, 2.5]},
        {"tags": None, "weights": {}, "deep": {"x": {"y": 1}}},
    ]
    source = open_file("\n".join(map(json.dumps, lines)).encode(), "data.ndjson")
    assert source.schema.names == ["id", "tags", "weights", "sizes"]
    assert source.read_all().to_pylist() == [
        {"id": "1", "tags": ["a"], "weights": [("a", 1.5), ("b", 2.0)], "sizes": []},
        {"id": "x7", "tags": [], "weights": None, "sizes": [1.0, 2.5]},
        {"id": None, "tags": None, "weights": [], "sizes": None},
    ]


def test_types_are_widened_when_later_rows_need_it(
    open_file: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easyrec.data.readers.csv._BLOCK", 64)
    monkeypatch.setattr("easyrec.data.readers.json._BLOCK", 64)
    rows = ["1,1,,true"] * 30 + ["2.5,007,late,1"]
    source = open_file(("a,b,c,d\n" + "\n".join(rows) + "\n").encode())
    last = source.read_all().to_pylist()[-1]
    assert last == {"a": 2.5, "b": "007", "c": "late", "d": "1"}
    assert source.read_all().to_pylist()[0] == {"a": 1.0, "b": "1", "c": None, "d": "true"}
    lines = ['{"a": 1}'] * 30 + ['{"a": 2.5, "new": "x"}']
    source = open_file("\n".join(lines).encode(), "data.jsonl")
    assert source.read_all().to_pylist()[-1] == {"a": 2.5, "new": "x"}


def test_whole_numbers_that_are_codes_stay_text(open_file: Callable[..., Source]) -> None:
    content = b"zip,hash,hex,plus,number\n01234,18446744073709551615,0x1F,+1,10\n9,1,0x2,2,-3\n"
    row = open_file(content).read_all().to_pylist()[0]
    assert row == {"zip": "01234", "hash": "18446744073709551615", "hex": "0x1F", "plus": 1.0, "number": 10}


def test_a_delimiter_of_several_characters(
    open_file: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easyrec.data.readers.csv._BLOCK", 7)
    content = b"1::10::5::978300760\n2::20::3::978302109\n"
    source = open_file(
        content, "ratings.dat", options={"header": False, "names": ["user", "item", "rating", "time"]}
    )
    assert source.read_all().to_pylist()[1] == {"user": 2, "item": 20, "rating": 3, "time": 978302109}


def test_spaces_around_cells_are_stripped_on_request(open_file: Callable[..., Source]) -> None:
    content = b" 73, Not in universe, NA\n 58, Self, 4\n"
    source = open_file(content, options={"header": False, "strip": True})
    assert source.read_all().to_pydict() == {
        "column_1": [73, 58], "column_2": ["Not in universe", "Self"], "column_3": [None, 4]
    }  # fmt: skip


def test_quoted_empty_cells_are_text_among_text_and_missing_among_numbers(
    open_file: Callable[..., Source],
) -> None:
    source = open_file(b'a,b\n"","1"\n"x",""\n,"3"\n')
    assert source.read_all().to_pydict() == {"a": ["", "x", None], "b": [1, None, 3]}


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"a,b\n1,2\n1,2,3\n", "x.csv", r"x\.csv, line 3: too many cells, 3 instead of 2: '1,2,3'.*on_error: skip"),
        (b'a,b\n"1\n2",3\n\n4\n', "x.csv", r"x\.csv, line 5: too few cells, 1 instead of 2: '4'"),
        ("a,b\n1,é\n".encode("latin-1"), "x.csv", r"line 2: byte b'\\xe9' at position 6 .*not utf-8.*cp1252"),
        ("a,b\n1,é,3\n".encode("latin-1"), "x.csv", r"line 2: byte b'\\xe9' at position 6 .*not utf-8.*cp1252"),
        ("a,b\n1,你好\n".encode("gb18030"), "x.csv", r"may be gb18030"),
        ("a,b\n".encode("utf-16"), "x.csv", r"begins like UTF-16"),
        (b"", "x.csv", r"x\.csv is empty \(0 bytes\)"),
        (b"\n\n", "x.csv", r"holds blank lines only"),
        (b"a,b\n", "x.csv", r"x\.csv holds no rows"),
        (b"a,b,a\n1,2,3\n", "x.csv", r"two columns are called 'a'.*header: false"),
        (b"PAR1....", "x.csv", r"x\.csv is Parquet, not text"),
        (b'{"a": 1}\n{"a": 2\n', "x.jsonl", r"x\.jsonl, line 2: not JSON"),
        (b'{"a": 1}\n[1]\n', "x.jsonl", r"x\.jsonl, line 2: not an object but b'\[1\]'"),
        (b'{"a": 1}\n{"a": true}\n', "x.jsonl", r"line 2: 'a' holds True, but is an int64 before"),
        (b'[{"a": 1}]', "x.json", r"one JSON array; what is read is JSON lines"),
        (b'{"a": "\xff"}\n', "x.jsonl", r"line 1: not UTF-8 at byte 8"),
        (b"", "x.parquet", r"x\.parquet is empty \(0 bytes\)"),
        (b"a,b\n1,2\n", "x.parquet", r"is not a Parquet file: it begins with b'a,b"),
        (b"PAR1" + b"\0" * 20, "x.parquet", r"damaged or truncated Parquet file of 24 bytes"),
        (b"a\n1\n", "x.xlsx", r"the format cannot be told from the suffix; give `format:` with one of csv"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(
    open_file: Callable[..., Source], content: bytes, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        open_file(content, name).read_all()


def test_a_truncated_file_is_named(open_file: Callable[..., Source], tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(10_000))}), buffer)
    with pytest.raises(DataError, match=r"cut\.parquet is a damaged or truncated Parquet file"):
        open_file(buffer.getvalue()[:-100], "cut.parquet")
    middle = bytearray(buffer.getvalue())
    middle[100:4000] = b"\xff" * 3900
    with pytest.raises(DataError, match=r"bad\.parquet is damaged"):
        open_file(bytes(middle), "bad.parquet").read_all()
    text = "a\n" + "".join(f"{index * 7919 % 104729}\n" for index in range(20_000))
    with pytest.raises(DataError, match=r"cut\.csv\.gz is damaged or cut off"):
        open_file(gzip.compress(text.encode())[:-2000], "cut.csv.gz")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("kind", "where"),  # zstd carries no check sum here, so garbled bytes may pass for text
    [*itertools.product(["gzip", "bz2", "xz"], ["cut", "garbled"]), ("zstd", "cut")],
)
def test_a_small_damaged_compressed_file_is_named(
    open_file: Callable[..., Source], suffix: str, kind: str, where: str
) -> None:
    random = np.random.default_rng(0)
    rows = [
        f'{{"a": {value}}}' if suffix == "jsonl" else str(value) for value in random.integers(0, 10**9, 400)
    ]
    text = "\n".join(rows if suffix == "jsonl" else ["a", *rows]).encode()
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zstd": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    }
    packed = compress[kind](text)
    half = len(packed) // 2
    damaged = packed[:half] if where == "cut" else packed[:40] + b"\xff" * half + packed[40 + half :]
    with pytest.raises(DataError, match=rf"data\.{suffix}"):
        open_file(damaged, f"data.{suffix}").read_all()


def test_what_follows_a_damaged_place_is_skipped_and_counted_once_on_request(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(10_000))}), buffer, row_group_size=5000, use_dictionary=False)
    footer = pq.ParquetFile(buffer).metadata.row_group(1).column(0)
    damaged = bytearray(buffer.getvalue())
    start = footer.data_page_offset
    damaged[start : start + 200] = b"\xff" * 200
    (tmp_path / "data.parquet").write_bytes(damaged)
    source = open_source(SourceConfig(path=str(tmp_path)), Store(), on_error="skip")
    assert source.read_all().column("a").to_pylist() == list(range(5000))
    source.read_all()
    assert source.faults.files == 1
    assert "data.parquet is damaged" in source.faults.examples[0]


def test_a_reader_of_another_package_is_used_like_the_built_in_ones(tmp_path: Path) -> None:
    class WordsConfig(ReaderConfig):
        """One word a line."""

        column: str = "word"

    class Words(Reader):
        config: WordsConfig

        def schema(self, file: DataFile) -> pa.Schema:
            return pa.schema({self.config.column: pa.string()})

        def read(
            self,
            file: DataFile,
            schema: pa.Schema,
            columns: Any = None,
            groups: Any = None,
            batch_rows: int = 2,
        ) -> Any:
            words = file.open().read().decode().split()
            for start in range(0, len(words), 2):
                yield pa.table({self.config.column: words[start : start + 2]})

    READERS.register("words", WordsConfig, Words)
    try:
        (tmp_path / "a.words").write_text("x y z")
        config = SourceConfig(path=str(tmp_path / "a.words"), format="words", options={"column": "w"})
        source = open_source(config, Store())
        assert source.read_all().to_pydict() == {"w": ["x", "y", "z"]}
        assert [table.num_rows for table in open_stream(config).tables()] == [2, 1]
    finally:
        READERS.unregister("words")


def test_bad_rows_and_files_are_skipped_and_counted_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n4,5,6\n7,8\n")
    (tmp_path / "b.csv").write_text("")
    source = open_source(SourceConfig(path=str(tmp_path)), Store(), on_error="skip")
    assert source.read_all().to_pylist() == [{"a": 1, "b": 2}, {"a": 7, "b": 8}]
    assert (source.faults.rows, source.faults.files) == (2, 1)
    assert "line 3" in " ".join(source.faults.examples)
    (tmp_path / "c.csv").write_text("a,b\n1,2\n3\n4\n")
    with pytest.raises(DataError, match="2 rows cannot be read, only 1 can; the options of the format"):
        open_source(SourceConfig(path=str(tmp_path / "c.csv")), Store(), on_error="skip")


def test_options_of_a_format_are_checked(open_file: Callable[..., Source]) -> None:
    with pytest.raises(ConfigError, match=r"options\.delimeter: .*Did you mean 'delimiter'\?"):
        open_file(b"a\n1\n", options={"delimeter": ";"})
    with pytest.raises(ConfigError, match=r"unknown format 'cvs'\. Did you mean 'csv'\?"):
        open_file(b"a\n1\n", format="cvs")
    with pytest.raises(ConfigError, match="unknown encoding 'utf-9'"):
        open_file(b"a\n1\n", options={"encoding": "utf-9"})
    with pytest.raises(SchemaError, match="has 1 columns, but `names` gives 2"):
        open_file(b"a\n1\n", options={"names": ["a", "b"]})


def test_true_and_false_are_one_and_zero_where_numbers_are_declared(open_file: Callable[..., Source]) -> None:
    content = b"flag,share\nTrue,false\n,0.5\nFALSE,1\n"
    source = open_file(content, columns={"flag": "int64", "share": "float64"})
    assert source.read_all().to_pylist() == [
        {"flag": 1, "share": 0.0},
        {"flag": None, "share": 0.5},
        {"flag": 0, "share": 1.0},
    ]


def test_times_are_read_as_they_are_said_to_be_written(open_file: Callable[..., Source]) -> None:
    content = b"at,other\n12/31/2024 18:30,1/2\n,3/4\n1/2/2024 0:05,x\n"
    source = open_file(content, options={"time_format": "%m/%d/%Y %H:%M"})
    assert source.read_all().to_pylist() == [
        {"at": datetime.datetime(2024, 12, 31, 18, 30), "other": "1/2"},
        {"at": None, "other": "3/4"},
        {"at": datetime.datetime(2024, 1, 2, 0, 5), "other": "x"},
    ]
    with pytest.raises(
        SchemaError, match=r"row 1: column 'at' is declared as timestamp.*time_format: \"%m/%d/%Y %H:%M\""
    ):
        open_file(content, columns={"at": "timestamp"})
    with pytest.raises(ConfigError, match="does not say where year, month and day are"):
        open_file(content, options={"time_format": "%H:%M"})


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M", None])
def test_times_in_text_are_read_in_every_format(
    open_file: Callable[..., Source], suffix: str, form: str | None
) -> None:
    moments = [datetime.datetime(2024, 12, 31, 18, 30), None, datetime.datetime(2024, 1, 2, 0, 5)]
    texts = ["" if moment is None else moment.strftime(form or "%Y-%m-%d %H:%M:%S") for moment in moments]
    table = pa.table({"at": texts, "n": [1, 2, 3]})
    content = as_json(table).encode() if suffix == "jsonl" else as_parquet(table)
    options = {} if form is None else {"time_format": form}
    source = open_file(content, f"data.{suffix}", options=options, columns={"at": "timestamp"})
    assert plain(source) == [{"at": moment, "n": n} for n, moment in enumerate(moments, start=1)]
    if form is not None:
        with pytest.raises(
            SchemaError, match=r"'31.12.2024 18:30'.*say how it is written: `options: {time_format: "
        ):
            open_file(content, f"data.{suffix}", columns={"at": "timestamp"}).read_all()


def test_declared_types_are_kept_and_checked(open_file: Callable[..., Source]) -> None:
    content = b'id,seconds,flag,list\n1,1709209800,yes,"[1, 2]"\n'
    source = open_file(content, columns={"id": "string", "seconds": "int64", "list": "list<int64>"})
    assert source.read_all().to_pylist() == [
        {"id": "1", "seconds": 1709209800, "flag": "yes", "list": [1, 2]}
    ]
    with pytest.raises(
        SchemaError, match=r"data\.csv, row 1: column 'flag' is declared as int64, but holds 'yes'"
    ):
        open_file(content, columns={"flag": "int64"})
    with pytest.raises(SchemaError, match=r"`columns:` states a type for 'flg', .*Did you mean 'flag'\?"):
        open_file(content, columns={"flg": "int64"})
