"""What an expression yields over given columns, and whether its parts fit, checked before any data are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from easyrec.config.columns import LISTS, ColumnInfo, ColumnKind
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
)
from easyrec.errors import nearest

ValueKind = Literal["number", "string", "condition", "timestamp", "several"]
"""What a node yields; "several" are lists and maps, which only `is null` accepts."""


def check_types(expression: Expression, columns: Mapping[str, ColumnInfo | ColumnKind]) -> ValueKind:
    """Checks an expression against the columns it will see.

    Args:
        expression: A parsed expression.
        columns: The columns that exist, with their kinds.

    Returns:
        What the expression yields.

    Raises:
        ExpressionError: A column does not exist (the nearest is named), or two parts do not fit each other.
    """
    kinds = {
        name: column.kind if isinstance(column, ColumnInfo) else column for name, column in columns.items()
    }
    return _Checker(expression.text, kinds).kind(expression.root)


def require_condition(expression: Expression, columns: Mapping[str, ColumnInfo | ColumnKind]) -> None:
    """Checks an expression and that it yields true or false.

    Raises:
        ExpressionError: It does not fit the columns, or yields something else.
    """
    checker = _Checker(expression.text, {})
    checker.condition(expression.root, check_types(expression, columns))


def parse_time(text: str) -> datetime:
    """Reads an ISO 8601 date or time, in UTC unless it names an offset.

    Raises:
        ValueError: It is neither.
    """
    value = datetime.fromisoformat(text.strip())
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class _Checker:
    def __init__(self, text: str, kinds: Mapping[str, ColumnKind]) -> None:
        self._text = text
        self._kinds = kinds

    def _error(self, node: Node, reason: str) -> ExpressionError:
        return ExpressionError(reason, self._text, node.position)

    def kind(self, node: Node) -> ValueKind:
        match node:
            case Column():
                return self._column(node)
            case Constant(value=value):
                return _constant_kind(value)
            case Negate(operand=operand):
                self._number(operand)
                return "number"
            case Arithmetic(left=left, right=right):
                self._number(left)
                self._number(right)
                return "number"
            case Comparison():
                self._comparison(node)
            case Membership():
                self._membership(node)
            case NullTest(operand=operand):
                self.kind(operand)
            case Not(operand=operand):
                self.condition(operand, self.kind(operand))
            case Logical(operands=operands):
                for operand in operands:
                    self.condition(operand, self.kind(operand))
        return "condition"

    def condition(self, node: Node, kind: ValueKind) -> None:
        """Refuses a node of another kind where true or false is needed."""
        if kind == "condition":
            return
        hint = f"; write `{_name(node)} != 0`" if isinstance(node, Column) and kind == "number" else ""
        raise self._error(node, f"a condition is needed here, but {_describe(node, kind)}{hint}")

    def _column(self, node: Column) -> ValueKind:
        if node.name not in self._kinds:
            raise self._error(
                node, f"no such column: {_shorten(node.name)!r}.{nearest(node.name, self._kinds)}"
            )
        return value_kind(self._kinds[node.name])

    def _number(self, node: Node) -> None:
        kind = self.kind(node)
        if kind not in ("number", "condition"):
            raise self._error(node, f"arithmetic needs a number, but {_describe(node, kind)}")

    def _comparison(self, node: Comparison) -> None:
        left, right = self.kind(node.left), self.kind(node.right)
        for part, kind in ((node.left, left), (node.right, right)):
            if kind == "several":
                raise self._error(part, f"only single values can be compared, but {_describe(part, kind)}")
        self._comparable(node, node.left, left, node.right, right)

    def _membership(self, node: Membership) -> None:
        kind = self.kind(node.operand)
        if kind == "several":
            raise self._error(
                node.operand, f"only single values can be looked up, but {_describe(node.operand, kind)}"
            )
        for value in node.values:
            self._comparable(value, node.operand, kind, value, _constant_kind(value.value))

    def _comparable(
        self, at: Node, left: Node, left_kind: ValueKind, right: Node, right_kind: ValueKind
    ) -> None:
        kinds = {left_kind, right_kind}
        if len(kinds) == 1 or kinds == {"number", "condition"}:
            return
        if kinds == {"timestamp", "string"}:
            text = right if left_kind == "timestamp" else left
            if isinstance(text, Constant):
                self._time(text)
                return
        hint = ""
        for part, other, other_kind in ((left, right, right_kind), (right, left, left_kind)):
            if isinstance(part, Constant) and isinstance(part.value, (int, float)) and other_kind == "string":
                hint = (
                    f"; write '{part.value}' in quotes, or cast `{_name(other)}` under `columns:` of its file"
                )
        raise self._error(
            at,
            f"these cannot be compared: {_describe(left, left_kind)}, {_describe(right, right_kind)}{hint}",
        )

    def _time(self, node: Constant) -> None:
        try:
            parse_time(str(node.value))
        except ValueError:
            raise self._error(
                node, f"{node.value!r} is not a date or time such as '2024-01-31' or '2024-01-31T08:00:00'"
            ) from None


def value_kind(kind: ColumnKind) -> ValueKind:
    """What a column of this kind yields in an expression."""
    if kind in ("int", "float"):
        return "number"
    if kind == "bool":
        return "condition"
    if kind == "map" or kind in LISTS:
        return "several"
    return "timestamp" if kind == "timestamp" else "string"


def _constant_kind(value: str | int | float | bool) -> ValueKind:
    if isinstance(value, bool):
        return "condition"
    return "string" if isinstance(value, str) else "number"


def _name(node: Node) -> str:
    return node.name if isinstance(node, Column) else "it"


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _describe(node: Node, kind: ValueKind) -> str:
    noun = {
        "number": "a number",
        "string": "a string",
        "condition": "true or false",
        "timestamp": "a timestamp",
        "several": "a list or map",
    }[kind]
    match node:
        case Column(name=name):
            return f"the column `{_shorten(name)}` is {noun}"
        case Constant(value=value):
            return f"{_shorten(repr(value))} is {noun}"
        case _:
            return f"this is {noun}"
