"""Times in text: forms are recognised by all their values, and read as Python reads them."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easyrec.data.column_types import CastError
from easyrec.data.readers.times import FORMS, guess_form, read_times


@given(st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)), st.sampled_from(FORMS))
def test_every_form_reads_what_python_writes(moment: datetime, form: str) -> None:
    text = moment.strftime(form)
    [read] = read_times(pa.array([text]), form).to_pylist()
    assert read == datetime.strptime(text, form)


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["12/31/2024", "1/3/2024", None], "%m/%d/%Y"),
        (["1/12/2024", "13/1/2024"], "%d/%m/%Y"),
        (["1/2/2024"], "%m/%d/%Y"),
        (["31.12.24"], "%d.%m.%y"),
        (["1/3/2024 6:05 PM"], "%m/%d/%Y %I:%M %p"),
        (["10-Mar-2024"], "%d-%b-%Y"),
        (["2/30/2024"], None),
        (["2024-12-31"], None),
        (["10.0.0.1"], None),
        (["1.2.3"], None),
        (["1/2/3"], None),
        ([], None),
        ([None, " "], None),
    ],
)
def test_forms_are_guessed(texts: list[str | None], form: str | None) -> None:
    assert guess_form(texts) == form


def test_the_first_text_that_is_no_time_is_named() -> None:
    with pytest.raises(CastError, match="'2/30/2024' in row 3"):
        read_times(pa.array(["1/2/2024", "2024-01-02", "2/30/2024"]), "%m/%d/%Y")
