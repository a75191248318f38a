"""Real processes over real sockets: killed under load, out of disk, ended in the middle of work."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.events.log import read_segment
from tests.serving.conftest import free_port

ROOT = Path(__file__).parents[2]


class Server:
    """A server process; `start` may be called again after it died.

    Args:
        command: What to run; `{port}` stands for the port.
        environment: Further variables.
        limit: Called in the process before it starts.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], limit: Callable[[], None] | None = None
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [part.format(port=self.port) for part in command]
        self._environment = {**os.environ, **environment}
        self._limit = limit
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 60.0) -> Server:
        self.process = subprocess.Popen(
            self._command, env=self._environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=self._limit,
        )  # fmt: skip
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.errors()}")
            try:
                if httpx.get(f"{self.url}/health/ready").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise RuntimeError("the server does not become ready")

    def errors(self) -> str:
        return self.process.stderr.read().decode() if self.process and self.process.stderr else ""

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        if self.process.stderr is not None:
            self.process.stderr.close()
        self.process = None
        return code


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers = []

    def serve(limit: Callable[[], None] | None = None, **environment: str) -> Server:
        script = str(Path(__file__).parent / "known_server.py")
        server = Server([sys.executable, script, str(tmp_path), "{port}"], environment, limit)
        servers.append(server)
        return server.start()

    yield serve
    for server in servers:
        server.end()


def event(event_id: str, user: str = "u", **options: Any) -> dict[str, Any]:
    return {"event_id": event_id, "type": "click", "user_id": user, "item_id": 7, **options}


def logged(folder: Path) -> list[str]:
    return [
        record["event_id"]
        for path in (folder / "data" / "events").rglob("*.jsonl")
        for record, _ in read_segment(path)
        if record["kind"] == "event"
    ]


@pytest.mark.slow
def test_a_killed_process_loses_no_acknowledged_event_and_doubles_none(serve, tmp_path):
    server = serve()
    acknowledged: set[str] = set()
    unsure: set[str] = set()
    going = threading.Event()
    going.set()

    def send(number: int) -> None:
        with httpx.Client(base_url=server.url) as http:
            turn = 0
            while going.is_set():
                names = [f"{number}-{turn}-{place}" for place in range(5)]
                turn += 1
                unsure.update(names)
                try:
                    answer = http.post("/v1/events", json=[event(name, f"u{number}") for name in names])
                except httpx.TransportError:
                    return
                if answer.status_code == 200 and answer.json()["accepted"] == 5:
                    acknowledged.update(names)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    server.end(signal.SIGKILL)
    going.clear()
    for thread in threads:
        thread.join()
    assert len(acknowledged) > 20, "there was load"

    server.start()
    with httpx.Client(base_url=server.url) as http:
        again = sorted(unsure)
        for start in range(0, len(again), 500):
            body = [event(name, f"u{name[0]}") for name in again[start : start + 500]]
            answer = http.post("/v1/events", json=body).json()
            assert answer["accepted"] + answer["duplicates"] == len(body)
        debug = http.post("/v1/recommend", json={"user_id": "u1", "debug": True}).json()["debug"]
        assert debug["user"]["recent"] == [7], "the store has caught up with the log"
    server.end(signal.SIGTERM)
    found = logged(tmp_path)
    assert set(found) == unsure
    assert len(found) == len(set(found)), "none is there twice"


@pytest.mark.slow
def test_a_process_that_is_asked_to_end_finishes_what_it_began(serve, tmp_path):
    server = serve()
    with httpx.Client(base_url=server.url) as http:
        accepted = [
            name
            for name in map(str, range(50))
            if http.post("/v1/events", json=[event(name)]).json()["accepted"] == 1
        ]
        http.post("/v1/recommend", json={"user_id": "100", "request_id": "r1"})
    server.end(signal.SIGTERM)
    assert sorted(logged(tmp_path)) == sorted(accepted)
    text = "".join(path.read_text() for path in (tmp_path / "data" / "events" / "closed").glob("*.jsonl"))
    assert '"request_id":"r1"' in text
    assert not list((tmp_path / "data" / "events" / "open").glob("*.jsonl"))


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


