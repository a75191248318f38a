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
from serving.events.log import EventLog
from serving.events.streams import StreamForward, StreamIntake, open_stream
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


def test_accepted_events_are_passed_on_also_after_the_server_was_away(start_redis, writer):
    server = start_redis()
    forward = StreamForward(f"{server.url}?stream=out")
    forward.start()
    forward([json.dumps({**EVENT, "kind": "event", "received": 1.0}).encode() + b"\n"])
    client = redis.Redis.from_url(server.url, decode_responses=True)
    assert eventually(lambda: client.xlen("out") == 1)
    server.stop()
    forward([json.dumps({**EVENT, "event_id": "b", "kind": "event", "received": 1.0}).encode() + b"\n"])
    time.sleep(0.1)
    server.start()
    assert eventually(lambda: client.xlen("out") == 1), (
        "the server has forgotten the first, and got the second"
    )
    intake = StreamIntake(f"{server.url}?stream=out", writer)
    intake.start()
    assert eventually(lambda: writer.state.accepted == 1), "another service can read what one passes on"
    intake.stop()
    forward.stop()
    client.close()


def test_a_wrong_url_is_told():
    with pytest.raises(ConfigError, match="a stream is written redis://"):
        open_stream("http://nowhere")
    client, name = open_stream("redis://localhost:1/0")
    assert name == "events"
    client.close()
