"""What is to be predicted."""

from __future__ import annotations

import re

import pyarrow.compute as pc

from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.names import LABEL_WORDS, RATING_WORDS, is_unnamed, quoted, word_in
from easyrec.data.inference.profile import ColumnProfile, TableProfile
from easyrec.errors import DataError


def find_label(found: Findings, table: TableProfile, wanted: str | None) -> None:
    """Finds the label: what the user named, else 0/1 columns, ratings, a column of two words, or choices alone."""
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
            kind = "binary" if is_binary(columns[wanted]) else "regression"
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
    binary = [column for column in free if is_binary(column)]
    named = [column for column in binary if word_in(column.name, LABEL_WORDS)]
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
    elif binary and is_unnamed(binary[0].name) and binary[0].name == next(iter(columns)):
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


def is_binary(column: ColumnProfile) -> bool:
    """Whether the values are 0 and 1, or true and false."""
    if column.kind == "bool":
        return column.distinct == 2
    numbers = column.numbers
    return numbers is not None and column.distinct == 2 and (numbers.low, numbers.high) == (0.0, 1.0)


def _is_rating(column: ColumnProfile, unnamed: bool) -> bool:
    numbers = column.numbers
    if numbers is None or not 2 < column.distinct <= 101 or numbers.low < 0 or numbers.high > 100:
        return False
    if unnamed and is_unnamed(column.name) and column.distinct <= 11 and numbers.high <= 10:
        return True
    return word_in(column.name, RATING_WORDS)


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
    label = f"{quoted(column.name)} >= {threshold}"
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
        {"type": "binary", "label": f'{quoted(column.name)} == "{text}"'},
        f"{column.name!r} is one of two words; {rare!r} is the rarer ({share:.0%})",
    )
    found.label_columns = (column.name,)
