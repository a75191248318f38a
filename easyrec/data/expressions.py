"""Evaluates parsed expressions (`easyrec.config.expressions`) over Arrow tables.

`ibis_expressions` gives the same values in a database:

    numbers     int64 or float64; arithmetic is float64; NaN, overflow and division by zero are missing (null)
    conditions  bool, three-valued: null where a missing value decides; a bool is 0 or 1 among numbers
    strings     compared by their bytes in UTF-8, as Arrow and DuckDB do
    timestamps  microseconds
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from easyrec.config.columns import ColumnKind
from easyrec.config.expression_types import check_types, parse_time
from easyrec.config.expressions import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    ExpressionError,
    Logical,
    Membership,
    Negate,
    Node,
    Not,
    NullTest,
    columns,
)
from easyrec.errors import DataError

_COMPARE = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_KINDS: tuple[tuple[Any, ColumnKind], ...] = (
    (pat.is_boolean, "bool"),
    (pat.is_integer, "int"),
    (pat.is_floating, "float"),
    (pat.is_decimal, "float"),
    (pat.is_string, "string"),
    (pat.is_large_string, "string"),
    (pat.is_string_view, "string"),
    (pat.is_null, "string"),
    (pat.is_timestamp, "timestamp"),
    (pat.is_date, "timestamp"),
    (pat.is_map, "map"),
)
_LISTS = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view, pat.is_large_list_view)
_LIST_KINDS: dict[ColumnKind | None, ColumnKind] = {
    "string": "list<string>",
    "int": "list<int>",
    "bool": "list<int>",
    "float": "list<float>",
}


def arrow_kind(type_: pa.DataType) -> ColumnKind | None:
    """The kind of column an Arrow type is, or None for one that is not supported (binary, struct, duration, ...)."""
    if pat.is_dictionary(type_):
        return arrow_kind(type_.value_type)
    if any(test(type_) for test in _LISTS):
        return _LIST_KINDS.get(arrow_kind(type_.value_type))
    return next((kind for test, kind in _KINDS if test(type_)), None)


def to_arrow(expression: Expression, table: pa.Table | pa.RecordBatch) -> pa.Array:
    """Evaluates an expression for each row.

    Args:
        expression: A parsed expression.
        table: Holds the columns it reads.

    Returns:
        One value a row: bool, int64, float64, string or timestamp; null where a missing value decides.

    Raises:
        ExpressionError: A column is missing, or two parts do not fit each other.
        DataError: A column cannot be used in an expression.
    """
    check_columns(
        expression,
        {field.name: arrow_kind(field.type) for field in table.schema},
        {field.name: str(field.type) for field in table.schema},
    )
    value = _Arrow(table, expression.text).value(expression.root)
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, table.num_rows)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def check_columns(expression: Expression, kinds: dict[str, ColumnKind | None], types: dict[str, str]) -> None:
    """Refuses an expression that does not fit the columns of a table.

    Args:
        expression: A parsed expression.
        kinds: The kind of each column; None for one that expressions cannot use.
        types: The type of each column, for messages.
    """
    for name in sorted(columns(expression)):
        if name in kinds and kinds[name] is None:
            raise DataError(
                f"the column {name!r} is of type {types[name]}, which expressions cannot use; "
                "cast it under `columns:` of its file"
            )
    check_types(expression, {name: kind for name, kind in kinds.items() if kind is not None})


def plain_values(values: list[str | int | float | bool]) -> list[str | int | float]:
    """Values of a list as strings, or as integers when all are whole, or as floats; true and false are 1 and 0."""
    plain = [int(value) if isinstance(value, bool) else value for value in values]
    if any(isinstance(value, float) for value in plain):
        return [float(value) for value in plain]
    return plain


def mixed_zones(text: str, node: Node) -> ExpressionError:
    """The error for a timestamp with a time zone beside one without."""
    return ExpressionError(
        "one of these timestamps has a time zone and the other has none; cast one of the columns",
        text,
        node.position,
    )


class _Arrow:
    """Evaluates nodes to Arrow arrays, or to scalars where no column is involved."""

    def __init__(self, table: pa.Table | pa.RecordBatch, text: str) -> None:
        self._table = table
        self._text = text

    def value(self, node: Node) -> Any:
        match node:
            case Column(name=name):
                return self._column(name)
            case Constant(value=value):
                return pa.scalar(value)
            case Negate(operand=operand):
                return pc.negate(_arrow_number(self.value(operand)))
            case Arithmetic(operator=operator, left=left, right=right):
                return _arrow_arithmetic(
                    operator, _arrow_number(self.value(left)), _arrow_number(self.value(right))
                )
            case Comparison(operator=operator, left=left, right=right):
                return self._compare(operator, self.value(left), self.value(right), node)
            case Membership(operand=operand, values=values, negated=negated):
                return self._membership(self.value(operand), values, negated)
            case NullTest(operand=operand, negated=negated):
                value = self.value(operand)
                return pc.is_valid(value) if negated else pc.is_null(value)
            case Not(operand=operand):
                return pc.invert(self.value(operand))
            case Logical(operator=operator, operands=operands):
                join = pc.and_kleene if operator == "and" else pc.or_kleene
                result = self.value(operands[0])
                for operand in operands[1:]:
                    result = join(result, self.value(operand))
                return result

    def _column(self, name: str) -> Any:
        """A column as bool, int64, float64 without NaN, string or microseconds; lists and maps stay as they are."""
        column = self._table[name]
        if pat.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = arrow_kind(column.type)
        if kind == "float":
            column = column.cast(pa.float64())
            return pc.if_else(pc.is_nan(column), None, column)
        if kind == "string":
            return column.cast(pa.string())
        if kind == "timestamp":
            return column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
        if kind != "int":
            return column
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError(
                f"the column {name!r} holds integers beyond 2**63 - 1: {error}; cast it to string or float64 "
                "under `columns:` of its file"
            ) from error

    def _compare(self, operator: str, left: Any, right: Any, node: Node) -> Any:
        if pat.is_timestamp(left.type) or pat.is_timestamp(right.type):
            left, right = _arrow_time(left, right), _arrow_time(right, left)
            if (left.type.tz is None) != (right.type.tz is None):
                raise mixed_zones(self._text, node)
        if pat.is_boolean(left.type) != pat.is_boolean(right.type):
            left, right = _arrow_integer(left), _arrow_integer(right)
        if pat.is_floating(left.type) != pat.is_floating(right.type):
            left, right = _arrow_number(left), _arrow_number(right)
        return _COMPARE[operator](left, right)

    def _membership(self, value: Any, values: tuple[Constant, ...], negated: bool) -> Any:
        value, wanted = _arrow_list(value, values)
        found = pc.is_in(value, value_set=wanted)
        if negated:
            found = pc.invert(found)
        return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def _arrow_list(value: Any, values: tuple[Constant, ...]) -> tuple[Any, pa.Array]:
    """A value and the constants it is looked up in, brought to one type."""
    if pat.is_timestamp(value.type):
        zone = value.type.tz is not None
        return value, pa.array(
            [constant_time(str(constant.value), zone=zone) for constant in values], value.type
        )
    wanted = plain_values([constant.value for constant in values])
    value = _arrow_integer(value)
    if pat.is_floating(value.type) or isinstance(wanted[0], float):
        # Look-ups go by bits; adding zero makes -0.0 the same as 0.0.
        return pc.add(_arrow_number(value), 0.0), pa.array([float(one) + 0.0 for one in wanted], pa.float64())
    return value, pa.array(wanted, value.type)


def _arrow_integer(value: Any) -> Any:
    return value.cast(pa.int64()) if pat.is_boolean(value.type) else value


def _arrow_number(value: Any) -> Any:
    return _arrow_integer(value).cast(pa.float64(), safe=False)


def _arrow_arithmetic(operator: str, left: Any, right: Any) -> Any:
    if operator == "/":
        result = pc.divide(left, pc.if_else(pc.equal(right, 0.0), None, right))
    else:
        result = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator](left, right)
    return pc.if_else(pc.is_finite(result), result, None)


def _arrow_time(value: Any, other: Any) -> Any:
    """A string constant as a timestamp of the other side's type."""
    if not pat.is_string(value.type):
        return value
    return pa.scalar(constant_time(value.as_py(), zone=other.type.tz is not None), other.type)


def constant_time(text: str, *, zone: bool) -> datetime:
    """A constant as a time in UTC, with or without its zone."""
    time = parse_time(text)
    return time if zone else time.replace(tzinfo=None)
