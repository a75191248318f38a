"""Names that stand for many: `I*`, `C?`, `{age,income}_*`.

    *        any characters, none included
    ?        one character
    {a,b}    each of these; alternatives may hold * and ?

Matching is case-sensitive and over the whole name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

MAX_ALTERNATIVES = 10_000
"""A pattern with more combinations of braces than this is refused."""


def is_pattern(name: str) -> bool:
    """Whether a name holds `*`, `?` or a group in braces."""
    return "*" in name or "?" in name or ("{" in name and "}" in name)


def alternatives(pattern: str) -> list[str]:
    """The pattern with its groups in braces written out, in order.

    Raises:
        ValueError: Braces are nested or not closed, or there are too many combinations.
    """
    expanded = [""]
    for piece in re.split(r"(\{[^{}]*\})", pattern):
        if piece.startswith("{") and piece.endswith("}"):
            choices = [choice.strip() for choice in piece[1:-1].split(",")]
        elif "{" in piece or "}" in piece:
            raise ValueError("braces are not closed, or nested")
        else:
            choices = [piece]
        expanded = [start + choice for start in expanded for choice in choices]
        if len(expanded) > MAX_ALTERNATIVES:
            raise ValueError(f"the groups in braces stand for more than {MAX_ALTERNATIVES:,} names")
    return list(dict.fromkeys(expanded))


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern without braces matches, in their order.

    Args:
        pattern: A name, or a pattern with `*` and `?`.
        names: What may match.
    """
    # Square brackets mean themselves here; fnmatch would read them as a set of characters.
    expression = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    return [name for name in names if expression.match(name)]


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern, braces included, matches a name."""
    try:
        return any(matching(alternative, [name]) for alternative in alternatives(pattern))
    except ValueError:
        return False
