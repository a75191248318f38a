"""What columns mean: keys, labels, features, and what is better left out, each with the reason in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from easyrec.data.profile import ColumnProfile, TableProfile, depends
from easyrec.errors import DataError

_USER_WORDS = (
    "user",
    "uid",
    "visitor",
    "customer",
    "member",
    "client",
    "viewer",
    "reader",
    "person",
    "buyer",
    "session",
)
_ITEM_WORDS = (
    "item", "iid", "movie", "product", "article", "video", "song", "track", "book", "news", "ad", "sku", "asin", "isbn",
    "recipe", "game", "business", "listing", "hotel", "show", "film", "anime", "restaurant", "post", "creative", "offer",
)  # fmt: skip
_TIME_WORDS = ("timestamp", "time", "ts", "datetime", "date", "unixtime", "created", "at")
_LABEL_WORDS = (
    "label", "target", "click", "clicked", "clk", "like", "liked", "purchase", "purchased", "buy", "bought", "converted",
    "conversion", "response", "watched", "y", "is_click", "installed", "finish", "income", "survived", "churn", "churned",
    "default", "fraud", "outcome", "success", "attributed",
)  # fmt: skip
_RATING_WORDS = ("rating", "ratings", "stars", "star", "score", "rate", "overall")
_CODE_WORDS = (
    "id",
    "code",
    "type",
    "category",
    "cat",
    "zip",
    "zipcode",
    "class",
    "group",
    "region",
    "segment",
    "industry",
    "occupation",
)
_AMOUNT_WORDS = (
    "age", "count", "num", "number", "price", "amount", "qty", "quantity", "year", "weeks", "hours", "days", "size",
    "length", "duration", "total", "sum", "mean", "avg", "height", "weight", "distance", "cnt",
    "salary", "wage", "revenue", "cost", "fare", "value", "points", "years", "yrs", "minutes", "seconds", "rank",
)  # fmt: skip
_SEQUENCE_WORDS = ("history", "hist", "recent", "sequence", "seq", "clicked", "viewed", "last")
_SECONDS = (5e8, 5e9)
_FEW = 12
_NEAR_UNIQUE = 0.8


@dataclass(frozen=True)
class Choice:
    """One decision and why.

    Attributes:
        value: What was decided.
        why: The reason, one line.
    """

    value: Any
    why: str


@dataclass
class Findings:
    """What the columns of a data set mean.

    Attributes:
        keys: Column by key (`user`, `item`, `time`).
        task: Options of the task, its name included.
        label_columns: Columns the label is read from.
        features: Options of each feature, by column.
        left_out: Columns that are no feature.
        others: Further columns that could be labels.
    """

    keys: dict[str, Choice] = field(default_factory=dict)
    task: Choice | None = None
    task_name: str = ""
    label_columns: tuple[str, ...] = ()
    features: dict[str, Choice] = field(default_factory=dict)
    left_out: dict[str, Choice] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def infer(
    table: TableProfile,
    items: TableProfile | None = None,
    users: TableProfile | None = None,
    label: str | None = None,
) -> Findings:
    """Finds out what the columns mean.

    Args:
        table: The interactions.
        items: The item table.
        users: The user table.
        label: A column or expression that the user wants as the label.

    Raises:
        DataError: Nothing can be learned: there is no column that could be a label, and no user and item.
    """
    found = Findings()
    _find_keys(found, table, items, users)
    _find_label(found, table, label)
    key_columns = {choice.value for choice in found.keys.values()}
    for word in ("user", "item"):
        if word in found.keys:
            column = found.keys[word].value
            found.features[column] = Choice(
                {"type": "id"}, f"who the {word} is; its embedding is the heart of the model"
            )
    seen = {*key_columns, *found.label_columns}
    for profile in (table, users, items):
        for column in (profile.columns if profile is not None else {}).values():
            if column.name not in seen:
                seen.add(column.name)
                _find_feature(found, column, None if profile is table else "table", profile)
    _find_history(found)
    return found


# ------------------------------------------------------------------------------------------------------------ keys


def _find_keys(
    found: Findings, table: TableProfile, items: TableProfile | None, users: TableProfile | None
) -> None:
    columns = table.columns
    for word, words, other in (("user", _USER_WORDS, users), ("item", _ITEM_WORDS, items)):
        taken = {choice.value for choice in found.keys.values()}
        candidates = [
            column
            for column in columns.values()
            if column.kind in ("string", "int") and column.name not in taken
        ]
        if other is not None:
            shared = [column for column in candidates if column.name in other.columns]
            unique = [column for column in shared if other.columns[column.name].unique_share > 0.999]
            best = max(unique, key=lambda column: _name_score(column.name, words), default=None)
            if best is None:
                raise DataError(
                    f"the {word} table has no column that the interactions have too and that names each row once; the "
                    f"interactions have {', '.join(columns)}, the table has {', '.join(other.columns)}"
                )
            found.keys[word] = Choice(
                best.name, f"in both files, and different in each row of the {word} table"
            )
            continue
        named = [column for column in candidates if _name_score(column.name, words) and column.distinct > 1]
        best = max(named, key=lambda column: _name_score(column.name, words), default=None)
        if best is not None and not (best.unique_share > 0.99 and best.present > 100):
            found.keys[word] = Choice(
                best.name, f"by its name; {best.distinct} different ones in {best.present} sampled rows"
            )
    _find_time(found, columns)
    if "user" not in found.keys and "item" not in found.keys:
        _keys_by_place(found, columns)


def _find_time(found: Findings, columns: Mapping[str, ColumnProfile]) -> None:
    stamps = [column for column in columns.values() if column.kind == "timestamp" and column.distinct > 1]
    numbers = [
        column
        for column in columns.values()
        if column.numbers is not None and column.kind in ("int", "float") and _is_epoch(column)
    ]
    for column in sorted(stamps, key=lambda column: -_name_score(column.name, _TIME_WORDS)):
        found.keys["time"] = Choice(column.name, "a timestamp")
        return
    for column in numbers:
        named = _name_score(column.name, _TIME_WORDS)
        if named or (column.distinct > 20 and _is_unnamed(column.name)):
            unit = "milliseconds" if column.numbers and column.numbers.low > 1e11 else "seconds"
            found.keys["time"] = Choice(column.name, f"{unit} since 1970")
            return


def _is_epoch(column: ColumnProfile) -> bool:
    numbers = column.numbers
    if numbers is None or not numbers.whole:
        return False
    return any(_SECONDS[0] * unit <= numbers.low and numbers.high <= _SECONDS[1] * unit for unit in (1, 1000))


def _keys_by_place(found: Findings, columns: Mapping[str, ColumnProfile]) -> None:
    """User, item, value (and time) without names: the first two columns are codes that come again and again."""
    if not 2 <= len(columns) <= 4 or not all(_is_unnamed(name) for name in columns):
        return
    first, second = list(columns.values())[:2]
    if all(
        column.kind in ("int", "string") and column.distinct > 20 and column.unique_share < 0.5
        for column in (first, second)
    ):
        found.keys["user"] = Choice(
            first.name, f"the first column: {first.distinct} codes that come again and again"
        )
        found.keys["item"] = Choice(
            second.name, f"the second column: {second.distinct} codes that come again and again"
        )


def _is_unnamed(name: str) -> bool:
    return re.fullmatch(r"column_\d+|\d+|f\d+|c\d+|_c?\d+", name, re.IGNORECASE) is not None


def _words_of(name: str) -> list[str]:
    """The words of a column's name: `userId`, `user_id` and `UserID` are user, id."""
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])", r"\1\3 \2\4", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", parts) if word]


