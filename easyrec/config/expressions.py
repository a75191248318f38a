"""The small expression language of labels, filters and weights: `rating >= 4 and genre in ["Drama", "War"]`.

    expression  := conjunction ("or" conjunction)*
    conjunction := negation ("and" negation)*
    negation    := "not" negation | comparison
    comparison  := sum [("==" | "!=" | "<" | "<=" | ">" | ">=") sum
                       | ["not"] "in" "[" constant ("," constant)* "]"
                       | "is" ["not"] "null"]
    sum         := product (("+" | "-") product)*
    product     := unary (("*" | "/") unary)*
    unary       := "-" unary | "(" expression ")" | column | constant
    column      := name | "`" any text "`"
    constant    := number | "text" | 'text' | "true" | "false"

Words of the language are read in any case (`and`, `AND`). A column whose name is such a word, or holds spaces or
signs, is written in backticks. Logic is three-valued as in SQL: a comparison with a missing value is missing, and
callers take a missing condition for "no". NaN is a missing value. Arithmetic is done in float64; division by zero
gives a missing value. A string compared with a timestamp is read as an ISO 8601 date or time, in UTC unless it says
otherwise.

Nothing is ever evaluated as Python. The evaluators are `easyrec.data.expressions` and `easyrec.data.ibis_expressions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from easyrec.config.expression_parser import MAX_DEPTH, Parser
from easyrec.config.expression_tree import (
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
    children,
    walk,
)

__all__ = [
    "MAX_DEPTH",
    "Arithmetic",
    "Column",
    "Comparison",
    "Constant",
    "Expression",
    "ExpressionError",
    "Logical",
    "Membership",
    "Negate",
    "Node",
    "Not",
    "NullTest",
    "children",
    "columns",
    "parse",
    "parse_reference",
    "walk",
]


def parse(text: str) -> Expression:
    """Parses an expression.

    Args:
        text: Such as `rating >= 4`.

    Raises:
        ExpressionError: It is not one; a line with a caret points at the place.
    """
    return Expression(text, Parser(text).parse())


def parse_reference(text: str, columns: Mapping[str, object]) -> Expression:
    """Parses what may be a column's name, whatever signs the name holds, or else an expression.

    Args:
        text: Such as `liked`, `my-label` or `rating >= 4`.
        columns: The columns that exist.

    Raises:
        ExpressionError: It is neither.
    """
    return Expression(text, Column(text)) if text in columns else parse(text)


def columns(expression: Expression) -> set[str]:
    """The names of all columns an expression reads."""
    return {node.name for node in walk(expression.root) if isinstance(node, Column)}
