"""The client and the service understand each other, in every method."""

from __future__ import annotations

import asyncio

import pytest

from easyrec.client import (
    AsyncClient,
    Client,
    Event,
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
    ProblemError,
    Retries,
    TooManyRequestsError,
)
from tests.serving.application import known_keys, make_app, running


@pytest.fixture
def client(tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as http, Client(str(http.base_url), api_key="boss") as client:
        yield client


def test_lists(client):
    shown = client.recommend(100, n=5, properties=["title"], context={"device": "tv"}, debug=True)
    assert [item.position for item in shown.items] == [1, 2, 3, 4, 5]
    assert shown.items[0].properties == {"title": f"Film {shown.items[0].item_id}"}
    assert shown.model.name == "films"
    assert shown.debug["stages"]
    excluded = client.recommend(100, n=5, exclude_ids=[shown.items[0].item_id], request_id="mine")
    assert excluded.request_id == "mine"
    assert shown.items[0].item_id not in [item.item_id for item in excluded.items]
    assert {item.item_id for item in client.recommend(100, item_ids=[7, 8]).items} == {7, 8}
    ranked = client.rank(100, [3, 50, "nothing"])
    assert [item.item_id for item in ranked.items] == [50, 3]
    assert ranked.unknown_ids == ["nothing"]
    assert client.similar(1, n=2).items[0].item_id == 2
    assert client.popular(n=1, properties=True).items[0].properties["title"] == "Film 0"
    assert client.recommend(session_id="s").items
    assert client.recommend().items


def test_events_are_counted_once_and_used_at_once(client):
    event = Event(type="click", user_id="somebody", item_id=20)
    assert client.post_events([event, {"type": "click", "user_id": "somebody", "item_id": 21}]).accepted == 2
    assert client.post_events([event]).duplicates == 1
    assert client.post_events([{"type": "click"}]).rejected[0].index == 0
    shown = client.recommend("somebody", n=50, debug=True)
    assert shown.debug["user"]["known"] == ["history"]
    assert not {20, 21} & {item.item_id for item in shown.items}
    client.post_events([Event(type="click", session_id="visit", item_id=30)])
    client.merge_session("other", "visit")
    assert 30 not in [item.item_id for item in client.recommend("other", n=60).items]


@pytest.mark.parametrize("key", [7, "new", "a b", "ü?#%", "https://shop.example/films/7?x=1", "a\nb"])
def test_items_and_users_of_any_key(client, key):
    if isinstance(key, str):  # the keys of these films are numbers
        with pytest.raises((InvalidRequestError, NotFoundError)):
            client.patch_item(key, {"title": "x"})
    else:
        assert client.put_item(key, {"title": "New", "year": 2000}).properties["title"] == "New"
        assert client.patch_item(key, available=False).available is False
        assert client.get_item(key).properties["year"] == 2000
        client.delete_item(key)
    assert client.put_user(key, {"age": 31}).properties == {"age": 31}
    assert client.patch_user(key, {"shoe": 44}).unread == ["shoe"]
    client.post_events([Event(type="click", user_id=key, item_id=9)])
    assert set(client.recommend(key, debug=True).debug["user"]["known"]) == {"profile", "history"}
    assert client.delete_user(key) is None
    assert client.recommend(key, debug=True).debug["user"]["known"] == []


def test_models(client):
    [version] = client.models()
    assert (version.name, version.version, version.state) == ("films", "1", "active")
    assert client.activate("films", "1").version == "1"
    with pytest.raises(NotFoundError, match="version '2'"):
        client.activate("films", "2")
    with pytest.raises(ProblemError, match="no previous version"):
        client.rollback("films")
    client.wait_until_ready(5)


def test_refusals_are_errors_of_their_class(tmp_path, monkeypatch):
    security = {"keys": str(known_keys(tmp_path)), "requests_per_second": 0.01, "burst": 4, "body_kib": 8}
    with running(make_app(tmp_path, monkeypatch, security=security)) as http:
        address, once = str(http.base_url), Retries(attempts=1)
        for key, message in ((None, r"an API key is missing.*easyrec keys create"), ("er_x", "has expired")):
            with Client(address, key, retries=once) as client, pytest.raises(NotAllowedError, match=message):
                client.recommend(1)
        client = Client(address, api_key="reader", retries=once)
        with pytest.raises(NotAllowedError, match="'write'"):
            client.post_events([Event(type="a", user_id=1)])
        with pytest.raises(InvalidRequestError, match=r"there is no scene 'hom'\. Did you mean 'home'"):
            client.recommend(1, scene="hom")
        with pytest.raises(InvalidRequestError, match="bytes"):
            client.recommend(1, exclude_ids=list(range(5000)))
        client.popular()
        client.popular()
        with pytest.raises(TooManyRequestsError) as caught:
            client.popular()
        assert caught.value.retry_after >= 1
        assert caught.value.request_id
        client.close()


def test_many_at_once(tmp_path, monkeypatch):
    async def ask(address: str) -> list:
        async with AsyncClient(address, timeout=30) as client:
            return await asyncio.gather(*(client.recommend(user, n=3) for user in range(100, 130)))

    with running(make_app(tmp_path, monkeypatch)) as http:
        lists = asyncio.run(ask(str(http.base_url)))
    assert all(len(one.items) == 3 for one in lists)
    assert len({one.request_id for one in lists}) == 30