def _name_score(name: str, words: Iterable[str]) -> int:
    """How well a name fits: 3 for the word itself or with id, 2 for it as a part, 1 when it is glued to others."""
    parts = _words_of(name)
    joined = "".join(parts)
    best = 0
    for word in words:
        if joined in (word, f"{word}id", f"{word}s", f"{word}key"):
            best = max(best, 3)
        elif word in parts and ("id" in parts or word in _TIME_WORDS or len(parts) == 1):
            best = max(best, 2)
        elif len(word) > 3 and joined.startswith(word) and joined.endswith("id"):
            best = max(best, 1)
    return best


# ----------------------------------------------------------------------------------------------------------- label


def _find_label(found: Findings, table: TableProfile, wanted: str | None) -> None:
    columns = table.columns
    if wanted is not None:
        names = tuple(name for name in columns if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", wanted))
        if not names:
            raise DataError(
                f"the label {wanted!r} names no column of the data; there are {', '.join(columns)}"
            )
        found.label_columns = names
        if wanted in columns:
            found.task_name = wanted
            kind = "binary" if _is_binary(columns[wanted]) else "regression"
            found.task = Choice({"type": kind}, "as you said")
        else:
            found.task_name = "label"
            condition = re.search(r"[<>=]|\b(in|is|and|or|not)\b", wanted) is not None
            found.task = Choice(
                {"type": "binary" if condition else "regression", "label": wanted}, "as you said"
            )
        return
    taken = {choice.value for choice in found.keys.values()}
    free = [column for column in columns.values() if column.name not in taken]
    binary = [column for column in free if _is_binary(column)]
    named = [column for column in binary if _word_in(column.name, _LABEL_WORDS)]
    ratings = [
        column for column in free if _is_rating(column, unnamed="user" in found.keys and "item" in found.keys)
    ]
    two_words = [
        column for column in free if column.kind == "string" and column.distinct == 2 and not column.missing
    ]
    if named:
        _binary(found, named[0], "0 or 1, by its name what is to be predicted")
        found.others = [column.name for column in binary if column is not named[0]]
    elif ratings:
        _rating(found, table, ratings[0])
    elif binary and _is_unnamed(binary[0].name) and binary[0].name == next(iter(columns)):
        _binary(found, binary[0], "0 or 1 in the first column")
    elif binary and (len(binary) == 1 or binary[-1].name == list(columns)[-1]):
        _binary(found, binary[-1], "0 or 1")
        found.others = [column.name for column in binary[:-1]]
    elif two_words:
        _two_words(found, table, two_words[-1])
        found.others = [column.name for column in two_words[:-1]]
    elif binary:
        _binary(found, binary[0], "0 or 1")
        found.others = [column.name for column in binary[1:]]
    elif "user" in found.keys and "item" in found.keys:
        found.task_name = "chosen"
        found.task = Choice(
            {"type": "retrieval"}, "no column is a label, so each row is taken as an item that its user chose"
        )
    else:
        raise DataError(
            f"no column looks like a label (0 or 1, a rating, two words); the columns are {', '.join(columns)}. "
            "Name it with --label, such as --label clicked or --label 'price > 10'"
        )


def _is_binary(column: ColumnProfile) -> bool:
    if column.kind == "bool":
        return column.distinct == 2
    numbers = column.numbers
    return numbers is not None and column.distinct == 2 and (numbers.low, numbers.high) == (0.0, 1.0)


def _is_rating(column: ColumnProfile, unnamed: bool) -> bool:
    numbers = column.numbers
    if numbers is None or not 2 < column.distinct <= 101 or numbers.low < 0 or numbers.high > 100:
        return False
    if unnamed and _is_unnamed(column.name) and column.distinct <= 11 and numbers.high <= 10:
        return True
    return _word_in(column.name, _RATING_WORDS)


def _word_in(name: str, words: Iterable[str]) -> bool:
    parts = _words_of(name)
    return any(word in parts or word == name.lower() for word in words)


def _binary(found: Findings, column: ColumnProfile, why: str) -> None:
    found.task_name = column.name
    found.task = Choice({"type": "binary"}, f"{why}; {_share(column)}")
    found.label_columns = (column.name,)


def _share(column: ColumnProfile) -> str:
    return f"{column.missing} rows without it are left out" if column.missing else "every row has it"


def _rating(found: Findings, table: TableProfile, column: ColumnProfile) -> None:
    values = pc.drop_null(table.sample.column(column.name))
    numbers = column.numbers
    steps = sorted(pc.unique(values).to_pylist())
    top = numbers.high if numbers is not None else steps[-1]
    usual = 4 if top == 5 else 0.8 * top
    shares = {step: pc.mean(pc.cast(pc.greater_equal(values, step), "float64")).as_py() for step in steps[1:]}
    best = min(shares, key=lambda step: (not 0.05 <= shares[step] <= 0.8, abs(step - usual)))
    threshold = int(best) if float(best).is_integer() else best
    found.task_name = "liked"
    label = f"{_quoted(column.name)} >= {threshold}"
    found.task = Choice(
        {"type": "binary", "label": label},
        f"{column.name!r} runs from {steps[0]:g} to {steps[-1]:g}; {shares[best]:.0%} of the rows reach {threshold}",
    )
    found.label_columns = (column.name,)


def _two_words(found: Findings, table: TableProfile, column: ColumnProfile) -> None:
    counts = pc.value_counts(table.sample.column(column.name))
    pairs = sorted(zip(counts.field("counts").to_pylist(), counts.field("values").to_pylist(), strict=True))
    share = pairs[0][0] / sum(count for count, _ in pairs)
    rare = str(pairs[0][1])
    text = rare.replace("\\", "\\\\").replace('"', '\\"')
    found.task_name = "label"
    found.task = Choice(
        {"type": "binary", "label": f'{_quoted(column.name)} == "{text}"'},
        f"{column.name!r} is one of two words; {rare!r} is the rarer ({share:.0%})",
    )
    found.label_columns = (column.name,)


def _quoted(name: str) -> str:
    """A column's name as expressions write it."""
    words = {"and", "or", "not", "in", "is", "null", "true", "false"}
    plain = re.fullmatch(r"[^\W\d]\w*", name) is not None and name.lower() not in words
    return name if plain else "`" + name.replace("`", "``") + "`"


# -------------------------------------------------------------------------------------------------------- features


def _find_feature(
    found: Findings, column: ColumnProfile, table: str | None, profile: TableProfile | None
) -> None:
    """A feature for one column, or why it is none."""
    left_out = _useless(column, table, profile.rows if profile is not None else None)
    side, same_as = (None, None) if table is not None or profile is None else _side(found, column, profile)
    if left_out is None and same_as is not None:
        left_out = f"another name of {same_as!r}: each of its values goes with one value there, and back"
    if left_out is None and table is None and profile is not None and _gives_away(found, column, profile):
        left_out = (
            f"gives the answer away: each of its values goes with one value of {found.label_columns[0]!r}"
        )
    if left_out is not None:
        found.left_out[column.name] = Choice(None, left_out)
        return
    choice = _FEATURE_OF[column.kind](column)
    if isinstance(choice, str):
        found.left_out[column.name] = Choice(None, choice)
    elif (
        table is None and side is None and found.task is not None and found.task.value["type"] == "retrieval"
    ):
        found.left_out[column.name] = Choice(
            None, "says something of the choice, not of the user or the item alone"
        )
    elif side is not None:
        found.features[column.name] = Choice(
            {**choice.value, "side": side}, f"{choice.why}; the same wherever the {side} is"
        )
    else:
        found.features[column.name] = choice


def _side(found: Findings, column: ColumnProfile, profile: TableProfile) -> tuple[str | None, str | None]:
    """Whom a column of the interactions describes, and the key that it is another name of."""
    for word in ("item", "user"):
        if word in found.keys:
            key = found.keys[word].value
            if depends(profile.sample, column.name, key):
                again = column.distinct > 2 and depends(profile.sample, key, column.name)
                return word, key if again else None
    return None, None


def _gives_away(found: Findings, column: ColumnProfile, profile: TableProfile) -> bool:
    """Whether a column of few values says which label a row has."""
    if len(found.label_columns) != 1 or not 2 <= column.distinct <= 50:
        return False
    if column.kind not in ("string", "int", "bool", "float"):
        return False
    return depends(profile.sample, found.label_columns[0], column.name)


def _useless(column: ColumnProfile, table: str | None, rows: int | None) -> str | None:
    if column.present == 0:
        return "no row has a value"
    if (
        column.distinct <= 1
        and not column.missing
        and column.kind not in ("list<string>", "list<int>", "map")
    ):
        return f"always {column.examples[0]!r}"
    if column.kind == "timestamp":
        return "a moment; only the age or the hour could be learned from, and no feature makes those of it"
    if (
        column.kind == "string"
        and column.tags is None
        and column.unique_share > _NEAR_UNIQUE
        and column.present > 20
    ):
        return (
            f"text that is almost never the same twice ({column.distinct} different in {column.present} rows)"
        )
    unique = column.unique_share > 0.98 and column.present > 100
    if column.kind == "int" and unique and column.numbers is not None:
        numbered = column.numbers.high - column.numbers.low < 2 * (rows or column.rows)
        if table is not None or numbered or _word_in(column.name, ("id", "key", "index")):
            return "a number that is different in each row: it names the row and says nothing of it"
    if column.numbers is not None and _is_epoch(column) and _word_in(column.name, _TIME_WORDS):
        return "a moment in seconds since 1970"
    return None


def _of_int(column: ColumnProfile) -> Choice | str:
    numbers = column.numbers
    if numbers is None:
        return "no row has a value"
    if _word_in(column.name, _AMOUNT_WORDS):
        return _of_float(column)
    spread = numbers.high - numbers.low + 1
    if _word_in(column.name, _CODE_WORDS) or column.name.lower().endswith("id"):
        return Choice({"type": "id"}, f"a code by its name, {column.distinct} different ones")
    if column.distinct <= _FEW:
        return Choice({"type": "id"}, f"only {column.distinct} different values")
    middle = (numbers.median - numbers.low) / max(numbers.high - numbers.low, 1)
    if numbers.low >= 0 and spread > 10_000 and 0.15 < middle < 0.85 and column.unique_share < 0.5:
        return Choice(
            {"type": "id"}, f"whole numbers all over the range, like codes; {column.distinct} different ones"
        )
    return _of_float(column)


def _of_float(column: ColumnProfile) -> Choice | str:
    numbers = column.numbers
    if numbers is None:
        return "no row has a value"
    bounds = f"from {numbers.low:g} to {numbers.high:g}, half of them below {numbers.median:g}"
    skewed = numbers.high > 20 * max(abs(numbers.median), 1e-9) and numbers.high > 10
    if skewed and numbers.low >= 0:
        return Choice({"type": "number", "normalize": "log1p"}, f"{bounds}: a long tail, so its logarithm")
    if skewed or numbers.high - numbers.low > 1e6:
        return Choice({"type": "number", "buckets": 20}, f"{bounds}: cut into quantiles")
    return Choice({"type": "number"}, bounds)


def _of_text(column: ColumnProfile) -> Choice | str:
    tags = column.tags
    if tags is not None:
        return _of_tags(column)
    rare = column.distinct > 1000
    options: dict[str, Any] = {"type": "id"}
    if rare and column.unique_share > 0.05:
        options["vocabulary"] = {"min_count": 2}
    why = f"{column.distinct} different values, such as {', '.join(_short(value) for value in column.examples[:2])}"
    return Choice(options, why + ("; those seen once share an id" if "vocabulary" in options else ""))


def _of_tags(column: ColumnProfile) -> Choice:
    tags = column.tags
    if tags is None:
        raise DataError(f"column {column.name!r} does not split into values")
    options: dict[str, Any] = {"type": "tags", "separator": tags.separator}
    if tags.weighted:
        options["weight_separator"] = ":"
    if _word_in(column.name, _SEQUENCE_WORDS) and not tags.weighted:
        options["type"] = "sequence"
        options["max_length"] = min(max(tags.longest, 1), 50)
    weights = ", each with a weight" if tags.weighted else ""
    return Choice(options, f"up to {tags.longest} values in a cell, {tags.values} different ones{weights}")


def _of_list(column: ColumnProfile) -> Choice | str:
    if column.kind == "list<float>":
        return "a list of numbers: no feature type reads vectors"
    if _word_in(column.name, _SEQUENCE_WORDS):
        length = min(max(column.longest, 1), 50)
        return Choice(
            {"type": "sequence", "max_length": length},
            f"an ordered list by its name, up to {column.longest} values",
        )
    return Choice(
        {"type": "tags"}, f"a list of up to {column.longest} values, {column.distinct} different ones"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


_FEATURE_OF: Mapping[str, Callable[[ColumnProfile], Choice | str]] = {
    "int": _of_int,
    "float": _of_float,
    "string": _of_text,
    "bool": lambda column: Choice({"type": "id"}, "true or false"),
    "timestamp": lambda column: "a moment",
    "list<string>": _of_list,
    "list<int>": _of_list,
    "list<float>": _of_list,
    "map": lambda column: Choice({"type": "tags"}, "a map: each key is a value, with its number as weight"),
}


def _find_history(found: Findings) -> None:
    """What the user chose before, when users, items and times are known."""
    if not {"user", "item", "time"} <= found.keys.keys():
        return
    name = "recent"
    while name in found.features or name in found.left_out or name in found.label_columns:
        name += "_items"
    options: dict[str, Any] = {"type": "sequence", "of": found.keys["item"].value, "max_length": 50}
    label = found.task.value.get("label") if found.task is not None else None
    if found.task is not None and found.task.value["type"] == "binary":
        options["history"] = {"where": label or f"{_quoted(found.label_columns[0])} == 1"}
    else:
        options["history"] = {}
    found.features[name] = Choice(
        options, "what the user chose before, built from the interactions themselves"
    )
