"""What the page asks for beyond the API: whom to try, what a person did, and what items are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from serving.funnel.scenes import POPULAR, SIMILAR
from serving.models.served import ServedModel
from serving.people.person import SEEN
from serving.service import Service

USERS = 200
EVENTS = 30
MOST_IDS = 500
TITLES = ("title", "name", "item_name", "product_name", "headline", "label")
_OFTEN = ("click", "view", "purchase", "rating", "like", "dislike")


def setup(service: Service) -> dict[str, Any]:
    """What there is to choose from."""
    model = ranking_model(service)
    read = sorted(model.histories.event_columns) if model.histories.columns else []
    return {
        "scenes": [name for name in service.scenes.names if name not in (SIMILAR, POPULAR)],
        "users": [str(user) for user in model.some_users(USERS)],
        "event_types": list(
            dict.fromkeys([*(name for name in read if name not in ("type", "value")), *_OFTEN])
        ),
        "title": title_column(model),
        "items": int(model.catalogue.available.sum()),
        "task": model.tasks[0],
        "columns": [name for name in model.user_columns if name != model.manifest.keys.get("user")],
    }


def person(service: Service, user_id: str | None, session_id: str | None) -> dict[str, Any]:
    """What is known of a person: events since the bundle was made, and what the bundle knows."""
    model = ranking_model(service)
    found, failure = service.recommender.people.find(user_id, session_id, {})
    bundle = found.bundle_columns(model)
    before = [str(item) for item in reversed(list(bundle.get(SEEN) or ()))][:EVENTS]
    latest = list(reversed(found.record.behaviours))[:EVENTS]
    titles = item_titles(model, [*before, *(one.item_id for one in latest if one.item_id is not None)])
    return {
        "known": bool(bundle) or bool(found.record.behaviours) or bool(found.record.profile),
        "events": [
            {
                "type": one.type,
                "item_id": one.item_id,
                "title": titles.get(one.item_id or ""),
                "value": one.value,
                "time": one.time,
            }
            for one in latest
        ],
        "before": [{"item_id": item, "title": titles.get(item)} for item in before],
        "profile": dict(found.record.profile or {}),
        "erased": found.record.erased,
        "store_failed": failure is not None,
    }


def item_titles(model: ServedModel, item_ids: Iterable[Any]) -> dict[str, str]:
    """What items are called, by key; unknown ones are left out."""
    ids = list(dict.fromkeys(item_ids))[:MOST_IDS]
    column = title_column(model)
    rows = model.catalogue.rows(ids)
    known = [(key, row) for key, row in zip(ids, rows, strict=True) if row >= 0]
    if not known or column is None:
        return {}
    properties: Sequence[Mapping[str, Any]] = model.catalogue.properties(rows[rows >= 0], [column])
    return {
        str(key): str(one[column])
        for (key, _), one in zip(known, properties, strict=True)
        if one[column] is not None
    }


def title_column(model: ServedModel) -> str | None:
    """The column of the item table that names items for people: by its name, else the first one of text."""
    schema, key = model.catalogue.schema, model.catalogue.key
    texts = [
        field.name
        for field in schema
        if field.name != key and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
    ]
    named = [name for name in TITLES if name in texts]
    return next(iter([*named, *texts]), None)


def ranking_model(service: Service) -> ServedModel:
    """The model that ranks unless a scene says otherwise."""
    return service.hub.active(service.recommender.default_model)
