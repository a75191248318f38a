"""Logs as Ibis tables with known columns. DuckDB by default; any Ibis table, of Spark for one, works as well."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import ibis

from evaluation.abtest.analysis.engines import short
from evaluation.abtest.analysis.service_log import is_service_log, service_log_sql
from evaluation.abtest.analysis.spark_logs import spark_events, spark_exposures
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.exposure_files import COLUMNS, exposures_sql, log_files
from evaluation.abtest.exposures import DROPPED
from evaluation.errors import did_you_mean

DAY = 86_400.0
_MILLISECONDS = 1e11
_REQUIRED_OF_EXPOSURES = ("timestamp", "experiment", "variant", "unit_id")


def open_exposures(connection: Any, path: str | os.PathLike[str]) -> Any:
    """An exposure log as a table of DuckDB or Spark; raises as `log_files`."""
    if connection.name != "duckdb":
        return spark_exposures(connection, str(path))
    return _opened(connection, exposures_sql(log_files(path)), path)


def open_events(
    connection: Any, path: str | os.PathLike[str], rename: Mapping[str, str] | None = None
) -> Any:
    """Events as a table: a service's event log, one file, or all Parquet, CSV or JSON-lines files of a folder.

    Args:
        connection: Of `evaluation.abtest.analysis.engines.connected`.
        path: Where they are.
        rename: Names of columns in the files by the names used here.

    Raises:
        ExperimentDataError: There is no such file, or a column to rename is missing.
    """
    if connection.name == "duckdb":
        table = _opened(connection, _events_sql(Path(path)), path)
    else:
        table = spark_events(connection, str(path))
    for name, old in (rename or {}).items():
        if old not in table.columns:
            raise ExperimentDataError(f"{path} has no column {old!r}; {did_you_mean(old, table.columns)}")
        table = table.drop(name) if name in table.columns and name != old else table
        table = table.rename({name: old})
    return table


def _events_sql(place: Path) -> str:
    if is_service_log(place):
        return service_log_sql(place)
    readers = {
        ".parquet": "read_parquet([{}], union_by_name=true)",
        ".csv": "read_csv([{}])",
        ".jsonl": "read_json([{}], format='newline_delimited')",
    }
    found = {
        suffix: [place] if place.is_file() and place.suffix == suffix else sorted(place.glob(f"**/*{suffix}"))
        for suffix in readers
    }
    chosen = [(suffix, files) for suffix, files in found.items() if files]
    if not chosen:
        raise ExperimentDataError(f"There are no events in {place}: expected .parquet, .csv or .jsonl files.")
    suffix, files = chosen[0]
    names = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    return f"SELECT * FROM {readers[suffix].format(names)}"


def _opened(connection: Any, query: str, path: str | os.PathLike[str]) -> Any:
    name = ibis.util.gen_name("log")
    try:
        connection.raw_sql(
            f'CREATE VIEW "{name}" AS SELECT *{_plain_times(connection, query)} FROM ({query})'
        )
        return connection.table(name)
    except duckdb.Error as error:
        raise ExperimentDataError(f"{path} cannot be read: {short(error)}") from error


def _plain_times(connection: Any, query: str) -> str:
    """What makes times of any resolution (pandas writes nanoseconds) those that Ibis knows."""
    described = connection.raw_sql(f"DESCRIBE {query}").fetchall()
    casts = [
        f'"{name}"::TIMESTAMP{"TZ" if "TZ" in kind or "ZONE" in kind else ""} AS "{name}"'
        for name, kind, *_ in described
        if kind.startswith("TIMESTAMP")
    ]
    return f" REPLACE ({', '.join(casts)})" if casts else ""


def lost_rows(exposures: Any) -> dict[tuple[str, str], int]:
    """Rows that an exposure log lost, by experiment and variant; `exposures` is a table of `open_exposures`."""
    if not {"kind", "rows"} <= set(exposures.columns):
        return {}
    lost = exposures.filter(exposures.kind == DROPPED)
    found = lost.group_by("experiment", "variant").aggregate(lost=lost.rows.sum())
    return {(row["experiment"], row["variant"]): int(row["lost"] or 0) for row in to_records(found)}


def exposure_rows(table: Any) -> Any:
    """An exposure table with `at` in seconds since 1970 and every known column, null where the log has none.

    Raises:
        ExperimentDataError: A column is missing, or the time is no time.
    """
    for name in _REQUIRED_OF_EXPOSURES:
        _need(table, name, "the exposure log")
    missing = {
        name: ibis.null(_IBIS_TYPES[kind]) for name, kind in COLUMNS.items() if name not in table.columns
    }
    table = table.mutate(**missing) if missing else table
    table = table.filter(ibis.coalesce(table.kind, "exposure") == "exposure")
    return table.mutate(
        at=seconds(table, "timestamp"),
        unit=_text(table.unit_id),
        variant=table.variant.cast("string"),
        forced=table.forced.fill_null(False),
        could_differ=table.could_differ.fill_null(True),
        fallback=table.fallback.fill_null(False),
        phase=table.phase.fill_null(1),
    )


_IBIS_TYPES = {
    "VARCHAR": "string",
    "DOUBLE": "float64",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "BOOLEAN": "boolean",
    "JSON": "json",
}


def event_rows(table: Any, unit: str) -> Any:
    """An event table with `at` in seconds, `type`, and `unit` as text.

    Args:
        table: Events.
        unit: Column with the unit's id, such as user_id.

    Raises:
        ExperimentDataError: A column is missing.
    """
    for name in ("type", "timestamp", unit):
        _need(table, name, "the table of events")
    rows = table.mutate(at=seconds(table, "timestamp"), unit=_text(table[unit]))
    return rows.filter(rows.unit.notnull() & (rows.unit != "") & rows.at.notnull())


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def nfc_normalize(text: str) -> str:  # type: ignore[empty-body]
    """DuckDB's function of this name; Spark has none, so ids there are taken as they are."""


