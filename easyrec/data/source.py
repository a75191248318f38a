"""Opens tables, whatever their format and however many files: for repeated reading in any order, or once in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pydantic import ValidationError

from easyrec.config.data import READERS, SourceConfig
from easyrec.data.column_types import DECLARED, DICTIONARY, cast, kind_of, unify
from easyrec.data.conversion import converted
from easyrec.data.files import COMPRESSED, DataFile, find_files, format_of
from easyrec.data.readers.base import BATCH_ROWS, Faults, Reader
from easyrec.data.row_groups import Source, is_partition
from easyrec.data.store import Store, fingerprint
from easyrec.errors import ConfigError, DataError, SchemaError, nearest


def open_source(
    config: SourceConfig,
    store: Store,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
) -> Source:
    """Opens a table for repeated reading in any order; text files are converted to Parquet first, in the store.

    Raises:
        DataError: A file is missing, empty or damaged, or a row cannot be read (unless `on_error` says to skip).
        SchemaError: The files do not fit each other.
        ConfigError: The format or its options are wrong.
    """
    faults = Faults(on_error)
    reader, files, format_name = _reader(config, storage_options, faults)
    schema, files = _unified(reader, files, config, faults)
    described = [(file.name, file.location, file.size, file.version) for file in files]

    def key_of(mode: str) -> str:
        return fingerprint([format_name, config.options, config.columns, mode, described])

    key = key_of(on_error)
    if reader.random_access:
        source = Source(reader, files, schema, [file.name for file in files], faults, key)
    else:
        source = converted(reader, files, schema, store, faults, key)
    source.strict_fingerprint = key_of("fail")
    if source.num_rows == 0:
        raise DataError(f"{_named(files)} holds no rows{_skipped(faults)}")
    return source


def read_like(source: SourceConfig, paths: Sequence[str]) -> SourceConfig:
    """Other files, read as those of a source are: with its options, unless their suffix says another format.

    Args:
        source: How the known files are read.
        paths: The other files.
    """
    alike = {None, source.format, *map(format_of, source.path)}
    if alike.issuperset(map(format_of, paths)):
        return source.model_copy(update={"path": tuple(paths)})
    return SourceConfig(path=tuple(paths), columns=source.columns)


@dataclass(frozen=True)
class TableStream:
    """A table read once, in order, without conversion.

    Attributes:
        schema: Its columns.
        faults: What is left out; complete when the tables have been read.
    """

    schema: pa.Schema
    faults: Faults
    _reader: Reader
    _files: tuple[DataFile, ...]

    @property
    def unread(self) -> Mapping[str, pa.DataType]:
        """Columns whose types are not read."""
        return self._reader.unread

    @property
    def name(self) -> str:
        """The files, for messages."""
        return _named(self._files)

    def tables(
        self, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """The rows in order, about `batch_rows` at a time.

        Raises:
            DataError: A file is damaged, or a value does not fit its column's type.
        """
        names = self.schema.names if columns is None else list(columns)
        for file in self._files:
            partitions = {key: value for key, value in file.partitions if is_partition(self.schema, key)}
            stored = [name for name in names if name not in partitions]
            for table in self._reader.read(file, self.schema, stored, batch_rows=batch_rows):
                arrays = {
                    name: cast(
                        pa.array([partitions[name]] * table.num_rows, pa.string()),
                        self.schema.field(name).type,
                    )
                    if name in partitions
                    else table.column(name)
                    for name in names
                }
                yield pa.table(arrays)


def open_stream(
    config: SourceConfig,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    types: Mapping[str, pa.DataType] | None = None,
) -> TableStream:
    """Opens a table to be read once, in order, with bounded memory, whatever its format; for prediction.

    Args:
        config: The files.
        storage_options: Passed to fsspec.
        on_error: What happens with rows and files that cannot be read.
        types: Types that columns are known to have, where the files' own types are text or not stated.

    Raises:
        DataError: A file is missing, empty or damaged.
        SchemaError: The files do not fit each other.
    """
    faults = Faults(on_error)
    reader, files, _ = _reader(config, storage_options, faults, types)
    schema, files = _unified(reader, files, config, faults)
    return TableStream(schema, faults, reader, tuple(files))


def _reader(
    config: SourceConfig,
    storage_options: Mapping[str, Any] | None,
    faults: Faults,
    types: Mapping[str, pa.DataType] | None = None,
) -> tuple[Reader, list[DataFile], str]:
    if config.format is not None and config.format not in READERS:
        raise ConfigError(f"unknown format {config.format!r}.{nearest(config.format, READERS.names())}")
    files = find_files(config.path, storage_options, any_suffix=config.format is not None)
    name = config.format or _common_format(files)
    part = READERS[name]
    options = dict(config.options)
    if name == "csv" and any(
        files[0].name.lower().removesuffix(end).endswith((".tsv", ".tab")) for end in ("", *COMPRESSED)
    ):
        options.setdefault("delimiter", "\t")
    try:
        reader_config = part.config.model_validate(options)
    except ValidationError as error:
        known = list(part.config.model_fields)
        lines = []
        for problem in error.errors():
            key = ".".join(str(item) for item in problem["loc"])
            hint = nearest(key, known) if problem["type"] == "extra_forbidden" else ""
            lines.append(f"options.{key}: {problem['msg']}, got {problem['input']!r}.{hint}")
        raise ConfigError(f"the options of the format {name!r} are wrong: {'; '.join(lines)}") from error
    declared = {**(types or {}), **{column: DECLARED[kind] for column, kind in config.columns.items()}}
    return part.load()(reader_config, declared, faults), files, name


def _common_format(files: Sequence[DataFile]) -> str:
    found: dict[str, DataFile] = {}
    for file in files:
        name = format_of(file.name)
        if name is None:
            raise DataError(
                f"{file.name}: the format cannot be told from the suffix; give `format:` with one of "
                f"{', '.join(READERS.names())}"
            )
        found.setdefault(name, file)
    if len(found) > 1:
        (one, first), (two, second) = list(found.items())[:2]
        raise DataError(
            f"files of different formats: {first.name} is {one}, {second.name} is {two}; "
            "give a glob that matches one kind"
        )
    return next(iter(found))


def _unified(
    reader: Reader, files: Sequence[DataFile], config: SourceConfig, faults: Faults
) -> tuple[pa.Schema, list[DataFile]]:
    """One schema for all files, and the files that could be read."""
    readable: list[DataFile] = []
    kinds: dict[str, pa.DataType] = {}
    seen_in: dict[str, DataFile] = {}
    partitioned: dict[str, list[str | None]] = {}
    for file in files:
        try:
            schema = reader.schema(file)
        except SchemaError:
            raise
        except DataError as error:
            faults.bad_file(error)
            continue
        _check_kinship(file, schema, readable, kinds)
        readable.append(file)
        for column in schema:
            before = kinds.get(column.name, pa.null())
            both = unify(before, column.type)
            if both is None and not reader.random_access and pa.string() in (before, column.type):
                both = pa.string()  # text files have no types of their own
            if both is None:
                raise SchemaError(
                    f"column {column.name!r} is {kind_of(before)} in {seen_in[column.name].name}, but "
                    f"{kind_of(column.type)} in {file.name}; state one type under `columns:`, such as "
                    f"`{column.name}: string`"
                )
            kinds[column.name] = both
            seen_in.setdefault(column.name, file)
        for key, value in file.partitions:
            partitioned.setdefault(key, []).append(value)
    if not readable:
        raise DataError(f"none of the files can be read{_skipped(faults)}")
    unknown = [name for name in config.columns if name not in kinds and name not in partitioned]
    if unknown:
        raise SchemaError(
            f"`columns:` states a type for {unknown[0]!r}, which {_named(files)} does not have."
            f"{nearest(unknown[0], kinds)}"
        )
    fields = [pa.field(name, kind) for name, kind in kinds.items()]
    for name, values in partitioned.items():
        if name not in kinds:
            kind = DECLARED[config.columns[name]] if name in config.columns else _partition_type(values)
            fields.append(pa.field(name, kind, metadata={"partition": "1"}))
    return pa.schema(fields), readable


def _check_kinship(
    file: DataFile, schema: pa.Schema, before: Sequence[DataFile], kinds: Mapping[str, pa.DataType]
) -> None:
    if before and len(set(schema.names) & set(kinds)) * 2 < min(len(schema.names), len(kinds)):
        raise SchemaError(
            f"{before[0].name} and {file.name} have hardly a column in common "
            f"({', '.join(list(kinds)[:4])} / {', '.join(schema.names[:4])}); they are not parts of one table. "
            "Give one of them, or a glob that matches one kind"
        )


def _partition_type(values: Sequence[str | None]) -> pa.DataType:
    whole = all(value is None or (value.isdecimal() and str(int(value)) == value) for value in values)
    return pa.int64() if whole and any(value is not None for value in values) else DICTIONARY


def _named(files: Sequence[DataFile]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _skipped(faults: Faults) -> str:
    if not faults.examples:
        return ""
    return f" ({faults.rows} rows and {faults.files} files were skipped; first: {faults.examples[0]})"
