"""Times in text that is not ISO 8601: read by a stated form, and forms guessed from examples."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from easyrec.data.column_types import CastError, cast, is_text, parse_time

_DATES = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_SHORT_DATES = ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y")
_NAMED_DATES = ("%d %b %Y", "%b %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%B %d, %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
FORMS = (
    *(f"{date}{clock}" for date in (*_DATES, *_SHORT_DATES, *_NAMED_DATES) for clock in _CLOCKS),
    "%a %b %d %H:%M:%S %Y",
)
"""Forms that are recognised, the likelier of two that fit first: 01/02/2024 is January, 01.02.2024 is February."""
_TWO_DIGIT_YEAR = r"[^0-9][0-9][0-9]($|[^0-9])"
_LEADING_ZERO = r"\b0([0-9])\b"


def read_times(texts: pa.Array, form: str | None) -> pa.Array:
    """Times [B] in microseconds, from text in the form stated, or in ISO 8601.

    Raises:
        CastError: A text is none; it names the first.
    """
    target = pa.timestamp("us")
    if form is not None:
        found = _parse(texts, form)
        failed = pc.and_(found.is_null(), texts.is_valid())
        if not pc.any(failed).as_py():
            return found
    try:
        return parse_time(texts).cast(target)
    except pa.ArrowInvalid as error:
        row = _first_failing(texts, form)
        raise CastError(texts[row].as_py(), row, target) from error


def cast_with_times(
    array: pa.Array | pa.ChunkedArray, target: pa.DataType, form: str | None
) -> pa.Array | pa.ChunkedArray:
    """A column as another type; text becomes times by the form stated, or by ISO 8601.

    Raises:
        CastError: A value does not fit; it names the first.
    """
    if not pa.types.is_timestamp(target) or not is_text(array.type):
        return cast(array, target)
    texts = cast(array, pa.string())
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    return cast(read_times(without_blanks(texts), form), target)


def without_blanks(texts: pa.Array) -> pa.Array:
    """Cells of text with those missing that hold spaces only."""
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    return pc.if_else(blank, pa.scalar(None, pa.string()), texts) if pc.any(blank).as_py() else texts


def fits_form(texts: pa.Array, form: str) -> bool:
    """Whether all texts, and at least one, are times in a form."""
    found = _parse(texts, form)
    return len(texts) > texts.null_count and found.null_count == texts.null_count


def guess_form(texts: Sequence[str | None]) -> str | None:
    """The form that all texts have, or None; a form with the month first where days and months cannot be told apart."""
    values = pa.array([text for text in texts if text is not None and text.strip()], pa.string())
    if not len(values):
        return None
    return next(
        (form for form in FORMS if fits_form(values.slice(0, 1), form) and fits_form(values, form)), None
    )


def time_hint(kind: pa.DataType, value: object) -> str:
    """What to write where a text is a time in another form than ISO 8601."""
    form = guess_form([value]) if pa.types.is_timestamp(kind) and isinstance(value, str) else None
    return (
        ""
        if form is None
        else f'; if that is a time, say how it is written: `options: {{time_format: "{form}"}}`'
    )


def _parse(texts: pa.Array, form: str) -> pa.Array:
    """Times, missing where a text is none; nor is 30 February one."""
    trimmed = pc.utf8_trim_whitespace(texts)
    found = pc.strptime(trimmed, format=form, unit="s", error_is_null=True)
    back = _plain(pc.strftime(found, format=form))
    same = pc.fill_null(pc.equal(back, _plain(trimmed)), False)
    if "%y" in form:  # 1.2.3 is a version, not a day of 2003
        same = pc.and_(same, pc.fill_null(pc.match_substring_regex(trimmed, _TWO_DIGIT_YEAR), False))
    return pc.if_else(same, found, pa.scalar(None, pa.timestamp("s"))).cast(pa.timestamp("us"))


def _plain(texts: pa.Array) -> pa.Array:
    """Without zeros that begin a number, and in small letters."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), _LEADING_ZERO, r"\1")


def _first_failing(texts: pa.Array, form: str | None) -> int:
    for row, text in enumerate(texts.to_pylist()):
        one = pa.array([text], pa.string())
        if text is None or (form is not None and fits_form(one, form)):
            continue
        try:
            parse_time(one)
        except pa.ArrowInvalid:
            return row
    return 0
