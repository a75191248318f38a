"""What each other column is as a feature, or why it is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.keys import is_epoch
from easyrec.data.inference.names import AMOUNT_WORDS, CODE_WORDS, SEQUENCE_WORDS, TIME_WORDS, quoted, word_in
from easyrec.data.inference.profile import ColumnProfile, TableProfile, depends
from easyrec.errors import DataError

_FEW = 12
_LIST_OF = 500
"""Whole numbers from 0 or 1 up to this or more, half of them there and none rarer for being large, number a list."""
_NEAR_UNIQUE = 0.8
_OTHER_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}($|[ T]\d{1,2}:\d\d)")


def find_feature(
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


def _looks_like_dates(column: ColumnProfile) -> bool:
    """Whether texts are dates with the day or the month first: 12/31/2024, 31.12.24 18:30."""
    texts = [value for value in column.examples if isinstance(value, str)]
    return bool(texts) and all(_OTHER_DATE.match(text.strip()) for text in texts)


def _useless(column: ColumnProfile, table: str | None, rows: int | None) -> str | None:
    if column.present == 0:
        return "no row has a value"
    if (
        column.distinct <= 1
        and not column.missing
        and column.kind not in ("list<string>", "list<int>", "map")
    ):
        value = column.examples[0]
        return f"always {value!r}" if isinstance(value, str) else f"always {value}"
    if column.kind == "string" and _looks_like_dates(column):
        return (
            f"looks like a time, such as {column.examples[0]!r}, in a form that is not read; write times as "
            "2024-12-31 or 2024-12-31 18:30:00"
        )
    if column.kind == "timestamp":
        return "a moment; only the age or the hour could be learned from, and no feature makes those of it"
    if (
        column.kind == "string"
        and column.tags is None
        and column.unique_share > _NEAR_UNIQUE
        and column.present > 20
    ):
        if column.odd is not None:
            count, value = column.odd
            return (
                f"numbers, but not in {count} of {column.present} rows, such as {value!r}: write numbers there, or "
                "nothing (a delimited file may say with the option `null_values` what stands for nothing)"
            )
        return (
            f"text that is almost never the same twice ({column.distinct} different in {column.present} rows)"
        )
    unique = column.unique_share > 0.98 and column.present > 100
    if column.kind == "int" and unique and column.numbers is not None:
        numbered = column.numbers.high - column.numbers.low < 2 * (rows or column.rows)
        if table is not None or numbered or word_in(column.name, ("id", "key", "index")):
            return "a number that is different in each row: it names the row and says nothing of it"
    if column.numbers is not None and is_epoch(column) and word_in(column.name, TIME_WORDS):
        return "a moment in seconds since 1970"
    return None


def _of_int(column: ColumnProfile) -> Choice | str:
    numbers = column.numbers
    if numbers is None:
        return "no row has a value"
    if word_in(column.name, AMOUNT_WORDS):
        return _of_float(column)
    spread = numbers.high - numbers.low + 1
    if word_in(column.name, CODE_WORDS) or column.name.lower().endswith("id"):
        return Choice({"type": "id"}, f"a code by its name, {column.distinct} different ones")
    if column.distinct <= _FEW:
        return Choice({"type": "id"}, f"only {column.distinct} different values")
    middle = (numbers.median - numbers.low) / max(numbers.high - numbers.low, 1)
    numbered = numbers.low in (0, 1) and spread >= _LIST_OF and column.distinct > 0.4 * spread
    if numbered and 0.3 < middle < 0.7 and column.unique_share < 0.2:
        return Choice(
            {"type": "id"},
            f"whole numbers all over {numbers.low:g} to {numbers.high:g}, as the members of a list are numbered",
        )
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
    if word_in(column.name, SEQUENCE_WORDS) and not tags.weighted:
        options["type"] = "sequence"
        options["max_length"] = min(max(tags.longest, 1), 50)
    weights = ", each with a weight" if tags.weighted else ""
    return Choice(options, f"up to {tags.longest} values in a cell, {tags.values} different ones{weights}")


def _of_list(column: ColumnProfile) -> Choice | str:
    if column.kind == "list<float>":
        return "a list of numbers: no feature type reads vectors"
    if word_in(column.name, SEQUENCE_WORDS):
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


def find_history(found: Findings) -> None:
    """What the user chose before, when users, items and times are known."""
    if not {"user", "item", "time"} <= found.keys.keys():
        return
    name = "recent"
    while name in found.features or name in found.left_out or name in found.label_columns:
        name += "_items"
    options: dict[str, Any] = {
        "type": "sequence",
        "of": found.keys["item"].value,
        "max_length": 50,
        "pooling": "sqrtn",  # a mean says nothing of how many there were
    }
    label = found.task.value.get("label") if found.task is not None else None
    if found.task is not None and found.task.value["type"] == "binary":
        options["history"] = {"where": label or f"{quoted(found.label_columns[0])} == 1"}
    else:
        options["history"] = {}
    found.features[name] = Choice(
        options, "what the user chose before, built from the interactions themselves"
    )
