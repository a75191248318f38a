"""A look at a table: a sample of rows from all over it, and what each column seems to hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easyrec.config.columns import ColumnKind
from easyrec.config.data import SourceConfig
from easyrec.data.column_types import cast, is_list, is_text, kind_of
from easyrec.data.files import find_files, format_of
from easyrec.data.inference.csv_options import CODE, csv_options
from easyrec.data.readers.base import UnreadableError, WidenError
from easyrec.data.readers.text import infer
from easyrec.data.readers.times import guess_form
from easyrec.data.row_groups import Source
from easyrec.data.source import open_source, open_stream
from easyrec.data.store import Store
from easyrec.errors import DataError

SAMPLE_ROWS = 100_000
_LOOKED_AT = 500_000
_PLACES = 20
_SEPARATORS = ("|", ";", ",", " ", "/")
_SMALL_WORDS = frozenset({"the", "a", "an", "of", "in", "is", "to", "for", "with", "on", "at", "no", "not"})
_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
_WEIGHTED = re.compile(r"^[^:]+:[-+]?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Numbers:
    """Statistics of a numeric column.

    Attributes:
        low: Smallest value.
        high: Largest value.
        median: Median.
        whole: Whether all values are whole.
    """

    low: float
    high: float
    median: float
    whole: bool


@dataclass(frozen=True)
class Tags:
    """How the cells of a text column split into values.

    Attributes:
        separator: What stands between values.
        values: Distinct values in the sample.
        longest: Values in the longest cell.
        weighted: Whether each value is `key:weight`.
    """

    separator: str
    values: int
    longest: int
    weighted: bool


@dataclass(frozen=True)
class ColumnProfile:
    """What a sample says of one column.

    Attributes:
        name: Name of the column.
        kind: What its values are.
        rows: Rows of the sample.
        missing: Rows without a value.
        distinct: Distinct values.
        examples: The most frequent values, or the first ones.
        repeats: Rows per distinct value.
        numbers: Statistics of numbers, else None.
        tags: How text splits into values, else None.
        words: Average number of words in a cell of text.
        longest: Values in the longest list, for lists.
        odd: Of text that is numbers but for at most a tenth of the rows: how many, and one of them.
    """

    name: str
    kind: ColumnKind
    rows: int
    missing: int
    distinct: int
    examples: tuple[Any, ...] = ()
    numbers: Numbers | None = None
    tags: Tags | None = None
    words: float = 0.0
    longest: int = 0
    odd: tuple[int, str] | None = None

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - self.missing

    @property
    def unique_share(self) -> float:
        """Distinct values by rows with a value."""
        return self.distinct / self.present if self.present else 0.0


@dataclass(frozen=True)
class TableProfile:
    """What a sample says of a table.

    Attributes:
        source: The files and how to read them.
        columns: Its columns, in order.
        rows: Rows of the table, when that is known without reading it all.
        sample: The sample.
        notes: What had to be found out to read it.
        unread: Columns that cannot be read, and why.
    """

    source: SourceConfig
    columns: dict[str, ColumnProfile]
    rows: int | None
    sample: pa.Table
    notes: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def profile(path: str, storage_options: Mapping[str, Any] | None = None) -> TableProfile:
    """Looks at a table.

    Args:
        path: File, glob, folder or URL.
        storage_options: Passed to fsspec.

    Raises:
        DataError: It cannot be read.
    """
    files = find_files([path], storage_options, any_suffix=False)
    name = format_of(files[0].name)
    if name is None:
        raise DataError(
            f"{files[0].name}: the format cannot be told from the suffix; known: .parquet, .csv, .tsv, .txt, .jsonl"
        )
    options, notes = csv_options(files[0]) if name == "csv" else ({}, {})
    config = SourceConfig(path=(path,), options=options)
    unread: dict[str, str] = {}
    if name == "parquet":
        sample, rows = _sample_files(config, storage_options, unread)
    else:
        sample, rows = _sample_stream(config, storage_options)
    times, form = _times_in_text(sample)
    if times and (form is not None or name == "parquet"):
        if form is not None:
            config = config.model_copy(update={"options": {**options, "time_format": form}})
            notes["time_format"] = "how times are written: look whether day and month are not confused"
        if name == "parquet":  # the others find types in the text by themselves
            config = config.model_copy(update={"columns": dict.fromkeys(times, "timestamp")})
            sample, rows = _sample_files(config, storage_options, unread)
        else:
            sample, rows = _sample_stream(config, storage_options)
    if sample.num_rows == 0:
        raise DataError(f"{files[0].name} holds no rows")
    columns = {column: _column(column, sample.column(column)) for column in sample.column_names}
    return TableProfile(config, columns, rows, sample, notes, unread)


def _times_in_text(sample: pa.Table) -> tuple[list[str], str | None]:
    """Columns of text that hold times, and the form that they are in unless it is ISO 8601.

    A file has one form: columns in another than the first one's stay text.
    """
    times, form = [], None
    for name in sample.column_names:
        column = sample.column(name)
        if not is_text(column.type):
            continue
        texts = cast(pc.unique(column).slice(0, 10_000), pa.string())
        own = guess_form(texts.to_pylist())
        if pa.types.is_timestamp(infer(texts)):
            times.append(name)
        elif own is not None and form in (None, own):
            times.append(name)
            form = own
    return times, form


def _sample_files(
    config: SourceConfig, storage_options: Mapping[str, Any] | None, unread: dict[str, str]
) -> tuple[pa.Table, int | None]:
    """A sample, and how many rows there are; columns that cannot be read are left out of it, and told in `unread`."""
    source = open_source(config, Store(), storage_options)
    unread |= {name: f"{kind}, which no feature reads" for name, kind in source.unread.items()}
    while True:
        try:
            names = [name for name in source.schema.names if name not in unread]
            return _sample_source(source, names), source.num_rows
        except UnreadableError as error:
            unread[error.column] = error.why


def _sample_source(source: Source, names: Sequence[str]) -> pa.Table:
    step = max(1, len(source.groups) // _PLACES)
    chosen = source.groups[::step][: _PLACES * 2]
    per_place = -(-SAMPLE_ROWS // len(chosen))
    parts = []
    for group in chosen:
        _, table = next(source.read(group, names, batch_rows=min(per_place, group.rows)))
        parts.append(table)
    return pa.concat_tables(parts).combine_chunks()


def _sample_stream(
    config: SourceConfig, storage_options: Mapping[str, Any] | None
) -> tuple[pa.Table, int | None]:
    """The first rows and a share of the later ones, and how many rows there are if they were all looked at."""
    types: dict[str, pa.DataType] = {}
    random = np.random.default_rng(0)
    while True:
        stream = open_stream(config, storage_options, types=types)
        kept: list[pa.Table] = []
        rows = 0
        try:
            for table in stream.tables():
                if rows >= SAMPLE_ROWS // 2:
                    table_kept = table.filter(
                        pa.array(random.random(table.num_rows) < SAMPLE_ROWS / _LOOKED_AT)
                    )
                else:
                    table_kept = table
                kept.append(table_kept)
                rows += table.num_rows
                if rows >= _LOOKED_AT:
                    break
        except WidenError as error:
            types[error.column] = error.wider
            continue
        whole = rows < _LOOKED_AT
        sample = pa.concat_tables(kept).combine_chunks() if kept else stream.schema.empty_table()
        return sample, rows if whole else None


def depends(sample: pa.Table, column: str, on: str) -> bool:
    """Whether each value of `on` goes with one value of `column` only, and comes again often enough to tell."""
    left, right = _codes(sample.column(on)), _codes(sample.column(column))
    known = left >= 0
    left, right = left[known], right[known]
    distinct = len(np.unique(left))
    if distinct * 2 > len(left):
        return False
    return len(np.unique(left * (int(right.max(initial=0)) + 2) + right)) == distinct


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """A number for each distinct value, -1 for a missing one."""
    values = column.combine_chunks()
    if is_list(values.type) or pa.types.is_map(values.type):
        values = pa.array(
            [None if value is None else repr(value) for value in values.to_pylist()], pa.string()
        )
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _column(name: str, column: pa.ChunkedArray) -> ColumnProfile:
    kind = kind_of(column.type)
    rows, missing = len(column), column.null_count
    present = pc.drop_null(column)
    if isinstance(present, pa.ChunkedArray):
        present = present.combine_chunks()
    if is_list(column.type):
        values = pc.list_flatten(present)
        longest = pc.max(pc.list_value_length(present)).as_py() or 0
        return ColumnProfile(name, kind, rows, missing, _distinct(values), _frequent(values), longest=longest)
    if kind == "map":
        return ColumnProfile(name, kind, rows, missing, len(present), tuple(present.slice(0, 1).to_pylist()))
    if pa.types.is_dictionary(present.type):
        present = present.dictionary_decode()
    numbers = None
    if pa.types.is_integer(present.type) or pa.types.is_floating(present.type):
        if pa.types.is_floating(present.type):
            finite = present.filter(pc.is_finite(present))
            missing += len(present) - len(finite)
            present = finite
        numbers = _numbers(present)
    if not is_text(present.type):
        return ColumnProfile(name, kind, rows, missing, _distinct(present), _frequent(present), numbers)
    return ColumnProfile(
        name,
        kind,
        rows,
        missing,
        _distinct(present),
        _frequent(present),
        tags=_tags(present),
        words=_words(present),
        odd=_odd(present),
    )


def _distinct(values: pa.Array) -> int:
    return int(pc.count_distinct(values).as_py()) if len(values) else 0


def _frequent(values: pa.Array) -> tuple[Any, ...]:
    if len(values) == 0:
        return ()
    counts = pc.value_counts(values)
    order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:4]
    return tuple(counts.field("values").take(pa.array(order)).to_pylist())


def _numbers(values: pa.Array) -> Numbers | None:
    if len(values) == 0:
        return None
    numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    whole = bool((numbers == np.floor(numbers)).all())
    return Numbers(float(numbers.min()), float(numbers.max()), float(np.median(numbers)), whole)


def _odd(texts: pa.Array) -> tuple[int, str] | None:
    """How many texts are no numbers, and the first of them, when most are."""
    others = texts.filter(pc.invert(pc.match_substring_regex(texts, _NUMBER)))
    return (len(others), str(others[0])) if 0 < len(others) * 10 <= len(texts) else None


def _words(texts: pa.Array) -> float:
    if len(texts) == 0:
        return 0.0
    return 1.0 + (pc.mean(pc.count_substring(pc.utf8_trim_whitespace(texts), " ")).as_py() or 0.0)


def _are_tags(cells: Sequence[Sequence[str]], values: Mapping[str, int]) -> bool:
    """Whether words between spaces are tags: few, in many different cells each, no word twice in a cell, some alone."""
    known = len(cells) >= 20 and len(values) <= 200 and sum(values.values()) >= 4 * len(values)
    once = all(len(set(cell)) == len(cell) for cell in cells)
    alone = sum(len(cell) == 1 for cell in cells) * 20 >= len(values)
    return known and once and alone and not any(value.lower() in _SMALL_WORDS for value in values)


def _tags(texts: pa.Array) -> Tags | None:
    """How the cells split: the separator that a good share of them has and whose values come again and again."""
    # Each cell once: a title that many rows repeat is not made of values that come again.
    sample = [text for text in pc.unique(texts).slice(0, 20_000).to_pylist() if text]
    if not sample:
        return None
    distinct_cells = len(sample)
    for separator in _SEPARATORS:
        cells = [text.split(separator) for text in sample]
        several = sum(len(cell) > 1 for cell in cells)
        if several < max(2, len(cells) * 0.1):
            continue
        values = Counter(value.strip() for cell in cells for value in cell if value.strip())
        total = sum(values.values())
        weighted = all(_WEIGHTED.match(value) for value in values)
        names = Counter(value.split(":", 1)[0] for value in values.elements()) if weighted else values
        coded = sum(count for value, count in values.items() if CODE.match(value)) > 0.9 * total
        if separator == " " and not coded and not _are_tags(cells, values):
            continue  # words of a sentence
        if separator in (",", "/") and any(" " in value for value in list(values)[:200]) and separator == "/":
            continue
        spaced = sum(value.startswith(" ") for cell in cells for value in cell[1:])
        if separator == "," and not coded and spaced > several and len(names) * 3 > total:
            continue  # a comma in a sentence
        if len(names) * 2 <= total and len(names) <= max(2 * distinct_cells, 4):
            return Tags(separator, len(names), max(map(len, cells)), weighted)
    return None
