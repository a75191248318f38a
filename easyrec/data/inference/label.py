"""What is to be predicted."""

from __future__ import annotations

import re
import shlex

import pyarrow.compute as pc

from easyrec.config import expressions
from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.names import (
    ANSWER_WORDS,
    CLASS_WORDS,
    LABEL_WORDS,
    NO_WORDS,
    RATING_WORDS,
    YES_WORDS,
    has_name,
    is_unnamed,
    quoted,
    word_in,
)
from easyrec.data.inference.profile import ColumnProfile, TableProfile
from easyrec.errors import ConfigError, DataError, nearest

_MOST_CLASSES = 50
_SAY = "--label names another"


def find_label(found: Findings, table: TableProfile, wanted: str | None) -> None:
    """Finds the label.

    It is what the user named; else a column that is called like one, a rating, a column of 0 and 1, a column of two
    words, a column of a few words that is called like classes, or, where users and items are known, the choices alone.

    Raises:
        DataError: There is none, or the one that the user named cannot be learned.
    """
    if wanted is not None:
        _as_wanted(found, table, wanted)
        return
    taken = {choice.value for choice in found.keys.values()}
    free = [column for column in table.columns.values() if column.name not in taken]
    binary = [column for column in free if is_binary(column)]
    named = [column for column in binary if word_in(column.name, LABEL_WORDS)]
    words = [column for column in free if _is_two_words(column)]
    words_named = [column for column in words if word_in(column.name, LABEL_WORDS)]
    signs = [column for column in free if _is_two_numbers(column) and word_in(column.name, LABEL_WORDS)]
    answers = [column for column in free if column.numbers and has_name(column.name, ANSWER_WORDS)]
    pairs = {"user", "item"} <= found.keys.keys()
    # Where users choose items, a category is the item's; only what is called an answer is one.
    class_words = ANSWER_WORDS if pairs else CLASS_WORDS
    classes = [column for column in free if _is_classes(column) and has_name(column.name, class_words)]
    ratings = [column for column in free if _is_rating(column, pairs)]
    if named:
        _binary(found, named[0], "0 or 1, by its name what is to be predicted")
        found.others = [column.name for column in binary if column is not named[0]]
    elif words_named:
        _two_words(found, table, words_named[0])
        found.others = [column.name for column in (*binary, *words) if column is not words_named[0]]
    elif signs:
        _two_numbers(found, signs[0], "by its name what is to be predicted")
        found.others = [column.name for column in (*binary, *signs[1:])]
    elif answers:
        _number(found, answers[0], "by its name what is to be predicted")
        found.others = [column.name for column in binary]
    elif ratings:
        _rating(found, table, ratings[0])
    elif binary and is_unnamed(binary[0].name) and binary[0].name == next(iter(table.columns)):
        _binary(found, binary[0], "0 or 1 in the first column")
    elif binary and (len(binary) == 1 or binary[-1].name == list(table.columns)[-1]):
        _binary(found, binary[-1], "0 or 1")
        found.others = [column.name for column in binary[:-1]]
    elif words:
        chosen = next((column for column in reversed(words) if _yes(column) is not None), words[-1])
        _two_words(found, table, chosen)
        found.others = [column.name for column in words if column is not chosen]
    elif binary:
        _binary(found, binary[0], f"a guess ({_SAY}): 0 or 1")
        found.others = [column.name for column in binary[1:]]
    elif classes:
        _classes(found, classes[0], "by its name what is to be predicted")
        found.others = [column.name for column in classes[1:]]
    elif pairs:
        found.task_name = "chosen"
        found.task = Choice(
            {"type": "retrieval"}, "no column is a label, so each row is taken as an item that its user chose"
        )
    else:
        raise DataError(
            f"no column looks like a label (0 or 1, a rating, two words); the columns are {', '.join(table.columns)}. "
            "Name it with --label, such as --label clicked or --label 'price > 10'"
        )


def _as_wanted(found: Findings, table: TableProfile, wanted: str) -> None:
    """The label that the user named, a column or an expression."""
    columns = table.columns
    if wanted not in columns:
        try:
            names = tuple(sorted(expressions.columns(expressions.parse(wanted))))
        except expressions.ExpressionError as error:
            raise ConfigError(f"--label {wanted!r} is neither a column nor an expression: {error}") from error
        unknown = next((name for name in names if name not in columns), None)
        if unknown is not None or not names:
            raise ConfigError(
                f"--label {wanted!r} names no column of the data.{nearest(unknown or wanted, columns)}"
            )
        condition = re.search(r"[<>=]|\b(in|is|and|or|not)\b", wanted) is not None
        found.task_name, found.label_columns = "label", names
        found.task = Choice({"type": "binary" if condition else "regression", "label": wanted}, "as you said")
        return
    column = columns[wanted]
    if is_binary(column):
        _binary(found, column, "as you said")
    elif _is_two_words(column):
        _two_words(found, table, column)
    elif _is_two_numbers(column):
        _two_numbers(found, column, "as you said")
    elif column.numbers is not None:
        _number(found, column, "as you said")
    elif _is_classes(column):
        _classes(found, column, "as you said")
    else:
        example = column.examples[0] if column.examples else ""
        raise DataError(
            f"the label {wanted!r} is neither a number nor one of a few words, but {column.kind}, such as {example!r}. "
            f"Give a condition, such as --label {shlex.quote(f'{quoted(wanted)} == {str(example)!r}')}"
        )


