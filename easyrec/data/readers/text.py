"""What the text formats share: compression, encodings, and types inferred from text and checked for every value."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from easyrec.data.column_types import CastError, cast, is_list, parse_time, unify
from easyrec.data.files import DataFile
from easyrec.data.readers.times import fits_form, read_times, without_blanks
from easyrec.errors import DataError

DAMAGED = (pa.ArrowException, OSError, EOFError, lzma.LZMAError, zlib.error)
"""What reading a damaged file raises."""
_NOT_CANONICAL = r"^[+-]?0[0-9]"
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LONG_WHOLE_NUMBER = r"^[+-]?[0-9]{16,}$"


def open_text(file: DataFile) -> IO[bytes]:
    """The bytes of a file, decompressed as its first bytes (not its name) say.

    Reading from what is returned raises a DataError that names the file where it is damaged or cut off.

    Raises:
        DataError: The file is empty or compressed in a way that is not read.
    """
    handle = file.open()
    head = handle.read(6)
    if not head:
        handle.close()
        raise DataError(f"{file.name} is empty (0 bytes)")
    handle.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return _named(file, gzip.GzipFile(fileobj=handle, mode="rb"))
    if head.startswith(b"BZh"):
        return _named(file, bz2.BZ2File(handle))
    if head.startswith(b"\xfd7zXZ"):
        return _named(file, lzma.LZMAFile(handle))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _named(file, pa.CompressedInputStream(pa.PythonFile(handle, "r"), "zstd"))
    if head.startswith((b"PAR1", b"PK\x03\x04")):
        kind = "Parquet" if head.startswith(b"PAR1") else "a zip archive"
        handle.close()
        raise DataError(f"{file.name} is {kind}, not text; give the right `format:`, or unpack it")
    return _named(file, handle)


class _Named(io.RawIOBase):
    """A byte stream whose faults name the file they are in."""

    def __init__(self, file: DataFile, stream: Any) -> None:
        self._file = file
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except DAMAGED as error:
            raise DataError(f"{self._file.name} is damaged or cut off: {error}") from error
        return data

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _named(file: DataFile, stream: Any) -> IO[bytes]:
    return _Named(file, stream)  # type: ignore[return-value]


def infer(texts: pa.Array | pa.ChunkedArray, time_format: str | None = None) -> pa.DataType:
    """The type that cells of text are read as: null, int64, float64, bool, timestamp or string.

    Whole numbers with leading zeros, or beyond 64 bits, are codes, not numbers: they stay strings.
    """
    values = pc.utf8_trim_whitespace(pc.drop_null(texts))
    values = values.filter(
        pc.not_equal(values, "")
    )  # a quoted empty cell is no number, but it can be a missing one
    if len(values) == 0:
        return pa.null()
    if _is_whole(values):
        return pa.int64()
    if _is_float(values):
        return pa.float64()
    lower = pc.utf8_lower(values)
    if pc.all(pc.is_in(lower, pa.array(["true", "false"]))).as_py():
        return pa.bool_()
    if pc.all(pc.match_substring_regex(values, _DATE)).as_py() and _is_time(values):
        return pa.timestamp("us")
    if time_format is not None and fits_form(_one_array(values), time_format):
        return pa.timestamp("us")
    return pa.string()


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _is_whole(values: pa.Array | pa.ChunkedArray) -> bool:
    try:
        whole = pc.cast(values, pa.int64())
    except pa.ArrowInvalid:
        return False
    # "007" and "0x1F" are read as numbers by the cast, but are not the text of one.
    return bool(pc.all(pc.equal(pc.cast(whole, values.type), values)).as_py())


def _is_float(values: pa.Array | pa.ChunkedArray) -> bool:
    try:
        pc.cast(values, pa.float64())
    except pa.ArrowInvalid:
        return False
    return not (_any(values, _NOT_CANONICAL) or _any(values, _LONG_WHOLE_NUMBER))


def _any(values: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _is_time(values: pa.Array | pa.ChunkedArray) -> bool:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    try:
        for chunk in chunks:
            parse_time(chunk)
    except pa.ArrowInvalid:
        return False
    return True


def widen(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type for cells of which some are read as `left` and some as `right`; text when nothing else fits."""
    return unify(left, right) or pa.string()


