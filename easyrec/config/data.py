"""Where the data are, how they are read, joined, split and sampled."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from easyrec.config.base import PositiveFraction, StrictModel
from easyrec.registry import Registry

Paths = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: (value,) if isinstance(value, str) else value, json_schema_input_type=str | list[str]
    ),
]
ColumnType = Literal[
    "string",
    "int64",
    "float32",
    "float64",
    "bool",
    "timestamp",
    "list<string>",
    "list<int64>",
    "list<float32>",
]


class ReaderConfig(StrictModel):
    """Base of the options of file formats."""


class TimeText(StrictModel):
    """Files in which times may be written as text."""

    time_format: str | None = None
    """How times are written where that is not ISO 8601, such as "%m/%d/%Y %H:%M" for 12/31/2024 18:30."""

    @field_validator("time_format")
    @classmethod
    def _reads_dates(cls, value: str | None) -> str | None:
        if value is not None and not _is_time_format(value):
            raise ValueError(
                f"{value!r} does not say where year, month and day are; write it like %m/%d/%Y or %d.%m.%y %H:%M:%S"
            )
        return value


class ParquetReader(ReaderConfig, TimeText):
    """Apache Parquet: any column types, lists and maps included."""


class CsvReader(ReaderConfig, TimeText):
    """Delimited text, quoted, plain or compressed (.gz, .bz2, .zst, .xz)."""

    delimiter: str | None = Field(None, min_length=1)
    """What stands between cells, such as ";" or "::"; a tab is "\\t". Found from the first lines unless given."""
    header: bool = True
    """Whether the first line names the columns."""
    names: list[str] | None = Field(None, min_length=1)
    """Column names, when there is no header or to replace it; else `column_1`, `column_2`, ..."""
    quote: str | None = Field('"', min_length=1, max_length=1)
    """Quote character; null for none."""
    encoding: str = "utf-8"
    """Character encoding of the file."""
    null_values: list[str] = ["", "NULL", "null", "NA", "N/A", "nan", "NaN", "\\N"]
    """Cells that mean missing; a quoted cell never does."""
    strip: bool = False
    """Remove spaces around the text of cells; numbers never mind them."""

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            codecs.lookup(value)
        except LookupError:
            raise ValueError(
                f"unknown encoding {value!r}; common ones: utf-8, utf-16, cp1252, gb18030"
            ) from None
        return value

    @field_validator("names")
    @classmethod
    def _distinct_names(cls, value: list[str] | None) -> list[str] | None:
        twice = [name for name, count in Counter(value or ()).items() if count > 1]
        if twice:
            raise ValueError(f"the column name {twice[0]!r} is given twice")
        return value


def _is_time_format(text: str) -> bool:
    """Whether a date can be read with it."""
    moment = datetime(2024, 11, 23)
    try:
        return datetime.strptime(moment.strftime(text), text).date() == moment.date()
    except (ValueError, re.error):
        return False


class JsonReader(ReaderConfig, TimeText):
    """JSON lines: one object a line, plain or compressed (.gz, .bz2, .zst, .xz)."""


READERS: Registry[ReaderConfig] = Registry("file format", ReaderConfig)
READERS.register("parquet", ParquetReader, "easyrec.data.readers.parquet:ParquetSource")
READERS.register("csv", CsvReader, "easyrec.data.readers.csv:CsvSource")
READERS.register("json", JsonReader, "easyrec.data.readers.json:JsonSource")


class KeysConfig(StrictModel):
    """Columns that say who, what and when."""

    user: str | None = None
    """Column that identifies the user."""
    item: str | None = None
    """Column that identifies the item."""
    time: str | None = None
    """Column with the time of the interaction: a timestamp, a date, or seconds or milliseconds since 1970."""


class SourceConfig(StrictModel):
    """One table: its files and how to read them."""

    path: Paths
    """File, glob, folder (hive-partitioned folders included) or fsspec URL; or a list of them."""
    format: str | None = None
    """`parquet`, `csv`, `json` or a plug-in's; found from the suffix unless given."""
    options: dict[str, Any] = {}
    """Options of the format, such as `{delimiter: ";"}` for CSV."""
    columns: dict[str, ColumnType] = {}
    """Casts: the type a column is read as."""


def _source(value: Any) -> Any:
    return {"path": value} if isinstance(value, (str, list, tuple)) else value


Source = Annotated[
    SourceConfig, BeforeValidator(_source, json_schema_input_type=str | list[str] | SourceConfig)
]


class TablesConfig(StrictModel):
    """Tables joined to the interactions on the user or item key."""

    user: Source | None = None
    """One row a user; holds the column `keys.user`."""
    item: Source | None = None
    """One row an item; holds the column `keys.item`. It is also the catalogue that is recommended from."""


class SplitConfig(StrictModel):
    """How evaluation rows are held out of the training data when `data.eval` is not given."""

    type: Literal["random", "time", "user", "user_latest"] = "random"
    """`random` rows; the latest rows by `time`; all rows of some users; each user's latest rows."""
    fraction: PositiveFraction = 0.1
    """Share of rows (or users) held out."""
    seed: int = 0
    """Seed of the random choices."""


class NegativesConfig(StrictModel):
    """Items sampled from the catalogue and added as rows with label 0, so that a ranker learns what is not chosen."""

    per_row: int = Field(4, ge=1)
    """How many sampled rows are added to each training row that `where` holds for."""
    where: str | None = None
    """Which rows get them, such as `rating >= 4`; all rows unless given."""
    sampling: Literal["uniform", "popularity"] = "uniform"
    """Each item alike, or by its count in the training data to the power of `power`."""
    power: float = Field(0.75, ge=0, le=1)
    """Exponent of the count under `popularity`."""


class DataConfig(StrictModel):
    """The data of a pipeline."""

    train: Source
    """Training interactions."""
    eval: Source | None = None
    """Evaluation interactions; else held out of `train` as `split` says."""
    keys: KeysConfig = KeysConfig()
    """Columns that identify user, item and time."""
    tables: TablesConfig = TablesConfig()
    """User and item tables."""
    split: SplitConfig | None = None
    """How to hold out evaluation rows; `data.eval` excludes it."""
    where: str | None = None
    """Only rows for which this expression holds are used."""
    weight: str | None = None
    """Sample weight: a column or an expression, at least 0."""
    negatives: NegativesConfig | None = None
    """Sampled negatives."""
    shuffle: bool = True
    """Read row groups in random order and mix rows in a buffer, anew each epoch."""
    shuffle_buffer: int = Field(262_144, ge=1)
    """Rows that are mixed with each other."""
    on_error: Literal["fail", "skip"] = "fail"
    """A row or file that cannot be read ends the run, or is skipped and counted."""
    storage_options: dict[str, Any] = {}
    """Passed to fsspec for URLs."""
