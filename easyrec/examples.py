"""Example recommendations by title, for reports and for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from easyrec.data.column_types import is_text
from easyrec.export.bundle import Bundle
from easyrec.export.recommend import Recommender
from evaluation.report import Example

TITLE_NAMES = ("title", "name", "item_name", "product_name", "headline")


def title_column(items: pa.Table, key: str) -> str:
    """The column that names items for people: by its name, else the first text column, else the key."""
    text = [field.name for field in items.schema if field.name != key and is_text(field.type)]
    by_name = [name for name in TITLE_NAMES if name in text]
    return (by_name or text or [key])[0]


def recommendation_examples(bundle: Bundle, users: int = 3, n: int = 10) -> list[Example]:
    """What some users took last and what is recommended to them; nothing from a bundle that cannot recommend.

    Args:
        bundle: A bundle.
        users: How many users; those whose history is of middling length.
        n: Recommendations a user.
    """
    if bundle.users is None or bundle.candidates is None or not bundle.runtime.has("score"):
        return []
    return examples_of(Recommender(bundle.catalogue), bundle, typical_users(bundle, users), n)


def typical_users(bundle: Bundle, count: int) -> list[Any]:
    """Keys of users with histories around the median length, always the same ones."""
    if bundle.users is None:
        return []
    lengths = [len(seen) if seen is not None else 0 for seen in bundle.users.table["seen"].to_pylist()]
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    middle = [order[int(len(order) * (place + 1) / (count + 1))] for place in range(min(count, len(order)))]
    keys = bundle.users.keys
    return [keys[row].as_py() for row in middle]


def examples_of(recommender: Recommender, bundle: Bundle, users: Sequence[Any], n: int = 10) -> list[Example]:
    """Histories and recommendations by title.

    Args:
        recommender: What recommends.
        bundle: Knows the users' histories and the titles.
        users: Their keys.
        n: Recommendations a user.
    """
    if bundle.users is None or bundle.candidates is None:
        return []
    items = bundle.candidates.items
    titles = items.table[title_column(items.table, items.key)]
    history = _history_column(bundle)
    found = []
    for user in users:
        row = bundle.users.rows(bundle.users.positions([user]))
        taken = items.positions(list(reversed(row[history][0].as_py() or [])))
        recommended = recommender.recommend(user, n)
        positions = items.positions(recommended[items.key].tolist())
        found.append(
            Example(
                user=str(user),
                history=[str(titles[int(place)].as_py()) for place in taken[:5] if place >= 0],
                recommended=[str(titles[int(place)].as_py()) for place in positions],
            )
        )
    return found


def _history_column(bundle: Bundle) -> str:
    """The users' column that lists what they took: a history of the item key, else everything seen."""
    names = [] if bundle.users is None else bundle.users.table.column_names
    for entry in bundle.manifest.histories:
        column = next((one.column for one in bundle.manifest.inputs if one.name == entry.name), entry.name)
        if entry.of == bundle.manifest.keys.get("item") and column in names:
            return column
    return "seen"
