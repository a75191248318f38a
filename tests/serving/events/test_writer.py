"""Events are accepted once, durably, and known to the next request; faults are told, not hidden."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from serving.events import log as log_module
from serving.events.event import Event
from serving.events.log import EventLog, LogError, read_segment
from serving.events.writer import EventWriter, OverloadedError, Written
from serving.stores.base import Served, StoreError
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore
from serving.stores.sqlite import SqliteStore

NOW = 1_800_000_000.0


def event(event_id: str, **options: Any) -> Event:
    return Event.model_validate(
        {"event_id": event_id, "type": "click", "user_id": "u", "item_id": "i", **options}
    )


class Failing(MemoryStore):
    """A store that can be switched off."""

    works = True

    def append(self, entries):
        if not self.works:
            raise StoreError("gone")
        super().append(entries)

    def known_events(self, event_ids):
        if not self.works:
            raise StoreError("gone")
        return super().known_events(event_ids)

    def erase(self, user_id, time):
        if not self.works:
            raise StoreError("gone")
        super().erase(user_id, time)


@pytest.fixture
def make(tmp_path):
    writers = []

    def make(store: Any = None, start: bool = True) -> EventWriter:
        guarded = GuardedStore(store or MemoryStore(), retry=0.0)
        writer = EventWriter(EventLog(tmp_path / "events"), guarded, lambda: NOW)
        writers.append(writer)
        if start:
            writer.start()
        return writer

    yield make
    for writer in writers:
        writer.stop()


def logged(folder: Path) -> list[str]:
    return [
        record["event_id"]
        for path in sorted((folder / "events").rglob("*.jsonl"))
        for record, _ in read_segment(path)
        if record["kind"] == "event"
    ]


def test_accepted_events_are_in_the_log_and_in_the_store(make, tmp_path):
    store = MemoryStore()
    writer = make(store)
    assert writer.write([event("a"), event("b")]).result(5) == Written(2, 0)
    assert logged(tmp_path) == ["a", "b"]
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a", "b"]


def test_an_event_counts_once_within_a_request_across_requests_and_across_restarts(make, tmp_path):
    store = SqliteStore(tmp_path / "s")
    writer = make(store)
    assert writer.write([event("a"), event("a"), event("b")]).result(5) == Written(2, 1)
    assert writer.write([event("a", item_id="other")]).result(5) == Written(0, 1)
    writer.stop()
    again = make(SqliteStore(tmp_path / "s"))
    assert again.write([event("b"), event("c")]).result(5) == Written(1, 1)
    again.stop()
    assert sorted(logged(tmp_path)) == ["a", "b", "c"]


def test_many_senders_at_once(make, tmp_path):
    writer = make()
    accepted = []

    def send(number: int) -> None:
        for turn in range(20):
            written = writer.write([event(f"{number}-{turn}"), event(f"shared-{turn}")]).result(10)
            accepted.append(written.accepted)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(accepted) == 8 * 20 + 20
    assert len(logged(tmp_path)) == len(set(logged(tmp_path))) == 180


def test_what_a_crash_kept_from_the_store_is_brought_to_it(make, tmp_path):
    log = EventLog(tmp_path / "events")
    damaged = [
        b'{"kind":"event"}\n',
        b'{"kind":"event","event_id":3,"type":[],"timestamp":"x","received":1}\n',
        b"?\n",
    ]
    log.append([*damaged, log_module.line(event("a").record(NOW)), b'{"kind":"event","ev'], NOW)
    os.close(log._segment.file)
    store = MemoryStore()
    writer = make(store)
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a"]
    assert writer.write([event("a")]).result(5) == Written(0, 1)


def test_a_full_disk_is_told_to_the_sender_and_nothing_is_kept(make, tmp_path, monkeypatch):
    store = MemoryStore()
    writer = make(store)
    writer.write([event("a")]).result(5)

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, "write", full)
        with pytest.raises(LogError, match="No space left"):
            writer.write([event("b")]).result(5)
        assert writer.note([b"{}\n"])
        with pytest.raises(LogError, match="No space left"):
            writer.write([event("c")]).result(5)
    assert writer.state.error is not None
    assert writer.state.failed == 2
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a"]
    assert writer.write([event("b")]).result(5) == Written(1, 0), "it is as new when the disk has room again"
    assert writer.state.error is None
    assert logged(tmp_path) == ["a", "b"]


def test_while_the_store_is_gone_events_are_durable_and_come_to_it_later(make, tmp_path):
    store = Failing()
    writer = make(store)
    store.works = False
    assert writer.write([event("a")]).result(5) == Written(1, 0)
    assert writer.write([event("a"), event("b")]).result(5) == Written(1, 1)
    assert writer.state.backlog == 2
    assert store.read("u", None).behaviours == ()
    store.works = True
    assert writer.write([event("c")]).result(5) == Written(1, 0)
    assert [one.event_id for one in store.read("u", None).behaviours] == ["a", "b", "c"]
    assert writer.state.backlog == 0
    assert logged(tmp_path) == ["a", "b", "c"]


def test_what_the_store_missed_until_the_end_is_brought_to_it_at_the_next_start(make, tmp_path):
    store = Failing()
    writer = make(store)
    store.works = False
    writer.write([event("a")]).result(5)
    writer.stop()
    fresh = MemoryStore()
    make(fresh)
    assert [one.event_id for one in fresh.read("u", None).behaviours] == ["a"]


def test_what_the_store_missed_for_hours_is_brought_to_it_when_the_process_is_killed(tmp_path):
    store, now = Failing(), [NOW]
    writer = EventWriter(EventLog(tmp_path / "events"), GuardedStore(store, retry=0.0), lambda: now[0])
    writer.start()
    store.works = False
    for number in range(3):
        writer.write([event(str(number))]).result(5)
        now[0] += 3600
    assert len(list((tmp_path / "events" / "open").iterdir())) == 1
    os.close(writer._log._segment.file)  # its lock goes with it, as with a kill
    fresh = MemoryStore()
    later = EventWriter(EventLog(tmp_path / "events"), GuardedStore(fresh))
    later.start()
    assert [one.event_id for one in fresh.read("u", None).behaviours] == ["0", "1", "2"]
    later.stop()
    writer._log._segment = None
    store.works = True
    writer.write([event("3")]).result(5)
    now[0] += 3600
    writer.write([event("4")]).result(5)
    assert len(list((tmp_path / "events" / "closed").iterdir())) == 2, "segments end with their hours again"
    writer.stop()


def test_what_an_erased_user_did_does_not_come_back_after_a_crash(tmp_path):
    store = SqliteStore(tmp_path / "store.sqlite")
    now = [NOW]
    writer = EventWriter(EventLog(tmp_path / "events"), GuardedStore(store), lambda: now[0])
    writer.start()
    writer.write([event("a"), event("s", user_id=None, session_id="s")]).result(5)
    writer.write([event("login", session_id="s", item_id=None), event("other", user_id="v")]).result(5)
    writer.erase("u").result(5)
    now[0] += 1
    writer.write([event("b")]).result(5)
    store.put_profile("u", {"age": 3})
    os.close(writer._log._segment.file)  # its lock goes with it, as with a kill
    later = EventWriter(EventLog(tmp_path / "events"), GuardedStore(store), lambda: now[0])
    later.start()
    record = store.read("u", "s")
    assert ([one.event_id for one in record.behaviours], record.profile) == (["b"], {"age": 3})
    assert [one.event_id for one in store.read("v", None).behaviours] == ["other"]
    later.stop()
    writer._log._segment = None
    writer.stop()
    store.close()


def test_erasing_keeps_its_place_among_the_events(make, tmp_path):
    store = MemoryStore()
    writer = make(store, start=False)
    futures = [writer.write([event("a")]), writer.erase("u"), writer.write([event("b")])]
    writer.start()
    for future in futures:
        future.result(5)
    record = store.read("u", None)
    assert record.erased == NOW
    assert [one.event_id for one in record.behaviours] == ["b"]
    lines = [
        json.loads(text)
        for path in (tmp_path / "events").rglob("*.jsonl")
        for text in path.read_text().splitlines()
    ]
    assert {"kind": "erase", "user_id": "u", "received": NOW} in lines


def test_an_erasure_that_the_store_cannot_do_is_told_and_events_beside_it_are_not_blamed(make):
    store = Failing()
    writer = make(store, start=False)
    written, erased = writer.write([event("a")]), writer.erase("u")
    store.works = False
    writer.start()
    assert written.result(5) == Written(1, 0)
    with pytest.raises(StoreError):
        erased.result(5)


def test_too_much_is_refused_at_once(make, monkeypatch):
    monkeypatch.setattr("serving.events.writer.PENDING_JOBS", 2)
    writer = make(start=False)
    first = [writer.write([event("a")]), writer.write([event("b")])]
    with pytest.raises(OverloadedError, match="send them again later"):
        writer.write([event("c")])
    assert not writer.note([b"{}\n"])
    assert writer.state.notes_lost == 1
    writer.start()
    assert [future.result(5).accepted for future in first] == [1, 1]


def test_everything_is_written_before_it_stops(make, tmp_path):
    store = MemoryStore()
    writer = make(store, start=False)
    futures = [writer.write([event(str(number))]) for number in range(50)]
    writer.note([b'{"kind":"impression"}\n'], Served(["i"], NOW, "u"))
    writer.start()
    writer.stop()
    assert all(future.done() for future in futures)
    assert len(logged(tmp_path)) == 50
    assert [mark.item_id for mark in store.read("u", None).served] == ["i"]


def test_who_stops_waiting_harms_nobody_else(make):
    writer = make(start=False)
    first, second = writer.write([event("a")]), writer.write([event("b")])
    assert not first.cancel()
    writer.start()
    assert (first.result(5), second.result(5)) == (Written(1, 0), Written(1, 0))


def test_nothing_is_taken_after_the_end(make):
    writer = make()
    writer.stop()
    with pytest.raises(OverloadedError, match="the service is ending"):
        writer.write([event("a")])


def test_a_fault_in_a_listener_harms_no_later_batch(make):
    writer = make()
    writer.listeners.append(lambda entries: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writer.write([event("a")]).result(5)
    writer.listeners.clear()
    assert writer.write([event("b")]).result(5) == Written(1, 0)
