"""What a file format has to provide, and how faults in rows and files are treated and counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from easyrec.config.data import ReaderConfig
from easyrec.data.files import DataFile
from easyrec.errors import DataError, SchemaError

BATCH_ROWS = 32_768
"""Rows of a chunk, about."""


@dataclass
class Faults:
    """What could not be read and was left out, when the configuration says `on_error: skip`.

    Attributes:
        on_error: `fail` raises at the first fault; `skip` counts.
        rows: Rows left out.
        files: Files left out.
        examples: The first few, in words.
    """

    on_error: Literal["fail", "skip"] = "fail"
    rows: int = 0
    files: int = 0
    examples: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set, repr=False)

    def bad_row(self, message: str, rows: int = 1) -> None:
        """Reports rows that cannot be read.

        Raises:
            DataError: Unless they are skipped.
        """
        if self.on_error == "fail":
            raise DataError(f"{message}. With `data.on_error: skip` such rows are left out and counted")
        self.rows += rows
        self._example(message)

    def bad_file(self, error: DataError) -> None:
        """Reports a file that cannot be read.

        Raises:
            DataError: Unless it is skipped.
        """
        if self.on_error == "fail":
            raise error
        if str(error) not in self._seen:  # a damaged file is met again in every pass
            self._seen.add(str(error))
            self.files += 1
            self._example(str(error))

    def _example(self, message: str) -> None:
        if len(self.examples) < 5:
            self.examples.append(message)

    def add(self, other: Faults) -> None:
        """Counts what another count holds."""
        self.rows += other.rows
        self.files += other.files
        for message in other.examples:
            self._example(message)


class Reader(ABC):
    """One file format.

    A reader whose files can be entered at any row group sets `random_access` and implements `row_groups`; files of the
    others are converted to Parquet once, in a cache folder, before training reads them many times.

    Args:
        config: The options of the format.
        declared: Types the user states, by column; the others are inferred.
        faults: Where bad rows are counted.
    """

    random_access: ClassVar[bool] = False

    def __init__(self, config: Any, declared: Mapping[str, pa.DataType], faults: Faults) -> None:
        self.config: ReaderConfig = config
        self.declared = declared
        self.faults = faults
        self.unread: dict[str, pa.DataType] = {}
        """Columns of files looked at so far whose types are not read, such as lists of lists."""

    @abstractmethod
    def schema(self, file: DataFile) -> pa.Schema:
        """The columns of a file with their normal types, from a look at its beginning or its footer.

        Raises:
            DataError: The file cannot be read.
        """

    @abstractmethod
    def read(
        self,
        file: DataFile,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        groups: Sequence[int] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """The rows in order, in tables of at most about `batch_rows` rows.

        Args:
            file: The file.
            schema: Columns and types wanted; a column the file lacks is null.
            columns: Only these, in this order.
            groups: Only these row groups.
            batch_rows: Rows of a table.

        Raises:
            DataError: The file is damaged, or a value does not fit its type.
            WidenError: A value does not fit a type that was inferred from the beginning of the file.
        """

    def row_groups(self, file: DataFile) -> list[int]:
        """Rows of each row group; only for `random_access`."""
        raise NotImplementedError


class UnreadableError(SchemaError):
    """A column holds what its type cannot say.

    Attributes:
        column: The column.
        why: What it holds, and what was read.
    """

    def __init__(self, message: str, column: str, why: str) -> None:
        self.column, self.why = column, why
        super().__init__(message)

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str, str]]:
        return type(self), (str(self), self.column, self.why)


class WidenError(DataError):
    """An inferred type does not fit a later value, and `wider` does.

    Attributes:
        column: The column.
        wider: The type that fits, or None when the user has to say.
    """

    def __init__(self, message: str, column: str, wider: pa.DataType) -> None:
        self.column, self.wider = column, wider
        super().__init__(message)

    def __reduce__(self) -> tuple[type[WidenError], tuple[str, str, pa.DataType]]:
        return type(self), (str(self), self.column, self.wider)
