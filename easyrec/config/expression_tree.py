"""The tree of a parsed expression, and the error that points into its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from easyrec.errors import ConfigError

ArithmeticOperator = Literal["+", "-", "*", "/"]
ComparisonOperator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Column:
    """The value of a column in the same row."""

    name: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Constant:
    """A number, a string, or true or false."""

    value: str | int | float | bool
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Negate:
    """`- operand`."""

    operand: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Arithmetic:
    """`left operator right`, a number."""

    operator: ArithmeticOperator
    left: Node
    right: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Comparison:
    """`left operator right`, a condition."""

    operator: ComparisonOperator
    left: Node
    right: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Membership:
    """`operand in [values]`, or `not in` when negated."""

    operand: Node
    values: tuple[Constant, ...]
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class NullTest:
    """`operand is null`, or `is not null` when negated."""

    operand: Node
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Not:
    """`not operand`."""

    operand: Node
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Logical:
    """Two or more conditions joined by `and` or by `or`."""

    operator: Literal["and", "or"]
    operands: tuple[Node, ...]
    position: int = field(default=0, compare=False)


Node = Column | Constant | Negate | Arithmetic | Comparison | Membership | NullTest | Not | Logical


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: What was parsed; error messages quote it.
        root: The tree.
    """

    text: str
    root: Node


class ExpressionError(ConfigError):
    """An expression cannot be read or does not fit the columns; the message points at the place."""

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason, self.text, self.position = reason, text, position
        start = text.rfind("\n", 0, position) + 1
        line = text[start:].split("\n", 1)[0].replace("\t", " ")
        super().__init__(f"{reason}\n    {line}\n    {' ' * (position - start)}^")

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, str, int]]:  # type: ignore[override]
        return type(self), (self.reason, self.text, self.position)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def children(node: Node) -> tuple[Node, ...]:
    """The direct operands of a node, left to right."""
    match node:
        case Arithmetic(left=left, right=right) | Comparison(left=left, right=right):
            return (left, right)
        case Membership(operand=operand, values=values):
            return (operand, *values)
        case Negate(operand=operand) | NullTest(operand=operand) | Not(operand=operand):
            return (operand,)
        case Logical(operands=operands):
            return operands
        case _:
            return ()
