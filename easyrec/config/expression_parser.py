"""Tokens and a recursive descent parser for the grammar in `easyrec.config.expressions`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from easyrec.config.expression_tree import (
    Arithmetic,
    Column,
    Comparison,
    Constant,
    ExpressionError,
    Logical,
    Membership,
    Negate,
    Node,
    Not,
    NullTest,
)

MAX_DEPTH = 50
"""Expressions nested (or chained with + - * /) deeper than this are refused."""

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<name>[^\W\d]\w*)
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<=|>=|[<>+\-*/()\[\],])
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_OTHER_LANGUAGES = {
    "&&": "write `and`",
    "||": "write `or`",
    "&": "write `and`",
    "|": "write `or`",
    "<>": "write `!=`",
    "!": "write `not`",
    "=": "write `==` to compare",
    "**": "powers are not part of the language; multiply",
    "%": "remainders are not part of the language",
}
_COMPARISONS: frozenset[str] = frozenset({"==", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True)
class _Token:
    kind: Literal["number", "name", "column", "string", "sign", "word", "end"]
    text: str
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(_unreadable(text, position), text, position)
        kind, value = match.lastgroup, match.group()
        if kind in ("number", "sign"):
            yield _Token(kind, value, position)  # type: ignore[arg-type]
        elif kind == "name":
            word = value.lower() in _WORDS
            yield _Token("word" if word else "name", value.lower() if word else value, position)
        elif kind == "quoted":
            yield _Token("column", value[1:-1].replace("``", "`"), position)
        elif kind == "string":
            yield _Token("string", _unescape(value[1:-1], text, position + 1), position)
        position = match.end()
    yield _Token("end", "", len(text))


def _unreadable(text: str, position: int) -> str:
    sign = text[position]
    if sign in "\"'`":
        return f"the {sign} that opens here is not closed" + (" or holds nothing" if sign == "`" else "")
    if sign.isdigit():
        return "this is not a number; a column whose name starts with a digit is written in backticks"
    for length in (2, 1):
        if hint := _OTHER_LANGUAGES.get(text[position : position + length]):
            return f"unexpected {text[position : position + length]!r}: {hint}"
    return f"unexpected character {sign!r}; a column's name with such a character is written in backticks"


def _unescape(body: str, text: str, position: int) -> str:
    parts = []
    index = 0
    while index < len(body):
        if body[index] != "\\":
            parts.append(body[index])
            index += 1
            continue
        if body[index + 1] not in _ESCAPES:
            raise ExpressionError(
                f"unknown escape '\\{body[index + 1]}'; a backslash itself is written \\\\",
                text,
                position + index,
            )
        parts.append(_ESCAPES[body[index + 1]])
        index += 2
    return "".join(parts)


class Parser:
    """Recursive descent, one method for each rule of the grammar.

    Args:
        text: The expression.

    Raises:
        ExpressionError: The text has a sign that is not part of the language.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._index = 0
        self._depth = 0

    def parse(self) -> Node:
        """The tree.

        Raises:
            ExpressionError: The text is not an expression.
        """
        if self._peek().kind == "end":
            raise ExpressionError("the expression is empty", self._text, 0)
        node = self._expression()
        if self._peek().kind != "end":
            raise self._unexpected("an operator such as `>=`, `and` or `+`, or the end")
        return node

    def _peek(self) -> _Token:
        return self._tokens[self._index]

    def _advance(self) -> _Token:
        token = self._peek()
        self._index += 1
        return token

    def _accept(self, kind: str, *texts: str) -> _Token | None:
        token = self._peek()
        return self._advance() if token.kind == kind and token.text in texts else None

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._peek()
        got = "the expression ends" if token.kind == "end" else f"got {token.text!r}"
        return ExpressionError(f"expected {wanted}, but {got}", self._text, token.position)

    def _deeper(self, position: int) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH} levels", self._text, position)

    def _expression(self) -> Node:
        self._deeper(self._peek().position)
        node = self._joined("or", lambda: self._joined("and", self._negation))
        self._depth -= 1
        return node

    def _joined(self, word: Literal["and", "or"], operand: Callable[[], Node]) -> Node:
        operands = [operand()]
        position = self._peek().position
        while self._accept("word", word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else Logical(word, tuple(operands), position)

    def _negation(self) -> Node:
        token = self._accept("word", "not")
        if token is None:
            return self._comparison()
        self._deeper(token.position)
        node = Not(self._negation(), token.position)
        self._depth -= 1
        return node

    def _comparison(self) -> Node:
        left = self._sum()
        token = self._peek()
        if token.kind == "sign" and token.text in _COMPARISONS:
            self._advance()
            self._refuse_null(token)
            node: Node = Comparison(token.text, left, self._sum(), token.position)  # type: ignore[arg-type]
        elif self._accept("word", "is"):
            negated = self._accept("word", "not") is not None
            if not self._accept("word", "null"):
                raise self._unexpected("`null` after `is`")
            node = NullTest(left, negated, token.position)
        elif self._accept("word", "in"):
            node = Membership(left, self._list(), False, token.position)
        elif self._accept("word", "not"):
            if not self._accept("word", "in"):
                raise self._unexpected("`in` after `not`")
            node = Membership(left, self._list(), True, token.position)
        else:
            return left
        after = self._peek()
        if (after.kind == "sign" and after.text in _COMPARISONS) or after.text in ("is", "in"):
            raise ExpressionError(
                "comparisons are not chained; join two of them with `and`", self._text, after.position
            )
        return node

    def _refuse_null(self, operator: _Token) -> None:
        if self._peek().kind == "word" and self._peek().text == "null":
            hint = "is not null" if operator.text == "!=" else "is null"
            raise ExpressionError(
                f"nothing compares with null; write `{hint}`", self._text, operator.position
            )

    def _list(self) -> tuple[Constant, ...]:
        if not self._accept("sign", "["):
            raise self._unexpected("a list such as [1, 2] after `in`")
        values = [self._constant()]
        while self._accept("sign", ","):
            values.append(self._constant())
        if not self._accept("sign", "]"):
            raise self._unexpected("`,` or `]`")
        return tuple(values)

    def _constant(self) -> Constant:
        minus = self._accept("sign", "-")
        if minus and self._peek().kind != "number":
            raise self._unexpected("a number")
        constant = self._maybe_constant()
        if constant is None:
            raise self._unexpected("a number, a quoted string, true or false")
        return Constant(-constant.value, minus.position) if minus else constant  # type: ignore[operator]

    def _maybe_constant(self) -> Constant | None:
        token = self._peek()
        if token.kind == "string":
            value: str | int | float | bool = token.text
        elif token.kind == "number":
            value = self._number(token)
        elif token.kind == "word" and token.text in ("true", "false"):
            value = token.text == "true"
        else:
            return None
        self._advance()
        return Constant(value, token.position)

    def _number(self, token: _Token) -> int | float:
        if token.text.isdigit() and len(token.text) < 20 and (whole := int(token.text)) < 2**63:
            return whole
        if math.isinf(value := float(token.text)):
            raise ExpressionError("this number is too large", self._text, token.position)
        return value

    def _sum(self) -> Node:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Node:
        return self._chain(self._unary, "*", "/")

    def _chain(self, operand: Callable[[], Node], *operators: str) -> Node:
        node, links = operand(), 0
        while token := self._accept("sign", *operators):
            links += 1
            self._deeper(token.position)
            node = Arithmetic(token.text, node, operand(), token.position)  # type: ignore[arg-type]
        self._depth -= links
        return node

    def _unary(self) -> Node:
        token = self._peek()
        if self._accept("sign", "-"):
            self._deeper(token.position)
            node: Node = Negate(self._unary(), token.position)
            self._depth -= 1
            return node
        if self._accept("sign", "("):
            node = self._expression()
            if not self._accept("sign", ")"):
                raise self._unexpected("`)`")
            return node
        if token.kind in ("name", "column"):
            self._advance()
            if self._peek().kind == "sign" and self._peek().text == "(" and token.kind == "name":
                raise ExpressionError(
                    f"{token.text!r} is called like a function; the language has none",
                    self._text,
                    token.position,
                )
            return Column(token.text, token.position)
        constant = self._maybe_constant()
        if constant is None:
            raise self._unexpected("a column, a number or a quoted string")
        return constant
