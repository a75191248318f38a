"""Events from and to Redis streams, with a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("redis", reason="the client comes with the extra `redis`")

import redis

from easyrec.errors import ConfigError
from serving.events.event import Event
from serving.events.forward import StreamForward
from serving.events.log import EventLog, LogError, line
from serving.events.streams import StreamIntake, open_stream
from serving.events.writer import EventWriter
from serving.stores.guard import GuardedStore
from serving.stores.memory import MemoryStore

EVENT = {"event_id": "a", "type": "click", "user_id": "u", "item_id": "i"}


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    return condition()


@pytest.fixture
def writer(tmp_path):
    store = MemoryStore()
    writer = EventWriter(EventLog(tmp_path / "events"), GuardedStore(store))
    writer.start()
    yield writer
    writer.stop()


def test_events_are_read_acknowledged_and_refused_with_the_reason(redis_server, writer, tmp_path):
    name = tmp_path.name
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    client.xadd(name, {"event": json.dumps(EVENT)})
    client.xadd(name, {"event_id": "b", "type": "click", "user_id": "u", "value": "2.5"})
    client.xadd(name, {"event": "{"})
    client.xadd(name, {"event": json.dumps({**EVENT, "type": "?"})})
    intake = StreamIntake(f"{redis_server.url}?stream={name}", writer)
    intake.start()
    assert eventually(lambda: writer.state.accepted == 2)
    client.xadd(name, {"event": json.dumps({**EVENT, "event_id": "c"})})
    assert eventually(lambda: writer.state.accepted == 3)
    assert eventually(lambda: client.xpending(name, "easyrec")["pending"] == 0)
    intake.stop()
    rejected = [fields["reason"] for _, fields in client.xrange(f"{name}:rejected")]
    assert len(rejected) == 2
    assert any("type" in reason for reason in rejected)
    client.close()


def test_what_a_reader_took_and_never_acknowledged_is_taken_again(redis_server, writer, tmp_path):
    name = tmp_path.name
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    client.xgroup_create(name, "easyrec", id="0", mkstream=True)
    client.xadd(name, {"event": json.dumps(EVENT)})
    client.xreadgroup("easyrec", "one", {name: ">"})
    intake = StreamIntake(f"{redis_server.url}?stream={name}", writer, consumer="one")
    intake.start()
    assert eventually(lambda: writer.state.accepted == 1)
    intake.stop()
    client.close()


def test_entries_that_hold_anything_stop_nothing(redis_server, writer, tmp_path):
    name = tmp_path.name
    client = redis.Redis.from_url(redis_server.url)
    client.xgroup_create(name, "easyrec", id="0", mkstream=True)
    cut_off = client.xadd(name, {"event": json.dumps(EVENT)})
    client.xreadgroup("easyrec", "one", {name: ">"})
    client.xdel(name, cut_off)
    for fields in ({"event": b"\xff\xfe"}, {b"\xff": b"\x00"}, {"event": b"[" * 100_000}, {"event": b"7"}):
        client.xadd(name, fields)
    client.xadd(name, {"event": json.dumps({**EVENT, "event_id": "b"})})
    intake = StreamIntake(f"{redis_server.url}?stream={name}", writer, consumer="one")
    intake.start()
    assert eventually(lambda: writer.state.accepted == 1)
    assert eventually(lambda: client.xpending(name, "easyrec")["pending"] == 0)
    intake.stop()
    assert client.xlen(f"{name}:rejected") == 5
    client.close()


def test_events_are_read_also_after_the_server_was_away_and_the_disk_was_full(
    start_redis, writer, monkeypatch
):
    server = start_redis()
    client = redis.Redis.from_url(server.url, decode_responses=True)
    intake = StreamIntake(f"{server.url}?stream=in", writer)
    monkeypatch.setattr("serving.events.streams._RETRY_SECONDS", 0.05)
    intake.start()
    client.xadd("in", {"event": json.dumps(EVENT)})
    assert eventually(lambda: writer.state.accepted == 1)
    server.stop()
    time.sleep(0.2)
    server.start()  # it has forgotten the stream and the group
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", lambda file: (_ for _ in ()).throw(OSError(28, "no space left")))
        client.xadd("in", {"event": json.dumps({**EVENT, "event_id": "b"})})
        assert eventually(lambda: writer.state.failed > 0)
        assert client.xpending("in", "easyrec")["pending"] == 1, "it is not acknowledged"
    assert eventually(lambda: writer.state.accepted == 2)
    assert eventually(lambda: client.xpending("in", "easyrec")["pending"] == 0)
    intake.stop()
    client.close()


@pytest.fixture
def forwarding(tmp_path, start_redis):
    """A server, and writers that pass on what they accept; `die` leaves everything as a kill does."""
    server, folder = start_redis(), tmp_path / "forwarding"
    begun: list[tuple[StreamForward, EventWriter]] = []

    def begin() -> EventWriter:
        log = EventLog(folder)
        writer = EventWriter(log, GuardedStore(MemoryStore()))
        forward = StreamForward(f"{server.url}?stream=out", folder)
        writer.add_sink(forward)
        begun.append((forward, writer))
        writer.start()
        forward.start()
        return writer

    def end(killed: bool = False) -> None:
        forward, writer = begun.pop()
        if killed:
            forward._add = lambda events: (_ for _ in ()).throw(OSError("killed"))
            writer._log.roll = writer._log.close
        writer.stop()
        forward.stop()

    yield server, folder, begin, end
    while begun:
        end()


def passed_on(server) -> list[str]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return [json.loads(fields["event"])["event_id"] for _, fields in client.xrange("out")]


def write(writer: EventWriter, *names: str) -> None:
    writer.write([Event.model_validate({**EVENT, "event_id": name}) for name in names]).result(10)


def test_accepted_events_are_passed_on_also_after_the_server_was_away(forwarding, writer):
    server, _, begin, _ = forwarding
    one = begin()
    one.note([line({"kind": "impression", "received": 1.0})])
    write(one, "a", "b", "a")
    assert eventually(lambda: passed_on(server) == ["a", "b"])
    server.stop()
    write(one, "c")
    server.start()
    assert eventually(lambda: passed_on(server) == ["c"]), (
        "the server has forgotten the first, and got the third"
    )
    intake = StreamIntake(f"{server.url}?stream=out", writer)
    intake.start()
    assert eventually(lambda: writer.state.accepted == 1), "another service can read what one passes on"
    intake.stop()


@pytest.mark.parametrize("killed", [True, False])
def test_what_could_not_be_passed_on_is_passed_on_after_the_next_start_and_nothing_twice(forwarding, killed):
    server, folder, begin, end = forwarding
    one = begin()
    write(one, "a")
    assert eventually(lambda: passed_on(server) == ["a"])
    server.stop()
    write(one, "b")
    one._log.roll()
    write(one, "c")
    end(killed)
    for path in (folder / "closed").glob("*.jsonl"):
        path.unlink()  # as compaction does
    server.start()
    write(begin(), "d")
    assert eventually(lambda: passed_on(server) == ["b", "c", "d"])
    end()
    assert list((folder / "forward").iterdir()) == [], "all was passed on, and nothing remains"


def test_what_a_living_process_passes_on_is_left_to_it(forwarding):
    server, _, begin, _ = forwarding
    one = begin()
    server.stop()
    write(one, "a")
    write(begin(), "b")
    server.start()
    assert eventually(lambda: sorted(passed_on(server)) == ["a", "b"])
    time.sleep(0.2)
    assert sorted(passed_on(server)) == ["a", "b"]


def test_what_the_disk_did_not_take_is_not_passed_on(forwarding, monkeypatch):
    server, _, begin, _ = forwarding
    one = begin()
    write(one, "a")
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(LogError):
            write(one, "b")
    write(one, "c")
    assert eventually(lambda: passed_on(server) == ["a", "c"])


def test_a_disk_without_second_names_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(1, "not permitted")))
    with pytest.raises(ConfigError, match=r"events\.forward: files in .* cannot have a second name"):
        StreamForward("redis://localhost:1/0", tmp_path)


def test_a_wrong_url_is_told():
    with pytest.raises(ConfigError, match="a stream is written redis://"):
        open_stream("http://nowhere")
    client, name = open_stream("redis://localhost:1/0")
    assert name == "events"
    client.close()
