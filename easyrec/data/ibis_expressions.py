"""Translates parsed expressions (`easyrec.config.expressions`) for Ibis: the values are those of `expressions`."""

from __future__ import annotations

from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from easyrec.config.columns import ColumnKind
from easyrec.config.expressions import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Expression,
    Logical,
    Membership,
    Negate,
    Node,
    Not,
    NullTest,
)
from easyrec.data.expressions import arrow_kind, check_columns, constant_time, mixed_zones, plain_values


def to_ibis(expression: Expression, table: ir.Table) -> ir.Value:
    """Translates an expression for Ibis.

    Args:
        expression: A parsed expression.
        table: Holds the columns it reads.

    Returns:
        A column expression: boolean, int64, float64, string or timestamp.

    Raises:
        ExpressionError: A column is missing, or two parts do not fit each other.
        DataError: A column cannot be used in an expression.
    """
    schema = table.schema()
    check_columns(
        expression,
        {name: _ibis_kind(type_) for name, type_ in schema.items()},
        {name: str(type_) for name, type_ in schema.items()},
    )
    return _Ibis(table, expression.text).value(expression.root)


def _ibis_kind(type_: dt.DataType) -> ColumnKind | None:
    try:
        return arrow_kind(type_.to_pyarrow())
    except (TypeError, NotImplementedError, KeyError):
        return None


class _Ibis:
    """Translates nodes to Ibis values."""

    def __init__(self, table: ir.Table, text: str) -> None:
        self._table = table
        self._text = text

    def value(self, node: Node) -> Any:
        match node:
            case Column(name=name):
                return _ibis_column(self._table[name])
            case Constant(value=value):
                return ibis.literal(value, type=_constant_type(value))
            case Negate(operand=operand):
                return -_ibis_number(self.value(operand))
            case Arithmetic(operator=operator, left=left, right=right):
                return _ibis_arithmetic(
                    operator, _ibis_number(self.value(left)), _ibis_number(self.value(right))
                )
            case Comparison(operator=operator, left=left, right=right):
                return self._compare(operator, left, right, node)
            case Membership(operand=operand, values=values, negated=negated):
                found = self._membership(self.value(operand), values)
                return ~found if negated else found
            case NullTest(operand=operand, negated=negated):
                value = self.value(operand)
                return value.notnull() if negated else value.isnull()
            case Not(operand=operand):
                return ~self.value(operand)
            case Logical(operator=operator, operands=operands):
                result = self.value(operands[0])
                for operand in operands[1:]:
                    other = self.value(operand)
                    result = result & other if operator == "and" else result | other
                return result

    def _compare(self, operator: str, left_node: Node, right_node: Node, node: Node) -> Any:
        left, right = self.value(left_node), self.value(right_node)
        if left.type().is_timestamp() or right.type().is_timestamp():
            left, right = _ibis_time(left_node, left, right), _ibis_time(right_node, right, left)
            if (left.type().timezone is None) != (right.type().timezone is None):
                raise mixed_zones(self._text, node)
        if left.type().is_boolean() != right.type().is_boolean():
            left, right = _ibis_integer(left), _ibis_integer(right)
        return _ibis_compare(operator, left, right)

    def _membership(self, value: Any, values: tuple[Constant, ...]) -> Any:
        if value.type().is_timestamp():
            return value.isin([_ibis_time(constant, None, value) for constant in values])
        wanted = plain_values([constant.value for constant in values])
        value = _ibis_integer(value)
        if isinstance(wanted[0], float):
            value = _ibis_number(value)
        return value.isin([ibis.literal(one, type=value.type()) for one in wanted])


def _constant_type(value: str | int | float | bool) -> str:
    return {bool: "boolean", int: "int64", float: "float64", str: "string"}[type(value)]


def _ibis_column(column: Any) -> Any:
    type_ = column.type()
    if type_.is_floating():
        column = column.cast("float64")
        return ibis.ifelse(column.isnan(), ibis.null("float64"), column)
    if type_.is_decimal():
        return column.cast("float64")
    if type_.is_integer():
        return column.cast("int64")
    if type_.is_date():
        return column.cast("timestamp")
    return column.cast("string") if type_.is_null() else column


def _ibis_integer(value: Any) -> Any:
    return value.cast("int64") if value.type().is_boolean() else value


def _ibis_number(value: Any) -> Any:
    return _ibis_integer(value).cast("float64")


def _ibis_arithmetic(operator: str, left: Any, right: Any) -> Any:
    if operator == "/":
        result = left / right.nullif(ibis.literal(0.0, type="float64"))
    elif operator == "*":
        result = left * right
    else:
        result = left + right if operator == "+" else left - right
    return ibis.ifelse(result.isnan() | result.isinf(), ibis.null("float64"), result)


def _ibis_compare(operator: str, left: Any, right: Any) -> Any:
    match operator:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _ibis_time(node: Node, value: Any, other: Any) -> Any:
    if not isinstance(node, Constant):
        return value
    zone = other.type().timezone is not None
    return ibis.literal(
        constant_time(str(node.value), zone=zone), type=dt.Timestamp(timezone="UTC" if zone else None)
    )
