"""Values that nobody expects: what can be used is used, what cannot is refused, and neither harms a later request."""

from __future__ import annotations

from typing import Any

import pytest

from serving.models.catalogue import Catalogue
from serving.people.person import event_columns
from serving.stores.base import Behaviour
from tests.serving.world import KnownModel


def rated(event_id: str, item: int, **options: Any) -> dict[str, Any]:
    return {"event_id": event_id, "type": "rating", "user_id": "new", "item_id": item, **options}


def test_no_properties_may_be_asked_for_as_an_empty_list(client):
    answer = client.post("/v1/recommend", {"user_id": 100, "n": 2, "properties": []})
    assert answer.status_code == 200
    assert all("properties" not in item for item in answer.json()["items"])


@pytest.mark.parametrize("year", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_an_item_with_a_huge_number_is_put_and_harms_no_other(client, year):
    body = {"properties": {"genres": "comedy", "year": year}}
    assert client.put("/v1/items/801", body).json()["properties"]["year"] == year
    assert client.put("/v1/items/802", {"properties": {"genres": "comedy"}}).status_code == 200
    assert client.patch("/v1/items/3", {"properties": {"year": 1999}}).status_code == 200
    found = client.post("/v1/recommend", {"user_id": "100", "n": 100}).json()["items"]
    assert {801, 802} <= {item["item_id"] for item in found}


def test_a_fraction_is_not_cut_off_from_a_whole_number(client):
    answer = client.put("/v1/items/801", {"properties": {"year": 1990.5}})
    assert answer.status_code == 422
    assert "'year' takes int64, got 1990.5 (expected a whole number)" in answer.json()["detail"]
    assert client.put("/v1/items/801", {"properties": {"year": 1990.0}}).status_code == 200


@pytest.mark.parametrize("wrong", ["five", True, [5], {"stars": 5}, None, 10**40])
def test_an_event_with_a_value_of_another_kind_counts_for_nothing_and_harms_no_other(client, wrong):
    events = [
        rated("a", 7, properties={"rating": 5}),
        rated("b", 8, properties={"rating": wrong}),
        rated("c", 9, properties={"rating": 4.5}),
    ]
    assert client.post("/v1/events", events).json()["accepted"] == 3
    debug = client.post("/v1/recommend", {"user_id": "new", "debug": True}).json()
    assert debug["degraded"] == []
    assert debug["debug"]["user"]["columns"]["recent"] == [7, 9]


@pytest.mark.parametrize("wrong", ["five", [5], {"stars": 5}, 10**40])
def test_events_that_all_have_values_of_another_kind_count(client, wrong):
    client.post("/v1/events", [rated("a", 7, properties={"rating": wrong})])
    answer = client.post("/v1/recommend", {"user_id": "new", "debug": True}).json()
    assert answer["degraded"] == []
    assert answer["debug"]["user"]["columns"]["recent"] == [7]


def test_a_column_of_events_has_values_of_the_kind_that_most_have():
    given = [5, 4.5, "x", True, None, [1], 2**60]
    history = [Behaviour(str(n), "rating", "i", n, properties={"a": one}) for n, one in enumerate(given)]
    assert event_columns(history, {"a", "b"}) == {"a": [5, 4.5, None, None, None, None, None]}
    history = [Behaviour(str(n), "rating", "i", n, properties={"a": one}) for n, one in enumerate("xyz")]
    assert event_columns(history, {"a"}) == {"a": ["x", "y", "z"]}


def test_an_item_is_new_when_it_comes_and_no_newer_when_it_is_changed(start):
    scene = {"sources": {"new": {"type": "fresh", "n": 10, "days": 1}}, "fallback": {}}
    client = start(scenes={"home": scene})
    service = client.app.state.service
    now = [service.clock()]
    service.items._clock = lambda: now[0]

    def new() -> set[int]:
        return {item["item_id"] for item in client.post("/v1/recommend", {}).json()["items"]}

    assert client.patch("/v1/items/3", {"properties": {"year": 1999}}).status_code == 200
    assert client.put("/v1/items/801", {"properties": {"genres": "comedy"}}).status_code == 200
    assert new() == {801}, "3 was in the bundle"
    now[0] -= 2 * 86_400
    client.put("/v1/items/802", {"properties": {"genres": "comedy"}})
    now[0] += 2 * 86_400
    client.put("/v1/items/802", {"properties": {"genres": "drama"}})
    client.delete("/v1/items/801")
    client.put("/v1/items/801", {"properties": {"genres": "comedy"}})
    assert new() == {801}, "802 came two days ago"


def test_items_without_a_column_but_their_key_are_shown_and_logged(start, monkeypatch):
    monkeypatch.setattr(KnownModel, "item_columns", ["item_id"])
    client = start(events={"item_features": True})
    monkeypatch.setattr(Catalogue, "columns", ["item_id"])
    answer = client.post("/v1/recommend", {"user_id": "100", "n": 2, "properties": True})
    assert answer.status_code == 200
    assert [item["properties"] for item in answer.json()["items"]] == [{}, {}]
    client.app.state.service.writer.stop()
    text = "".join(
        path.read_text() for path in (client.app.state.service.settings.data / "events").rglob("*.jsonl")
    )
    assert text.count('"features":{}') == 2
