"""What columns mean: keys, labels, features, and what is better left out, each with the reason in words."""

from __future__ import annotations

from easyrec.data.inference.features import find_feature, find_history
from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.keys import find_keys
from easyrec.data.inference.label import find_label
from easyrec.data.inference.profile import TableProfile
from easyrec.errors import DataError


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
        DataError: Nothing can be learned: there is no column that could be a label, and no user and item, or no column
            is a feature.
    """
    found = Findings()
    find_keys(found, table, items, users)
    find_label(found, table, label)
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
                find_feature(found, column, None if profile is table else "table", profile)
        unread = profile.unread if profile is not None else {}
        found.left_out |= {name: Choice(None, why) for name, why in unread.items()}
    find_history(found)
    if not found.features:
        reasons = "; ".join(f"{column}: {choice.why}" for column, choice in found.left_out.items())
        raise DataError(
            f"nothing is left to predict {found.task_name!r} from; {reasons or 'there is no other column'}"
        )
    return found
