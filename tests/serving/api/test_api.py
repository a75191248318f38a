"""The REST API as an application sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from easyrec.errors import ConfigError
from serving.stores.base import StoreError


def ids(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [item["item_id"] for item in answer.json()["items"]]


def click(event_id: str, user: Any = "new", item: Any = 7, **options: Any) -> dict[str, Any]:
    return {"event_id": event_id, "type": "click", "user_id": user, "item_id": item, **options}


def test_recommendations_have_the_documented_form(client):
    answer = client.post(
        "/v1/recommend", {"user_id": 100, "n": 2, "request_id": "r-1", "properties": ["title"]}
    ).json()
    took = answer.pop("took_ms")
    assert took > 0
    assert answer == {
        "request_id": "r-1",
        "scene": "default",
        "model": {"name": "films", "version": "1"},
        "experiments": [],
        "items": [
            {
                "item_id": 59, "score": pytest.approx(0.6), "position": 1,
                "sources": answer["items"][0]["sources"], "properties": {"title": "Film 59"},
            },
            {
                "item_id": 58, "score": pytest.approx(0.59), "position": 2,
                "sources": answer["items"][1]["sources"], "properties": {"title": "Film 58"},
            },
        ],
        "degraded": [],
    }  # fmt: skip
    assert "popular" in answer["items"][0]["sources"]


def test_every_way_to_ask(client):
    assert ids(client.post("/v1/recommend", {})) == list(range(20))
    assert ids(client.get("/v1/recommend/100?n=2")) == [59, 58]
    assert ids(client.get("/v1/recommend/nobody?n=2")) == [0, 1]
    assert ids(client.post("/v1/rank", {"user_id": "100", "item_ids": [1, "3", 2]})) == [3, 2, 1]
    assert 10 not in ids(client.get("/v1/items/10/similar?n=5"))
    assert ids(client.get("/v1/popular?n=2")) == [0, 1]
    assert ids(client.get("/v1/popular?n=2&user_id=100")) == [5, 6]
    assert set(client.get("/v1/popular?n=1&properties=true").json()["items"][0]["properties"]) == {
        "title", "genres", "year",
    }  # fmt: skip


def test_events_are_accepted_counted_and_refused_one_by_one(client):
    body = [
        click("a"),
        click("a"),
        {"event_id": "b"},
        "nonsense",
        click("c", timestamp="2026-01-01T00:00:00Z"),
    ]
    answer = client.post("/v1/events", body).json()
    assert (answer["accepted"], answer["duplicates"]) == (2, 1)
    assert [one["index"] for one in answer["rejected"]] == [2, 3]
    assert client.post("/v1/events", [click("a")]).json() == {"accepted": 0, "duplicates": 1, "rejected": []}


def test_an_event_posted_is_used_by_the_next_request_of_the_user(client):
    before = client.post("/v1/recommend", {"user_id": "new", "n": 60, "debug": True}).json()
    assert before["debug"]["user"]["recent"] == []
    client.post("/v1/events", [click("a", item=7)])
    after = client.post("/v1/recommend", {"user_id": "new", "n": 60, "debug": True}).json()
    assert after["debug"]["user"]["recent"] == [7]
    assert after["debug"]["user"]["columns"]["recent"] == [7]
    assert 7 not in [item["item_id"] for item in after["items"]]


def test_a_session_becomes_a_user(client):
    client.post("/v1/events", [{**click("a"), "user_id": None, "session_id": "s"}])
    assert 7 not in ids(client.post("/v1/recommend", {"session_id": "s", "n": 60}))
    assert client.post("/v1/users/new/merge", {"session_id": "s"}).status_code == 204
    assert 7 not in ids(client.post("/v1/recommend", {"user_id": "new", "n": 60}))
    assert 7 in ids(client.post("/v1/recommend", {"session_id": "s", "n": 60}))
    service = client.app.state.service
    service.writer.stop()
    text = "".join(path.read_text() for path in (service.settings.data / "events").rglob("*.jsonl"))
    assert '"type":"merge","user_id":"new","session_id":"s"' in text, "erasing finds the session"


def test_an_item_that_is_put_is_recommended_at_once_and_survives_a_restart(start):
    client = start()
    put = client.put("/v1/items/777", {"properties": {"title": "New", "genres": "comedy", "year": 1964}})
    assert put.json() == {
        "item_id": "777",
        "properties": {"title": "New", "genres": "comedy", "year": 1964},
        "available": True,
    }
    answer = client.post("/v1/recommend", {"user_id": "100", "n": 60}).json()
    new = next(item for item in answer["items"] if item["item_id"] == 777)
    assert {"alike", "new"} <= set(new["sources"])
    assert 777 in ids(start().post("/v1/recommend", {"user_id": "100", "n": 60}))
    assert client.get("/v1/items/777").json()["properties"]["title"] == "New"
    assert client.patch("/v1/items/777", {"properties": {"year": 2000}}).json()["properties"] == {
        "title": "New", "genres": "comedy", "year": 2000,
    }  # fmt: skip
    assert client.delete("/v1/items/777").status_code == 204
    assert 777 not in ids(client.post("/v1/recommend", {"user_id": "100", "n": 60}))
    assert client.get("/v1/items/777").json()["available"] is False
    assert client.patch("/v1/items/777", {"available": True}).json()["available"] is True
    assert 777 in ids(client.post("/v1/recommend", {"user_id": "100", "n": 60}))


def test_a_withdrawn_item_is_never_available_for_a_moment_while_it_is_taken_over(client, monkeypatch):
    service = client.app.state.service
    client.patch("/v1/items/59", {"available": False, "properties": {"title": "Changed"}})
    put = service.hub.active("films").put_items
    monkeypatch.setattr(
        service.hub.active("films"), "put_items", lambda rows: put(rows) if 59 not in rows else 1 / 0
    )
    service.items._version = 0
    service.items.follow()
    assert 59 not in ids(client.post("/v1/recommend", {"user_id": "100", "n": 100}))
    monkeypatch.undo()
    back = client.patch("/v1/items/59", {"available": True}).json()
    assert back["properties"]["title"] == "Changed"
    assert ids(client.post("/v1/recommend", {"user_id": "100", "n": 1})) == [59]


def test_a_new_item_in_a_history_leads_to_items_like_it(client):
    client.put("/v1/items/777", {"properties": {"genres": "western", "year": 1963}})
    client.post("/v1/events", [click("a", item=777)])
    answer = client.post("/v1/recommend", {"user_id": "new", "n": 60}).json()
    alike = [item["item_id"] for item in answer["items"] if "alike" in item["sources"]]
    assert 3 in alike, "film 3 is a western of 1963"
    assert 29 not in alike, "film 29 is a drama, and of another time"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"properties": {"titel": "x"}}, "no column 'titel'. Did you mean 'title'?"),
        ({"properties": {"year": "long ago"}}, "'year' takes int64, got 'long ago'"),
        ({"props": {}}, "body.props"),
        ({"properties": {}, "available": "perhaps"}, "body.available"),
    ],
)
def test_a_wrong_item_is_refused_and_changes_nothing(client, body, said):
    answer = client.put("/v1/items/3", body)
    assert answer.status_code == 422
    assert said in answer.text
    assert client.get("/v1/items/3").json()["properties"]["title"] == "Film 3"


def test_a_key_that_the_catalogue_cannot_hold_is_refused(client):
    assert "the keys of items are of type int64" in client.put("/v1/items/abc", {}).text


def test_a_corrupt_row_in_the_store_harms_no_other(start):
    client = start()
    client.put("/v1/items/701", {"properties": {"genres": "comedy"}})
    client.put("/v1/items/702", {"properties": {"genres": "comedy"}})
    service = client.app.state.service
    kept = service.store.store.item("701")
    service.store.store.put_item(type(kept)("701", {"year": {"not": "a year"}, "gone": 1}, True, kept.time))
    again = start()
    assert again.get("/v1/items/702").status_code == 200
    found = ids(again.post("/v1/recommend", {"user_id": "100", "n": 100}))
    assert 702 in found
    assert 701 not in found
    assert "701" in again.app.state.service.items.refused
    assert again.get("/health/ready").status_code == 200


def test_columns_of_a_user_are_used_by_the_next_request(client):
    answer = client.put("/v1/users/new", {"properties": {"city": "Lima", "shoe_size": 44}})
    assert answer.json() == {
        "user_id": "new",
        "properties": {"city": "Lima", "shoe_size": 44},
        "unread": ["shoe_size"],
    }
    debug = client.post("/v1/recommend", {"user_id": "new", "debug": True}).json()["debug"]
    assert debug["user"]["known"] == ["profile"]
    assert debug["user"]["columns"]["city"] == "Lima"
    patched = client.patch("/v1/users/new", {"properties": {"age": 31, "shoe_size": None}}).json()
    assert patched["properties"] == {"city": "Lima", "age": 31}
    wrong = client.put("/v1/users/new", {"properties": {"age": "old"}})
    assert wrong.status_code == 422
    assert "'age' takes a number, got 'old'" in wrong.json()["detail"]


def test_a_user_is_forgotten(client):
    client.post("/v1/events", [click("a", user="100", item=50)])
    client.put("/v1/users/100", {"properties": {"age": 31}})
    assert client.delete("/v1/users/100").status_code == 204
    debug = client.post("/v1/recommend", {"user_id": "100", "debug": True}).json()["debug"]
    assert debug["user"]["known"] == []


def test_versions_are_activated_and_rolled_back(client):
    service = client.app.state.service
    service.hub.load_now("films@2", activate=False)
    client.put("/v1/items/777", {"properties": {"genres": "comedy"}})
    assert {one["version"]: one["state"] for one in client.get("/v1/models").json()["models"]} == {
        "1": "active", "2": "ready",
    }  # fmt: skip
    assert client.post("/v1/models/films:rollback").status_code == 409
    assert client.post("/v1/models/films/versions/2:activate").json() == {"name": "films", "version": "2"}
    answer = client.post("/v1/recommend", {"user_id": "100", "n": 60}).json()
    assert answer["model"]["version"] == "2"
    assert 777 in [item["item_id"] for item in answer["items"]], (
        "items put before are known to the new version"
    )
    assert client.post("/v1/models/films:rollback").json()["version"] == "1"
    assert client.post("/v1/models/films/versions/9:activate").status_code == 404
    assert client.post("/v1/models/fims:rollback").status_code == 404


def test_a_version_is_tried_beside_the_active_one(client, tmp_path):
    service = client.app.state.service
    service.hub.load_now("films@2", activate=False)
    assert client.post("/v1/models/films/versions/2:shadow", {"percent": 100}).status_code == 204
    client.post("/v1/recommend", {"user_id": "100", "n": 2, "request_id": "r1"})
    assert client.post("/v1/models/films/versions/2:shadow", {"percent": 0}).status_code == 204
    record = json.loads((tmp_path / "data" / "shadow" / "films.jsonl").read_text())
    assert (record["request_id"], record["active"], record["shadow"]) == ("r1", "1", "2")
    assert record["items"] == [59, 58]
    assert client.post("/v1/models/films/versions/9:shadow", {"percent": 5}).status_code == 404
    assert client.post("/v1/models/films/versions/2:shadow", {"percent": 101}).status_code == 422


def test_two_models_of_one_name_are_refused(start):
    with pytest.raises(ConfigError, match="are both named 'films'"):
        start(models=["films@1", "films@2"])


def test_debug_explains_every_stage(client):
    debug = client.post("/v1/recommend", {"user_id": "100", "n": 3, "debug": True}).json()["debug"]
    stages = {(one["stage"], one["name"]): one for one in debug["stages"]}
    assert stages["filter", "seen"]["dropped_ids"] == [0, 1, 2, 3, 4]
    assert stages["source", "popular"]["returned"] == 60
    assert all(one["ms"] >= 0 for one in debug["stages"])
    assert {"people", "source", "merge", "filter", "ranking"} <= {kind for kind, _ in stages}
    assert len(debug["source_scores"]) == 3


def test_health(client):
    assert client.get("/health/live").json()["status"] == "ok"
    ready = client.get("/health/ready").json()
    assert ready["status"] == "ok"
    assert ready["checks"]["store"] == "ok"


BAD = [
    ("POST", "/v1/recommend", b"{"),
    ("POST", "/v1/recommend", b"[]"),
    ("POST", "/v1/recommend", b'{"n": 0}'),
    ("POST", "/v1/recommend", b'{"n": 1e99}'),
    ("POST", "/v1/recommend", b'{"user_id": {"a": 1}}'),
    ("POST", "/v1/recommend", b'{"user_id": ""}'),
    ("POST", "/v1/recommend", b'{"context": []}'),
    ("POST", "/v1/recommend", b'{"user": "u"}'),
    ("POST", "/v1/recommend", b'{"scene": "nowhere"}'),
    ("POST", "/v1/recommend", b'{"properties": ["nothing"]}'),
    ("POST", "/v1/recommend", b'{"context": {"age": "x"}}'),
    ("POST", "/v1/recommend", b'{"context": {"age": [[]]}}'),
    ("POST", "/v1/recommend", b'{"context": {"device": "\\ud800"}}'),
    ("POST", "/v1/recommend", b'{"context": {"age": NaN}}'),
    ("POST", "/v1/recommend", b'{"user_id": "\\ud800"}'),
    ("POST", "/v1/recommend", b'{"context": ' + b"[" * 50_000),
    ("PUT", "/v1/items/3", b'{"properties": {"title": "\\udfff"}}'),
    ("POST", "/v1/models/films:predict", b'{"instances": [{"city": "\\ud800"}]}'),
    ("POST", "/v1/rank", b'{"item_ids": []}'),
    ("POST", "/v1/rank", b"{}"),
    ("POST", "/v1/rank", json.dumps({"item_ids": list(range(100_001))}).encode()),
    ("POST", "/v1/rank", json.dumps({"item_ids": list(range(20_000))}).encode()),
    ("POST", "/v1/events", b"{}"),
    ("POST", "/v1/events", b"[]"),
    ("POST", "/v1/events", b"\xff"),
    ("POST", "/v1/events", json.dumps([1] * 5000).encode()),
    ("GET", "/v1/popular?n=-1", None),
    ("GET", "/v1/popular?n=x", None),
    ("GET", f"/v1/recommend/{'u' * 300}", None),
    ("PUT", "/v1/users/u", b'{"properties": 3}'),
    ("PUT", "/v1/items/3", b"null"),
    ("POST", "/v1/models/films:predict", b"{}"),
    ("POST", "/v1/models/films:predict", b'{"instances": []}'),
    ("POST", "/v1/models/films:predict", b'{"inputs": {"age": [1], "city": []}}'),
    ("POST", "/v1/models/films:predict", b'{"instances": [{"age": 1}, {"age": "x"}]}'),
    ("POST", "/v1/models/films:predict", b'{"instances": [{}], "signature_name": "other"}'),
]


@pytest.mark.parametrize(("method", "url", "body"), BAD)
def test_bad_input_gets_a_problem_document(client, method, url, body):
    answer = client.request(method, url, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert {"type", "title", "detail"} <= problem.keys()


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [("GET", "/nothing", 404), ("GET", "/v1/events", 405), ("GET", "/v1/items/999/similar", 404),
     ("GET", "/v1/items/999", 404), ("DELETE", "/v1/items/999", 404), ("GET", "/v1/items/..%2f..%2fetc", 404)],
)  # fmt: skip
def test_what_is_not_there_gets_a_problem_document(client, method, url, status):
    answer = client.request(method, url)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


def test_faults_leak_nothing(client, monkeypatch):
    service = client.app.state.service

    def broken(request: Any) -> Any:
        raise RuntimeError("/etc/secret at 0x7fff")

    monkeypatch.setattr(service.recommender, "answer", broken)
    answer = client.post("/v1/recommend", {})
    assert answer.status_code == 500
    assert answer.json()["status"] == 500
    assert "secret" not in answer.text
    assert "0x7fff" not in answer.text


def test_a_store_that_is_gone_degrades_reads_and_refuses_writes(client, monkeypatch):
    store = client.app.state.service.store.store

    def gone(*_: Any) -> Any:
        raise StoreError("redis://:password@host is gone")

    for name in ("read", "put_item", "put_profile", "append", "known_events"):
        monkeypatch.setattr(store, name, gone)
    answer = client.post("/v1/recommend", {"user_id": "100", "n": 1}).json()
    assert answer["degraded"] == ["history"]
    refused = client.put("/v1/users/u", {"properties": {}})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "password" not in refused.text
    assert client.post("/v1/events", [click("a")]).json()["accepted"] == 1, "the log has it"
    assert client.get("/health/ready").json()["checks"]["store"] == "unavailable"


def test_it_starts_while_redis_cannot_be_reached(start):
    pytest.importorskip("redis", reason="the client comes with the extra `redis`")
    client = start(store="redis://127.0.0.1:1/0")
    answer = client.post("/v1/recommend", {"user_id": "100", "n": 1}).json()
    assert (answer["degraded"], len(answer["items"])) == (["history"], 1)
    assert client.post("/v1/events", [click("a")]).json()["accepted"] == 1
    assert client.get("/health/ready").json()["checks"]["store"] == "unavailable"


def test_too_many_at_once_are_turned_away(start):
    client = start(concurrency=1, queue=1)
    service = client.app.state.service
    service._waiting = 2
    answer = client.post("/v1/recommend", {})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    service._waiting = 0
    assert client.post("/v1/recommend", {}).status_code == 200


def test_scenes_come_from_the_settings(start):
    scene = {
        "n": 3,
        "sources": {"popular": {"type": "popularity"}},
        "ranking": {"score": "watch"},
        "properties": ["title"],
    }
    client = start(scenes={"home": scene})
    answer = client.post("/v1/recommend", {"user_id": "100"}).json()
    assert answer["scene"] == "home"
    assert [item["properties"]["title"] for item in answer["items"]] == ["Film 0", "Film 1", "Film 2"]
    assert client.post("/v1/recommend", {"scene": "default", "n": 1}).json()["scene"] == "default"


def test_the_document_of_the_api_names_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {
        "/v1/recommend", "/v1/recommend/{user_id}", "/v1/rank", "/v1/items/{item_id}/similar", "/v1/popular",
        "/v1/events", "/v1/items/{item_id}", "/v1/users/{user_id}", "/v1/models", "/health/live", "/health/ready",
        "/v1/models/{name}/versions/{version}:activate", "/v1/models/{name}:predict",
    } <= paths.keys()  # fmt: skip
