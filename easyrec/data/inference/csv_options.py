"""How a delimited file is written: encoding, delimiter, whether the first line names the columns."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

from easyrec.config.data import CsvReader
from easyrec.data.files import DataFile
from easyrec.data.readers.base import Faults
from easyrec.data.readers.csv import CsvSource
from easyrec.data.readers.text import guess_encoding, open_text
from easyrec.errors import DataError

CODE = re.compile(r"^\S*\d\S*$")
"""Text of one word with a digit: a number, a code, a date, but no name of a column."""


def csv_options(file: DataFile) -> tuple[dict[str, Any], dict[str, str]]:
    """Options that a delimited file needs, and why."""
    options: dict[str, Any] = {}
    notes: dict[str, str] = {}
    with open_text(file) as handle:
        head = handle.read(1 << 20)
    encoding = guess_encoding(head)
    if encoding != "utf-8":
        options["encoding"] = encoding
        notes["encoding"] = "the bytes are not UTF-8"
    reader = CsvSource(CsvReader(encoding=encoding), {}, Faults())
    delimiter = reader.delimiter(file)
    if delimiter != ",":
        options["delimiter"] = delimiter
        notes["delimiter"] = "cuts all lines into equally many cells"
    text = head.decode(encoding, "replace").lstrip("\ufeff")
    if len(delimiter) > 1:
        text = text.replace(delimiter, "\x1f")
    cells = csv.reader(io.StringIO(text), delimiter=delimiter if len(delimiter) == 1 else "\x1f")
    try:
        rows = list(itertools.islice((row for row in cells if row), 200))
    except csv.Error as error:
        raise DataError(f"{file.name} is no delimited text: {str(error).partition(' - ')[0]}") from error
    if not _has_header(rows):
        options["header"] = False
        notes["header"] = "the first line looks like data, so columns are called column_1, column_2, ..."
    if any(cell != cell.strip() for row in rows[1:] for cell in row):
        options["strip"] = True
        notes["strip"] = "cells have spaces around them"
    return options, notes


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names columns: no number in it, and no value that comes again below."""
    first = [cell.strip() for cell in rows[0]]
    if any(_is_number(cell) for cell in first):
        return False
    if all(CODE.match(cell) or not cell for cell in first) and len(first) > 1:
        return not any(
            cell in {row[index].strip() for row in rows[1:] if index < len(row)}
            for index, cell in enumerate(first)
        )
    again = sum(
        any(index < len(row) and row[index].strip() == cell for row in rows[1:])
        for index, cell in enumerate(first)
    )
    # A name twice is a fault that is told when names are read; so is a line of data taken for names, if they are words.
    return again * 2 < len(first) if len(set(first)) == len(first) else not again


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
