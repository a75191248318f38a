"""Files that hold a table: Parquet, CSV with any usual delimiter, JSON lines, Feather; one, or a folder of them."""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.json as pajson

from evaluation.errors import DataError

Format: TypeAlias = Literal["Parquet", "CSV", "JSON lines", "Feather"]

_SUFFIXES: dict[str, Format] = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".txt": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON lines",
    ".feather": "Feather",
    ".arrow": "Feather",
}
_COMPRESSED = (".gz", ".bz2", ".zst")
_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 20
_EXACT = 2.0**53


def format_of(path: Path) -> Format:
    """The format of a file by its suffix, or of a folder by that of its first file; Parquet by default."""
    named = min(_files(path), default=path) if path.is_dir() else path
    suffixes = [suffix.lower() for suffix in named.suffixes]
    plain = suffixes[-2:-1] if suffixes and suffixes[-1] in _COMPRESSED else suffixes[-1:]
    return _SUFFIXES.get(plain[0], "Parquet") if plain else "Parquet"


def schema_of(path: Path) -> Any:
    """The columns of a file or folder and their types.

    Raises:
        DataError: No such file, or one that cannot be read.
    """
    kind = format_of(path)

    def look() -> Any:
        if kind == "CSV":
            return _csv_schema(_one_or_more(path)[0])
        if kind == "JSON lines":
            return _read_json(path).schema
        return pads.dataset(path, format="feather" if kind == "Feather" else "parquet").schema

    def named() -> tuple[Any, list[str]]:
        schema = look()
        return schema, list(schema.names)  # names that are no UTF-8 fail here

    schema, names = _explained(path, kind, named)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has the column {twice[0]!r} twice: rename one of them.")
    return schema


def _csv_schema(path: Path) -> Any:
    layout = _Layout.of(path)
    try:
        with pacsv.open_csv(path, parse_options=layout.parse, convert_options=layout.convert()) as reader:
            return reader.schema
    except pa.ArrowInvalid:
        return _line_by_line(path, layout, None).schema


def _line_by_line(path: Path, layout: "_Layout", names: list[str] | None) -> Any:
    """Read slowly, for errors that name the line."""
    return pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(use_threads=False),
        parse_options=layout.parse,
        convert_options=layout.convert(names),
    )


def read_file(path: Path, names: Sequence[str]) -> Any:
    """The named columns of a file or folder as an Arrow table.

    Raises:
        DataError: It cannot be read; a line that does not fit is named.
    """
    kind, wanted = format_of(path), list(names)

    def read() -> Any:
        if kind == "CSV":
            parts = [_read_csv(one, wanted) for one in _one_or_more(path)]
            return pa.concat_tables(parts, promote_options="permissive")
        if kind == "JSON lines":
            return _read_json(path).select(wanted)
        return pads.dataset(path, format="feather" if kind == "Feather" else "parquet").to_table(
            columns=wanted
        )

    return _explained(path, kind, read)


def _explained(path: Path, kind: Format, do: Callable[[], Any]) -> Any:
    if not path.exists():
        raise DataError(f"There is no file {path}.")
    try:
        return do()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}). Save it as UTF-8.") from error
    except (pa.ArrowException, OSError) as error:
        text = str(error).strip().removesuffix(".")
        if "duplicate field names" in text:
            text += ": two of its columns have the same name, so rename one of them"
        elif kind == "Parquet" and path.suffix != ".parquet":
            text += (
                ". A file is taken for Parquet unless its name ends in .csv, .tsv, .txt, .jsonl, .ndjson, .feather or "
                ".arrow"
            )
        raise DataError(f"{path} cannot be read as {kind}: {text}.") from error


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))


def _one_or_more(path: Path) -> list[Path]:
    return sorted(_files(path)) if path.is_dir() else [path]


def _read_json(path: Path) -> Any:
    parts = [pajson.read_json(one) for one in _one_or_more(path)]
    return pa.concat_tables(parts, promote_options="permissive")


@dataclass(frozen=True)
class _Layout:
    """How a CSV file is written.

    Attributes:
        delimiter: Between fields.
        decimal_point: "." or ",".
    """

    delimiter: str
    decimal_point: str

    @classmethod
    def of(cls, path: Path) -> "_Layout":
        """From the first lines: the delimiter that the header has most of, and how its fractions are written."""
        with pa.input_stream(str(path), compression="detect") as stream:
            start = stream.read(1 << 16).decode("utf-8-sig", errors="ignore")
        lines = start.splitlines()[: _LOOKED_AT + 1]
        header = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
        is_tab = ".tsv" in path.name.lower()
        delimiter = "\t" if is_tab else max(_DELIMITERS, key=lambda one: (header.count(one), one == ","))
        fields = [field for row in csv.reader(lines[1:], delimiter=delimiter) for field in row]
        with_comma, with_point = (
            any(re.fullmatch(rf"-?\d+{mark}\d+", field) for field in fields) for mark in (",", r"\.")
        )
        return cls(delimiter, "," if with_comma and not with_point and delimiter != "," else ".")

    @property
    def parse(self) -> Any:
        """Options for Arrow's reader."""
        return pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def convert(self, names: list[str] | None = None, text: Sequence[str] = ()) -> Any:
        """Options for Arrow's conversion of some columns; those in `text` stay as they are written."""
        return pacsv.ConvertOptions(
            include_columns=names,
            decimal_point=self.decimal_point,
            column_types=dict.fromkeys(text, pa.string()),
        )


def _read_csv(path: Path, names: list[str]) -> Any:
    layout = _Layout.of(path)
    try:
        table = pacsv.read_csv(path, parse_options=layout.parse, convert_options=layout.convert(names))
    except pa.ArrowInvalid:
        table = _line_by_line(path, layout, names)
    rounded = [
        field.name
        for field in table.schema
        if pa.types.is_float64(field.type) and _is_rounded(table[field.name])
    ]
    if not rounded:
        return table
    # Whole numbers beyond 64 bits, as some keys are, would be rounded to floats, and different ones to the same.
    as_written = layout.convert(rounded, text=rounded)
    texts = pacsv.read_csv(path, parse_options=layout.parse, convert_options=as_written)
    for name in rounded:
        if pc.all(pc.match_substring_regex(texts[name].drop_null(), r"^-?\d+$")).as_py():
            table = table.set_column(table.column_names.index(name), name, texts[name])
    return table


def _is_rounded(column: Any) -> bool:
    largest = pc.max(pc.abs(column)).as_py()
    return largest is not None and _EXACT <= largest < float("inf")