def is_binary(column: ColumnProfile) -> bool:
    """Whether the values are 0 and 1, or true and false."""
    if column.kind == "bool":
        return column.distinct == 2
    numbers = column.numbers
    return numbers is not None and column.distinct == 2 and (numbers.low, numbers.high) == (0.0, 1.0)


def _is_two_numbers(column: ColumnProfile) -> bool:
    """Whether the values are two whole numbers, such as -1 and 1, or 1 and 2."""
    return column.kind == "int" and column.distinct == 2


def _is_rating(column: ColumnProfile, pairs: bool) -> bool:
    """Whether a column is a rating; where rows are no pairs of user and item, only the very word says so."""
    numbers = column.numbers
    if numbers is None or not 2 < column.distinct <= 101 or numbers.low < 0 or numbers.high > 100:
        return False
    if not pairs:
        return has_name(column.name, RATING_WORDS)
    if is_unnamed(column.name) and column.distinct <= 11 and numbers.high <= 10:
        return True
    return word_in(column.name, RATING_WORDS)


def _binary(found: Findings, column: ColumnProfile, why: str) -> None:
    found.task_name = column.name
    found.task = Choice({"type": "binary"}, f"{why}; {_share(column)}")
    found.label_columns = (column.name,)


def _two_numbers(found: Findings, column: ColumnProfile, why: str) -> None:
    """Two whole numbers, the larger of which means yes."""
    low, high = sorted(int(value) for value in column.examples)
    found.task_name = column.name
    found.task = Choice(
        {"type": "binary", "label": f"{quoted(column.name)} == {high}"},
        f"{why}; {low} or {high}, and {high} is taken for yes; {_share(column)}",
    )
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


def _number(found: Findings, column: ColumnProfile, why: str) -> None:
    """Classes numbered from 0, or else an amount."""
    numbers = column.numbers
    found.task_name, found.label_columns = column.name, (column.name,)
    classes = column.distinct
    from_zero = numbers is not None and (numbers.low, numbers.high) == (0, classes - 1)
    if column.kind == "int" and from_zero and 2 < classes <= _MOST_CLASSES and not _is_rating(column, False):
        found.task = Choice(
            {"type": "multiclass", "classes": classes}, f"{why}; whole numbers from 0 to {classes - 1}"
        )
        return
    bounds = "" if numbers is None else f"; from {numbers.low:g} to {numbers.high:g}"
    found.task = Choice({"type": "regression"}, f"{why}{bounds}")


def _is_classes(column: ColumnProfile) -> bool:
    """Whether the values are a few words that come again and again."""
    few = 2 < column.distinct <= _MOST_CLASSES and column.unique_share < 0.5
    return column.kind == "string" and few and column.tags is None


def _classes(found: Findings, column: ColumnProfile, why: str) -> None:
    found.task_name, found.label_columns = column.name, (column.name,)
    found.task = Choice(
        {"type": "multiclass"},
        f"{why}; {column.distinct} classes, such as {', '.join(map(repr, column.examples[:2]))}; {_share(column)}",
    )


def _is_two_words(column: ColumnProfile) -> bool:
    return column.kind == "string" and column.distinct == 2


def _yes(column: ColumnProfile) -> str | None:
    """Which of two words means yes, when they are such words."""
    words = {str(value).strip().lower().rstrip("."): str(value) for value in column.examples}
    yes, no = YES_WORDS & words.keys(), NO_WORDS & words.keys()
    return words[min(yes)] if len(yes) == 1 and (no or len(words) == 1) else None


def _two_words(found: Findings, table: TableProfile, column: ColumnProfile) -> None:
    counts = pc.value_counts(pc.drop_null(table.sample.column(column.name)))
    shares = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    rare = min(shares, key=lambda value: (shares[value], str(value)))
    yes = _yes(column)
    word = str(rare if yes is None else yes)
    share = shares.get(word, 0) / sum(shares.values())
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    found.task_name = "label" if is_unnamed(column.name) else column.name
    found.task = Choice(
        {"type": "binary", "label": f'{quoted(column.name)} == "{text}"'},
        f"{column.name!r} is one of two words; {share:.0%} of the rows are {word!r}"
        + ("" if yes is not None else f", the rarer; a guess ({_SAY})"),
    )
    found.label_columns = (column.name,)