def _text(column: Any) -> Any:
    """Ids as the assignment writes them: whole numbers without a fraction, no blanks around, normal form C."""
    if column.type().is_floating():
        return column.cast("int64").cast("string")
    text = column.cast("string")
    if not column.type().is_string():
        return text
    return (nfc_normalize(text) if column.get_backend().name == "duckdb" else text).strip()


def _need(table: Any, name: str, what: str) -> None:
    if name not in table.columns:
        raise ExperimentDataError(
            f"Column {name!r} is missing in {what}; {did_you_mean(name, table.columns)} Rename columns of events with "
            "--rename NAME=COLUMN."
        )


def seconds(table: Any, name: str) -> Any:
    """A column of times as float64 seconds since 1970, from timestamps or from seconds or milliseconds."""
    column = table[name]
    kind = column.type()
    if kind.is_timestamp():
        return column.epoch_seconds().cast("float64") + column.microsecond().cast("float64") / 1e6
    if kind.is_numeric():
        value = column.cast("float64")
        known = ~(value.isnan() | value.isinf())
        return ibis.ifelse(
            known, ibis.ifelse(value > _MILLISECONDS, value / 1000, value), ibis.null("float64")
        )
    raise ExperimentDataError(
        f"Column {name!r} must hold timestamps, or seconds or milliseconds since 1970; it holds {kind}."
    )


def real(value: float) -> Any:
    """A constant as float64 on every backend: Spark reads 1.0 as a decimal, and sums of decimals overflow to null."""
    return ibis.literal(repr(float(value))).cast("float64")


def numeric(table: Any, name: str, what: str) -> Any:
    """A column of numbers as float64, 0 where it is null.

    Raises:
        ExperimentDataError: There is no such column, or it holds no numbers.
    """
    if name not in table.columns:
        raise ExperimentDataError(f"{what} needs the column {name!r}; {did_you_mean(name, table.columns)}")
    kind = table[name].type()
    if not (kind.is_numeric() or kind.is_boolean()):
        raise ExperimentDataError(
            f"{what} adds up the column {name!r}, which holds {kind} and no numbers; convert it, or count events "
            "without `sum`."
        )
    value = table[name].cast("float64")
    return ibis.coalesce(ibis.ifelse(value.isnan(), real(0), value), real(0))


def attribute(table: Any, name: str) -> Any:
    """A column for a segment: one of the table's own, or a key of `attributes`; text, null where unknown."""
    if name in table.columns:
        return table[name].cast("string")
    column = table["attributes"]
    if column.type().is_struct():
        return column[name].cast("string") if name in column.type().names else ibis.null("string")
    return json_text(column, name)


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def from_json(text: str, schema: str) -> dict[str, str]:  # type: ignore[empty-body]
    """Spark's function of this name, which Ibis has no expression for."""


def json_text(column: Any, key: Any) -> Any:
    """The text under a key of a column of JSON objects; null where there is none."""
    if column.get_backend().name == "pyspark":
        return from_json(column, "map<string,string>")[key]
    return column.cast("json")[key].unwrap_as("string")


def condition_expr(table: Any, condition: Mapping[str, Any], what: str) -> Any:
    """A condition of `evaluation.abtest.conditions` as a boolean expression; false where a value is null.

    Raises:
        ExperimentDataError: A column is missing, or an operator does not exist for tables.
    """
    parts = [_part(table, name, value, what) for name, value in condition.items()]
    return ibis.and_(*parts)


def _part(table: Any, name: str, value: Any, what: str) -> Any:
    if name == "not":
        return ~condition_expr(table, value, what)
    if name in ("all", "any"):
        parts = [condition_expr(table, one, what) for one in value]
        return ibis.and_(*parts) if name == "all" else ibis.or_(*parts)
    if name not in table.columns:
        raise ExperimentDataError(f"{what} asks for the column {name!r}; {did_you_mean(name, table.columns)}")
    column = table[name]
    operators = value if isinstance(value, Mapping) else {"in" if isinstance(value, list) else "eq": value}
    return ibis.and_(*[_operator(column, operator, one, what) for operator, one in operators.items()])


def _operator(column: Any, operator: str, value: Any, what: str) -> Any:
    tests = {
        "eq": lambda: column == value,
        "ne": lambda: column != value,
        "in": lambda: column.isin(value),
        "nin": lambda: column.notin(value),
        "lt": lambda: column < value,
        "lte": lambda: column <= value,
        "gt": lambda: column > value,
        "gte": lambda: column >= value,
        "exists": lambda: column.notnull() if value else column.isnull(),
        "like": lambda: column.re_search(_pattern(str(value))),
    }
    if operator not in tests:
        raise ExperimentDataError(
            f"{what}: the operator {operator!r} does not work on tables; {did_you_mean(operator, tests)}"
        )
    test = tests[operator]()
    return test if operator == "exists" else test.fill_null(False)


def _pattern(text: str) -> str:
    parts = {"*": ".*", "?": "."}
    return "^" + "".join(parts.get(sign, re.escape(sign)) for sign in text) + "$"


def to_records(expression: Any) -> Sequence[dict[str, Any]]:
    """The rows of a small result."""
    return list(expression.to_pyarrow().to_pylist())
