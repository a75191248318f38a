"""Tables and files are predicted whatever form they come in; columns are joined, kept, or missed by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from easyrec.errors import DataError, SchemaError
from easyrec.export import files
from easyrec.export.files import predict_files


def test_frames_of_every_form(films: Any, tables: Any) -> None:
    expected = films.trained.scores(tables.rows)["liked"]
    columns = {name: tables.rows[name].to_pylist() for name in tables.rows.column_names}
    pandas = tables.rows.to_pandas()
    pandas.index = pd.RangeIndex(1000, 1000 + len(pandas))
    for frame in (tables.rows, tables.rows.to_batches()[0], columns, pandas):
        found = films.bundle.predict(frame, batch_size=10)
        assert list(found.columns) == ["liked"]
        assert found["liked"].dtype == np.float32
        np.testing.assert_allclose(found["liked"], expected, atol=1e-5)
    assert films.bundle.predict(pandas).index.equals(pandas.index)
    assert films.bundle.predict(tables.rows.slice(0, 0)).shape == (0, 1)


def test_columns_of_users_and_items_are_joined(films: Any, tables: Any) -> None:
    expected = films.trained.scores(tables.rows)["liked"]
    pairs = {"user_id": ["100", "103", "103"], "movie_id": ["m0", "m1", "m8"]}
    np.testing.assert_allclose(films.bundle.predict(pairs)["liked"], expected[[0, 28, 35]], atol=1e-5)
    # What the frame has, counts.
    changed = films.bundle.predict(pairs | {"age": [50.0, 50.0, 50.0]})["liked"]
    assert not np.isclose(changed, expected[[0, 28, 35]], atol=1e-5).any()
    # Unknown keys: nothing is known of them.
    unknown = films.bundle.predict({"user_id": [-1], "movie_id": ["?"]})
    blank = {name: [None] for name in tables.rows.column_names} | {"user_id": [-1], "movie_id": ["?"]}
    np.testing.assert_allclose(unknown["liked"], films.bundle.predict(blank)["liked"], atol=1e-6)


def test_missing_columns_are_named(films: Any) -> None:
    with pytest.raises(SchemaError, match=r"lack .* 'movie_id' \(text\), 'genres' .*Did you mean 'movie'\?"):
        films.bundle.predict({"user_id": [100], "movie": ["m1"]})
    rows = {"user_id": [100], "movie_id": ["m1"]}
    del rows["user_id"]
    with pytest.raises(
        SchemaError, match=r"lack .* 'user_id' .*With 'user_id' they are taken from the bundle"
    ):
        films.bundle.predict(rows)


def test_columns_are_kept(films: Any) -> None:
    rows = {"user_id": [100, 101], "movie_id": ["m1", "m2"], "liked": [0, 1], "note": ["a", "b"]}
    found = films.bundle.predict(rows, keep=["note", "movie_id"])
    assert list(found.columns) == ["note", "movie_id", "liked"]
    assert found["note"].tolist() == ["a", "b"]
    found = films.bundle.predict(rows, keep={"liked": "label", "note": "note"})
    assert found["label"].tolist() == [0, 1]
    assert list(found.columns) == ["label", "note", "liked"]
    with pytest.raises(
        SchemaError, match=r"'liked' is also the name of a prediction.*--keep liked=liked_label"
    ):
        films.bundle.predict(rows, keep=["liked"])
    with pytest.raises(SchemaError, match=r"keep: the data have no column 'notes'\. Did you mean 'note'\?"):
        films.bundle.predict(rows, keep=["notes"])
    with pytest.raises(SchemaError, match="two columns would have one name"):
        films.bundle.predict(rows, keep={"note": "x", "liked": "x"})


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Pairs of user and item as text, with some columns more."""
    path = tmp_path / "pairs.csv"
    lines = [f"10{user},m{item},{user + item},text {item}" for user in range(6) for item in range(9)]
    path.write_text("\n".join(["user_id,movie_id,liked,note", *lines]) + "\n")
    return path


def read(path: Path) -> pa.Table:
    if ".parquet" in path.name:
        return pq.read_table(path)
    options = arrow_csv.ParseOptions(delimiter="\t" if ".tsv" in path.name else ",")
    return arrow_csv.read_csv(path, parse_options=options)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "csv.gz"])
