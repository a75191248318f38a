"""What the name of a column says."""

from __future__ import annotations

import re
from collections.abc import Iterable

# fmt: off
USER_WORDS = frozenset({
    "user", "uid", "visitor", "customer", "member", "client", "viewer", "reader", "person", "buyer",
    "session",
})
ITEM_WORDS = frozenset({
    "item", "iid", "movie", "product", "article", "video", "song", "track", "book", "news", "ad", "sku",
    "asin", "isbn", "recipe", "game", "business", "listing", "hotel", "show", "film", "anime",
    "restaurant", "post", "creative", "offer",
})
TIME_WORDS = frozenset({"timestamp", "time", "ts", "datetime", "date", "unixtime", "created", "at"})
LABEL_WORDS = frozenset({
    "label", "target", "click", "clicked", "clk", "like", "liked", "purchase", "purchased", "buy",
    "bought", "converted", "conversion", "response", "watched", "y", "installed", "finish", "income",
    "survived", "churn", "attrition", "approved", "churned", "default", "fraud", "outcome", "success", "attributed",
    "status", "class", "diagnosis", "died", "deny", "denied", "spam", "exited", "returned", "cancelled", "canceled",
})
CLASS_WORDS = frozenset({
    "label", "target", "outcome", "response", "y", "class", "species", "category", "type", "diagnosis", "status",
    "result", "grade", "topic", "sentiment",
})
ANSWER_WORDS = frozenset({"label", "target", "outcome", "response", "y"})
YES_WORDS = frozenset({"yes", "true", "y", "t", "positive", "survived", "success", "1"})
NO_WORDS = frozenset({"no", "false", "n", "f", "negative", "0"})
RATING_WORDS = frozenset({"rating", "ratings", "stars", "star", "score", "rate", "overall"})
CODE_WORDS = frozenset({
    "id", "code", "type", "category", "cat", "zip", "zipcode", "class", "group", "region", "segment",
    "industry", "occupation",
})
AMOUNT_WORDS = frozenset({
    "age", "count", "num", "number", "price", "amount", "qty", "quantity", "year", "weeks", "hours",
    "days", "size", "length", "duration", "total", "sum", "mean", "avg", "height", "weight", "distance",
    "cnt", "salary", "wage", "revenue", "cost", "fare", "value", "points", "years", "yrs", "minutes",
    "seconds", "rank",
})
SEQUENCE_WORDS = frozenset({"history", "hist", "recent", "sequence", "seq", "clicked", "viewed", "last"})
# fmt: on


def is_unnamed(name: str) -> bool:
    """Whether a name is only a number: `column_3`, `f3`, `_c3`."""
    return re.fullmatch(r"column_\d+|\d+|f\d+|c\d+|_c?\d+", name, re.IGNORECASE) is not None


def words_of(name: str) -> list[str]:
    """The words of a column's name: `userId`, `user_id` and `UserID` are user, id."""
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])", r"\1\3 \2\4", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", parts) if word]


def name_score(name: str, words: Iterable[str]) -> int:
    """How well a name fits: 3 for the word itself or with id, 2 for it as a part, 1 when it is glued to others."""
    parts = words_of(name)
    joined = "".join(parts)
    best = 0
    for word in words:
        if joined in (word, f"{word}id", f"{word}s", f"{word}key"):
            best = max(best, 3)
        elif word in parts and ("id" in parts or word in TIME_WORDS or len(parts) == 1):
            best = max(best, 2)
        elif len(word) > 3 and joined.startswith(word) and joined.endswith("id"):
            best = max(best, 1)
    return best


def has_name(name: str, words: Iterable[str]) -> bool:
    """Whether the whole name is one of the words."""
    return "".join(words_of(name)) in set(words)


def word_in(name: str, words: Iterable[str]) -> bool:
    """Whether one of the words is a part of the name."""
    parts = words_of(name)
    return any(word in parts or word == name.lower() for word in words)


def quoted(name: str) -> str:
    """A column's name as expressions write it."""
    words = {"and", "or", "not", "in", "is", "null", "true", "false"}
    plain = re.fullmatch(r"[^\W\d]\w*", name) is not None and name.lower() not in words
    return name if plain else "`" + name.replace("`", "``") + "`"
