"""Everything at once: no request fails while items, users and models change under it."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import serving.service
from serving.app import create_app
from serving.settings import load_settings
from tests.serving.client import Client
from tests.serving.world import KnownModel

SCENE = {
    "sources": {
        "towers": "two_tower",
        "together": "item_to_item",
        "alike": "content",
        "popular": "popularity",
        "trending": "trending",
        "new": "fresh",
    },
    "filters": {"seen": "seen", "shown": {"type": "served", "soft": True}},
    "reranking": {
        "varied": "mmr",
        "cap": {"type": "cap", "column": "genres"},
        "slots": {"type": "slots", "sources": ["new"], "every": 4},
    },
}
TURNS = 60


def act(client: Client, chance: random.Random, name: str) -> Any:
    """Does one thing that an application does."""
    user, item = (
        str(chance.randrange(95, 125)),
        chance.choice([chance.randrange(80), 700 + chance.randrange(20)]),
    )
    what = chance.randrange(9)
    if what < 3:
        body = {"user_id": user, "n": chance.randrange(1, 80), "session_id": chance.choice([None, "s"])}
        return client.post("/v1/recommend", {**body, "debug": chance.random() < 0.3})
    if what < 5:
        events = [
            {"event_id": f"{name}-{chance.randrange(300)}", "type": "click", "user_id": user, "item_id": item}
            for _ in range(chance.randrange(1, 5))
        ]
        return client.post("/v1/events", events)
    if what == 5:
        properties = {
            "genres": chance.choice(["comedy", "drama|noir", None]),
            "year": chance.choice([None, 1990]),
        }
        return client.put(f"/v1/items/{item}", {"properties": properties, "available": chance.random() < 0.8})
    if what == 6:
        return client.delete(f"/v1/items/{item}")
    if what == 7:
        return client.get(f"/v1/items/{item}/similar?n=5&user_id={user}")
    if chance.random() < 0.3:
        return client.delete(f"/v1/users/{user}")
    return client.put(f"/v1/users/{user}", {"properties": {"age": chance.choice([None, 30])}})


@pytest.mark.slow
def test_no_request_fails_while_everything_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: Path, **_: Any) -> KnownModel:
        name, _, version = path.name.partition("@")
        return KnownModel(tmp_path / path.name, name, version or "1", vectors=name == "towers")

    monkeypatch.setattr(serving.service, "load_served_model", load)
    monkeypatch.setattr(serving.service, "find_bundle", lambda path: path)
    given = {"models": ["films", "towers"], "data": str(tmp_path / "data"), "scenes": {"home": SCENE}}
    wrong: list[str] = []
    with Client(create_app(load_settings(given=given, environment={}))) as client:
        hub = client.app.state.service.hub

        def run(name: str) -> None:
            chance = random.Random(name)
            for turn in range(TURNS):
                answer = act(client, chance, name)
                body = answer.json() if answer.status_code == 200 else {}
                if answer.status_code >= 500 or body.get("degraded"):
                    wrong.append(f"{answer.status_code} {answer.text[:300]}")
                if name == "swaps" and turn % 20 == 10:
                    hub.load_now(f"films@{turn}")
                    hub.load_now(f"towers@{turn}")

        threads = [threading.Thread(target=run, args=(name,)) for name in ("swaps", "one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hub.active("films").version == "50"
    assert wrong == []