def from_text(texts: pa.Array, target: pa.DataType, time_format: str | None = None) -> pa.Array:
    """Cells of text as a declared type; lists are written as JSON arrays.

    Raises:
        CastError: A cell does not fit; it names the first.
    """
    if pa.types.is_string(target):
        return texts
    texts = without_blanks(texts)
    if is_list(target):
        return _lists_from_text(texts, target)
    if pa.types.is_timestamp(target) and time_format is not None:
        return cast(read_times(texts, time_format), target)
    try:
        return cast(texts, target)
    except CastError:
        if not (pa.types.is_integer(target) or pa.types.is_floating(target)):
            raise
        return cast(_true_as_one(texts), target)


def _true_as_one(texts: pa.Array) -> pa.Array:
    """`true` and `false` as 1 and 0, which a column of them is among numbers."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    for word, digit in (("true", "1"), ("false", "0")):
        texts = pc.if_else(pc.fill_null(pc.equal(words, word), False), digit, texts)
    return texts


def fits(texts: pa.Array, target: pa.DataType, time_format: str | None = None) -> pa.Array | None:
    """Cells of text as an inferred type, or None when one does not fit or would lose characters."""
    if pa.types.is_string(target):
        return texts
    texts = without_blanks(texts)
    values = pc.drop_null(texts) if texts.null_count else texts
    if len(values) == 0:
        return pa.nulls(len(texts), target)
    if pa.types.is_null(target):
        return None
    try:
        converted = from_text(texts, target, time_format)
    except CastError:
        return None
    trimmed = pc.utf8_trim_whitespace(values)
    if pa.types.is_integer(target):
        back = pc.cast(pc.drop_null(converted) if texts.null_count else converted, pa.string())
        return converted if pc.all(pc.equal(back, trimmed)).as_py() else None
    if pa.types.is_floating(target):
        return None if _any(trimmed, _NOT_CANONICAL) or _any(trimmed, _LONG_WHOLE_NUMBER) else converted
    if pa.types.is_boolean(target):
        words = pc.is_in(pc.utf8_lower(trimmed), pa.array(["true", "false"]))
        return converted if pc.all(words).as_py() else None
    return converted


def _lists_from_text(texts: pa.Array, target: pa.DataType) -> pa.Array:
    rows: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            value = None if text is None else json.loads(text)
            rows.append(pa.scalar(value, target).as_py())
        except (ValueError, pa.ArrowException, TypeError) as error:
            raise CastError(text, row, target) from error
    return pa.array(rows, target)


def undecodable(file: DataFile, encoding: str) -> DataError | None:
    """An error that says where a file cannot be decoded and which encoding it probably has; None if it can."""
    position = 0
    with open_text(file) as handle:
        head = handle.read(4)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and not encoding.lower().startswith("utf-16"):
        return DataError(f"{file.name} is not {encoding}: it begins like UTF-16. Give `encoding: utf-16`")
    with open_text(file) as handle:
        for number, line in enumerate(_lines(handle), start=1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                bad = line[error.start : error.start + 1]
                return DataError(
                    f"{file.name}, line {number}: byte {bad!r} at position {position + error.start} of the file is not "
                    f"{encoding}. The file may be {_guess(line)}: give `options: {{encoding: {_guess(line)}}}`"
                )
            position += len(line)
    return None


def _lines(handle: IO[bytes]) -> Iterator[bytes]:
    yield from io.BufferedReader(handle) if isinstance(handle, io.RawIOBase) else handle


def guess_encoding(head: bytes) -> str:
    """The encoding of a file, from its first bytes."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for line in head.splitlines()[:-1] or [head]:
        try:
            line.decode()
        except UnicodeDecodeError:
            return _guess(line)
    return "utf-8"


def _guess(line: bytes) -> str:
    for encoding in ("gb18030", "shift_jis", "euc_kr"):
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError:
            continue
        foreign = [character for character in text if ord(character) > 127]
        if foreign and all("\u3000" <= character <= "\ud7ff" for character in foreign):
            return encoding
    try:
        line.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def line_of(file: DataFile, text: str, encoding: str, at_least: int) -> int:
    """The 1-based line of the file that a bad record stands on; `at_least` when it cannot be found."""
    first = text.splitlines()[0] if text else ""
    with open_text(file) as handle:
        for number, line in enumerate(_lines(handle), start=1):
            if number >= at_least and line.decode(encoding, "replace").rstrip("\r\n") == first:
                return number
    return at_least
