"""Columns of users put through the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from easyrec.errors import SchemaError
from serving.models.served import ServedModel
from serving.stores.guard import GuardedStore

MAX_BYTES = 65_536


def put_profile(
    store: GuardedStore,
    models: Sequence[ServedModel],
    user_id: str,
    columns: Mapping[str, Any],
    merge: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Keeps columns of a user.

    Args:
        store: Where.
        models: The models that will read them.
        user_id: Key of the user.
        columns: Raw columns.
        merge: Change only these, and remove those that are null; else they replace all.

    Returns:
        All columns kept, and those that no model reads.

    Raises:
        EasyRecError: A model cannot use a value, or they are too many.
    """
    known = dict(store.read(user_id, None, 0).profile or {}) if merge else {}
    kept = {name: value for name, value in {**known, **columns}.items() if value is not None}
    size = len(json.dumps(kept))
    if size > MAX_BYTES:
        raise SchemaError(f"the columns of a user must not exceed {MAX_BYTES} bytes, got {size}")
    for model in models:
        model.user(kept)
    read = {name for model in models for name in model.user_columns}
    store.call(store.store.put_profile, user_id, kept)
    return kept, [name for name in kept if name not in read]