@pytest.mark.slow
def test_a_full_disk_stops_events_but_not_recommendations(serve, tmp_path):
    # Files may not grow beyond a limit, as on a full disk; the store is in memory, to leave only the log to fail.
    server = serve(_small_files, EASYREC_STORE="memory", EASYREC_EVENTS__IMPRESSIONS="false")
    with httpx.Client(base_url=server.url) as http:
        statuses, accepted = [], []
        for turn in range(100):
            body = [event(f"{turn}-{place}", properties={"text": "x" * 1000}) for place in range(10)]
            answer = http.post("/v1/events", json=body)
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                accepted += [one["event_id"] for one in body]
            else:
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["content-type"] == "application/problem+json"
        assert set(statuses) == {200, 503}
        assert http.post("/v1/recommend", json={"user_id": "100"}).status_code == 200
        assert http.get("/health/ready").json()["checks"]["events"] == "unavailable"
    server.end(signal.SIGTERM)
    assert sorted(logged(tmp_path)) == sorted(accepted)


@pytest.mark.slow
def test_redis_goes_and_comes_back_under_a_running_service(serve, start_redis, tmp_path):
    redis = start_redis()
    server = serve(EASYREC_STORE=redis.url)
    with httpx.Client(base_url=server.url) as http:
        http.post("/v1/events", json=[event("a")])
        debug = http.post("/v1/recommend", json={"user_id": "u", "debug": True}).json()["debug"]
        assert debug["user"]["recent"] == [7]
        redis.stop()
        answer = http.post("/v1/recommend", json={"user_id": "u"})
        assert (answer.status_code, answer.json()["degraded"]) == (200, ["history"])
        assert http.post("/v1/events", json=[event("b", item_id=8)]).json()["accepted"] == 1
        redis.start()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            answer = http.post("/v1/recommend", json={"user_id": "u", "debug": True}).json()
            if not answer["degraded"] and answer["debug"]["user"]["recent"]:
                break
            time.sleep(0.1)
        assert answer["debug"]["user"]["recent"] == [8], (
            "Redis has forgotten the first and was brought the second"
        )


@pytest.mark.slow
def test_a_killed_process_passes_on_what_it_accepted_while_the_stream_was_away(serve, start_redis, tmp_path):
    redis = start_redis()
    server = serve(EASYREC_EVENTS__FORWARD=f"{redis.url}?stream=out")
    redis.stop()
    names = [str(number) for number in range(40)]
    with httpx.Client(base_url=server.url) as http:
        for name in names:
            assert http.post("/v1/events", json=[event(name)]).json()["accepted"] == 1
    server.end(signal.SIGKILL)
    redis.start()
    server.start()
    with pytest.importorskip("redis").Redis.from_url(redis.url, decode_responses=True) as client:
        end = time.monotonic() + 20
        while client.xlen("out") < len(names) and time.monotonic() < end:
            time.sleep(0.05)
        assert [json.loads(fields["event"])["event_id"] for _, fields in client.xrange("out")] == names


@pytest.mark.slow
def test_two_processes_share_histories_and_count_an_event_once(serve, tmp_path):
    first, second = serve(), serve()
    with httpx.Client(base_url=first.url) as one, httpx.Client(base_url=second.url) as other:
        assert one.post("/v1/events", json=[event("a")]).json()["accepted"] == 1
        assert other.post("/v1/events", json=[event("a")]).json()["duplicates"] == 1
        debug = other.post("/v1/recommend", json={"user_id": "u", "debug": True}).json()["debug"]
        assert debug["user"]["recent"] == [7]
        one.put("/v1/items/777", json={"properties": {"genres": "comedy"}})
        one.post("/v1/events", json=[event(f"t{n}", f"t{n}", item_id=55) for n in range(5)])
        end = time.monotonic() + 20
        while other.get("/v1/items/777").status_code != 200 and time.monotonic() < end:
            time.sleep(0.1)
        assert other.get("/v1/items/777").json()["properties"]["genres"] == "comedy"
        while not _trending(other) and time.monotonic() < end:
            time.sleep(0.1)
        assert _trending(other) == [55], "what is taken in one process is trending in the other"
    first.end(signal.SIGTERM)
    second.end(signal.SIGTERM)
    with httpx.Client(base_url=serve().url) as later:
        end = time.monotonic() + 20
        while not _trending(later) and time.monotonic() < end:
            time.sleep(0.1)
        assert _trending(later) == [55], "trends do not begin anew with each release"


def _trending(http: httpx.Client) -> list[int]:
    answer = http.post("/v1/recommend", json={"user_id": "v", "n": 60}).json()
    return [item["item_id"] for item in answer["items"] if "trending" in item["sources"]]
