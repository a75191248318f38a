"""Any column name gets a tensor name that signatures allow."""

from __future__ import annotations

import keyword
import re

from hypothesis import given
from hypothesis import strategies as st

from easyrec.export.names import tensor_names


def test_names_that_are_allowed_stay() -> None:
    assert tensor_names(["user_id", "I1", "a b", "a_b", "self", "1x", "é"]) == {
        "user_id": "user_id", "I1": "I1", "a b": "a_b_2", "a_b": "a_b", "self": "self_2", "1x": "column_1x",
        "é": "column__",
    }  # fmt: skip


@given(st.lists(st.text()))
def test_names_are_allowed_and_differ(names: list[str]) -> None:
    found = tensor_names(names)
    assert set(found) == set(names)
    assert len(set(found.values())) == len(found)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in found.values())
    assert "self" not in found.values()
    assert not any(map(keyword.iskeyword, found.values()))


def test_words_of_python_are_not_names_of_arguments() -> None:
    assert tensor_names(["from", "class", "from_2"]) == {
        "from": "from_3",
        "class": "class_2",
        "from_2": "from_2",
    }