def test_files_in_and_out(tmp_path: Path, films: Any, tables: Any, pairs: Path, suffix: str) -> None:
    expected = films.trained.scores(tables.rows)["liked"][:54]
    output = tmp_path / "new" / f"out.{suffix}"
    seen: list[int] = []
    report = predict_files(
        films.bundle,
        pairs,
        output,
        keep={"note": "note", "liked": "label"},
        batch_size=7,
        progress=seen.append,
    )
    assert (report.rows, report.skipped_rows, report.output) == (54, 0, output)
    assert seen == [54]
    found = read(output)
    assert found.column_names == ["note", "label", "liked"]
    np.testing.assert_allclose(found["liked"].to_numpy(), expected, atol=1e-5)
    assert found["label"].to_pylist()[:3] == [0, 1, 2]
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_parquet_in_several_parts_keeps_the_keys(tmp_path: Path, films: Any, tables: Any) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(tables.rows.slice(0, 30), tmp_path / "rows" / "a.parquet", row_group_size=11)
    rest = tables.rows.slice(30)
    position = rest.column_names.index("movie_id")
    rest = rest.set_column(position, "movie_id", rest["movie_id"].dictionary_encode())
    pq.write_table(rest, tmp_path / "rows" / "b.parquet")
    report = predict_files(films.bundle, str(tmp_path / "rows"), tmp_path / "out.parquet")
    assert report.rows == len(tables.rows)
    found = read(tmp_path / "out.parquet")
    assert found.column_names == ["user_id", "movie_id", "liked"]
    assert found["movie_id"].to_pylist() == tables.rows["movie_id"].to_pylist()
    np.testing.assert_allclose(
        found["liked"].to_numpy(), films.trained.scores(tables.rows)["liked"], atol=1e-5
    )


def test_a_failure_keeps_the_old_output(tmp_path: Path, films: Any, pairs: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("old")
    pairs.write_text(pairs.read_text() + "x,m1,0,bad\n")
    with pytest.raises(DataError, match="'x'"):
        predict_files(films.bundle, pairs, output)
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "pairs.csv"]


def test_bad_rows_are_skipped_on_demand(tmp_path: Path, films: Any, pairs: Path) -> None:
    pairs.write_text(pairs.read_text() + "100,m1,0,bad,too,many\n")
    with pytest.raises(DataError, match="6"):
        predict_files(films.bundle, pairs, tmp_path / "out.csv")
    report = predict_files(films.bundle, pairs, tmp_path / "out.csv", on_error="skip")
    assert (report.rows, report.skipped_rows) == (54, 1)
    assert report.examples


def test_outputs_that_cannot_be_written_are_refused(
    tmp_path: Path, films: Any, pairs: Path, tables: Any
) -> None:
    with pytest.raises(DataError, match=r"out\.xlsx must end in one of \.parquet, \.csv"):
        predict_files(films.bundle, pairs, tmp_path / "out.xlsx")
    with pytest.raises(DataError, match="is one of the files to predict and would be lost"):
        predict_files(films.bundle, pairs, pairs)
    with pytest.raises(DataError, match=r"cannot write .*out\.csv: File exists"):
        predict_files(films.bundle, pairs, pairs / "out.csv")
    pq.write_table(tables.rows, tmp_path / "rows.parquet")
    with pytest.raises(SchemaError, match=r"'recent' holds list.*, which text cannot; write .parquet"):
        predict_files(films.bundle, tmp_path / "rows.parquet", tmp_path / "out.csv", keep=["recent"])
    with pytest.raises(DataError, match="does not exist"):
        predict_files(films.bundle, tmp_path / "nothing.csv", tmp_path / "out.csv")


def test_a_wrong_value_is_placed_in_the_data(tmp_path: Path, films: Any) -> None:
    rows = pa.table(
        {
            "user_id": [100] * 10,
            "movie_id": ["m1"] * 10,
            "keywords": [["w1"]] * 10,
            "keyword_weights": [[1.0]] * 9 + [[1.0, 2.0]],
        }
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(
        DataError, match=r"rows 0 to 9 of the data: .*'keyword_weights' has 2 values in row 9"
    ):
        predict_files(films.bundle, tmp_path / "rows.parquet", tmp_path / "out.csv")
    assert files.SUFFIXES[0] == ".parquet"
