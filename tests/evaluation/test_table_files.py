"""Tables from files of other tools: delimiters, decimal commas, encodings, formats, and errors that name the place."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evaluation import DataError, auc, evaluate
from evaluation.tables import read_columns


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    score = generator.random(120).round(6)
    return pd.DataFrame(
        {
            "label": (generator.random(120) < score).astype(int),
            "score": score,
            "who; what": [f'a "{row}", b;c\nd' if row % 3 else "ä" for row in range(120)],
        }
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.CSV", {"sep": ";"}),
        ("a.csv.gz", {"sep": "\t"}),
        ("a.txt", {"sep": "|"}),
        ("a.tsv", {"sep": "\t"}),
        ("a.csv", {"sep": ";", "decimal": ","}),
        ("a.csv", {"encoding": "utf-8-sig"}),
        ("a.csv", {"lineterminator": "\r\n"}),
    ],
)
def test_csv_as_it_comes(table: pd.DataFrame, tmp_path: Path, name: str, options: dict[str, str]) -> None:
    table.to_csv(tmp_path / name, index=False, **options)  # type: ignore[call-overload]
    assert evaluate(tmp_path / name, intervals=False).value("auc") == auc(table["label"], table["score"])
    read = read_columns(tmp_path / name, ["who; what"])["who; what"]
    assert [text.replace("\r", "") for text in read] == table["who; what"].tolist()


def test_json_lines_feather_and_folders(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_feather(tmp_path / "a.feather")
    for kind in ("csv", "parquet", "ndjson"):
        folder = tmp_path / kind
        folder.mkdir()
        for place, part in enumerate((table[:50], table[50:])):
            if kind == "csv":
                part.to_csv(folder / f"{place}.csv", index=False)
            elif kind == "parquet":
                part.to_parquet(folder / f"{place}.parquet")
            else:
                part.to_json(folder / f"{place}.ndjson", orient="records", lines=True)
        (folder / "_SUCCESS").touch()
    expected = auc(table["label"], table["score"])
    for name in ("a.jsonl", "a.feather", "csv", "parquet", "ndjson"):
        assert evaluate(tmp_path / name, intervals=False).value("auc") == expected, name


def test_keys_beyond_64_bits_stay_apart(tmp_path: Path) -> None:
    keys = [18446744073709551615, 18446744073709551614, 18446744073709551613, 7]
    pd.DataFrame({"label": [0, 1, 0, 1], "score": [0.1, 0.9, 0.2, 1e300], "user": keys}).to_csv(
        tmp_path / "a.csv", index=False
    )
    columns = read_columns(tmp_path / "a.csv", ["user", "score"])
    assert len(set(columns["user"])) == 4
    assert columns["score"].dtype == np.float64
    assert evaluate(tmp_path / "a.csv", user="user").n_units == 4


def test_what_gives_an_arrow_stream_and_structured_arrays(table: pd.DataFrame) -> None:
    class Frame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.Table.from_pandas(table).__arrow_c_stream__(requested_schema)

    expected = auc(table["label"], table["score"])
    numbers = table[["label", "score"]]
    for given in (Frame(), pa.RecordBatch.from_pandas(table), numbers.to_records(index=False)):
        assert evaluate(given, intervals=False).value("auc") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"label,score\n1,0.5\n0,0.2,7\n", "Row #3: Expected 2 columns, got 3"),
        ("a.csv", "label,score,mü\n1,0.5,ä\n".encode("latin-1"), "is not UTF-8 text"),
        ("a.csv", b"", "cannot be read as CSV: Empty CSV file"),
        ("a.csv", b"label,score,score\n1,0.5,0.5\n", "has the column 'score' twice"),
        ("a.xlsx", b"PK", r"taken for Parquet unless its name ends in \.csv"),
        ("a.parquet", b"PAR1", "cannot be read as Parquet"),
        ("a.jsonl", b'{"label": 1', "cannot be read as JSON lines"),
        (
            "a.csv",
            b"label,score\n1,0.5\n0,high\n",
            "score must hold numbers, got text such as '0.5' in rows 0, 1",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        evaluate(tmp_path / name)


def test_tables_with_a_column_twice_or_of_other_lengths(table: pd.DataFrame) -> None:
    twice = pd.concat([table, table[["score"]]], axis=1)
    with pytest.raises(DataError, match="has the column 'score' twice"):
        evaluate(twice)
    with pytest.raises(DataError, match="Column 'user' has 3 rows but column 'label' has 2"):
        evaluate({"label": [1, 0], "score": [0.1, 0.3], "user": [1, 2, 3]}, user="user")
