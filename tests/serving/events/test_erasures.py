"""Erased users leave the log of every machine, each file being written anew once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from serving.events import erasures
from serving.events.compaction import compact
from serving.events.event import Event
from serving.events.log import EventLog, line
from serving.stores.base import StoreError
from serving.stores.memory import MemoryStore

HOUR = 3600.0
NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path) -> Path:
    """A log in which each of three hours has events of the users u1 and u2."""
    log = EventLog(tmp_path)
    for hour in range(3):
        at = NOW + hour * HOUR
        events = [
            Event(event_id=f"{user}-{hour}", type="click", user_id=user, item_id="3") for user in ("u1", "u2")
        ]
        log.append([line(event.record(at)) for event in events], at)
        log.roll()
    compact(tmp_path, NOW + 9 * HOUR)
    return tmp_path


def users(folder: Path) -> list[str]:
    paths = sorted((folder / "parquet" / "events").rglob("*.parquet"))
    return [user for path in paths for user in pq.ParquetFile(path).read()["user_id"].to_pylist()]


def test_who_was_erased_on_another_machine_leaves_this_log_as_well(folder):
    store = MemoryStore()
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 0
    store.erase("u1", NOW + 1.5 * HOUR)
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 2
    assert users(folder) == ["u2", "u2", "u1", "u2"], "what came after is kept"
    store.erase("u1", NOW + 9 * HOUR)
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 1
    assert users(folder) == ["u2"] * 3


def test_a_store_that_cannot_be_asked_is_asked_for_all_of_it_the_next_time(folder, caplog):
    class Away(MemoryStore):
        def erased_since(self, time: float) -> dict[str, float]:
            raise StoreError("gone")

    store = MemoryStore()
    store.erase("u1", NOW + 5 * HOUR)
    assert compact(folder, NOW + 10 * HOUR, store=Away())["rewritten"] == 0
    assert "gone" in caplog.text
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 3


def test_files_are_looked_through_once_for_each_erasure(folder, monkeypatch):
    seen: list[dict[str, float]] = []
    rewrite = erasures._rewrite_file

    def noted(folder: Path, path: Path, erased: dict[str, float]) -> bool:
        seen.append(erased)
        return rewrite(folder, path, erased)

    monkeypatch.setattr(erasures, "_rewrite_file", noted)
    store = MemoryStore()
    store.erase("u1", NOW + 5 * HOUR)
    for _ in range(3):
        compact(folder, NOW + 10 * HOUR, store=store)
    assert len(seen) == 3
    store.erase("u9", NOW + 6 * HOUR)
    compact(folder, NOW + 10 * HOUR, store=store)
    assert [len(erased) for erased in seen[3:]] == [1, 1, 1]


@pytest.mark.parametrize("late", [False, True])
def test_what_a_session_did_that_was_the_users_goes_with_them(tmp_path, late):
    """Whether the log that tells it is Parquet already, when the user is erased, or is not."""
    log = EventLog(tmp_path)
    done = [
        {"event_id": "before", "session_id": "s1"},
        {"event_id": "login", "session_id": "s1", "user_id": "u1", "type": "merge"},
        {"event_id": "other", "session_id": "s2"},
        {"event_id": "same computer", "session_id": "s1", "user_id": "u2"},
        {"event_id": "called alike", "user_id": "s1"},
    ]
    events = [Event.model_validate({"type": "click", "item_id": "3", **one}) for one in done]
    shown = {
        "kind": "impression",
        "received": NOW,
        "items": [{"item_id": "3", "position": 1}],
        "features": {},
    }
    views = [line({**shown, "request_id": session, "session_id": session}) for session in ("s1", "s2")]
    log.append([*(line(event.record(NOW)) for event in events), *views], NOW)
    log.roll()
    if late:
        compact(tmp_path, NOW + 3 * HOUR)
    at = NOW + 4 * HOUR
    after = Event(event_id="after", type="click", session_id="s1", item_id="3")
    log.append([line({"kind": "erase", "user_id": "u1", "received": at - 1}), line(after.record(at))], at)
    log.roll()
    compact(tmp_path, NOW + 9 * HOUR)
    found = {
        kind: sorted(
            one
            for path in (tmp_path / "parquet" / kind).rglob("*.parquet")
            for one in pq.ParquetFile(path).read()[key].to_pylist()
        )
        for kind, key in (("events", "event_id"), ("impressions", "request_id"))
    }
    assert found == {"events": ["after", "called alike", "other", "same computer"], "impressions": ["s2"]}
    assert "s1" not in (tmp_path / "erased.json").read_text()


def test_a_damaged_file_keeps_no_other_from_being_written_anew(folder, caplog):
    store = MemoryStore()
    store.erase("u1", NOW + 5 * HOUR)
    damaged = min((folder / "parquet").rglob("*.parquet"))
    content = damaged.read_bytes()
    damaged.write_bytes(b"no Parquet")
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 2
    assert str(damaged) in caplog.text
    damaged.write_bytes(content)
    assert compact(folder, NOW + 10 * HOUR, store=store)["rewritten"] == 1
    assert users(folder) == ["u2"] * 3


def test_the_process_asks_the_store_that_machines_share(folder, redis_server: Any):
    redis = pytest.importorskip("serving.stores.redis")
    store = redis.RedisStore(redis_server.url)
    store.erase("u1", NOW + 5 * HOUR)
    store.close()
    subprocess.run(
        [sys.executable, "-m", "serving.events.compaction", str(folder)],
        check=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "EASYREC_STORE": redis_server.url},
        capture_output=True,
    )
    assert users(folder) == ["u2"] * 3
