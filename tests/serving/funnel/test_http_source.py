"""A source behind HTTP, with a real server that answers well, badly, late or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from serving.recommender import Request


class Shelf(ThreadingHTTPServer):
    """Answers with whatever a test says."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, b"[]")
        self.asked: list[dict[str, Any]] = []
        self.go = threading.Event()
        self.go.set()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Shelf

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.go.wait(10)
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def home(world, shelf):
    url = f"http://127.0.0.1:{shelf.server_address[1]}/candidates"
    scene = {"sources": {"shelf": {"type": "http", "url": url, "deadline_ms": 3000}}}
    return world(scene)


def test_it_is_told_who_asks_and_its_items_are_ranked(home, shelf):
    shelf.answer = (
        200,
        b'{"items": [{"item_id": 7, "score": 0.5}, {"item_id": "9"}, {"item_id": "unknown"}]}',
    )
    answer = home.recommender.answer(
        Request(user_id="100", context={"device": "tv"}, n=5, request_id="r")
    ).payload
    assert [item["item_id"] for item in answer["items"] if item["sources"] == ["shelf"]] == [9, 7]
    assert answer["degraded"] == []
    (asked,) = shelf.asked
    assert asked["user_id"] == "100"
    assert asked["recent"] == [4, 3, 2, 1, 0]
    assert asked["context"] == {"device": "tv"}
    assert asked["request_id"] == "r"


@pytest.mark.parametrize(
    "answer",
    [(500, b"oh"), (200, b"<html>"), (200, b'{"items": 3}'), (200, b'{"items": [{"score": 1}]}'),
     (200, b'[{"item_id": 1, "score": "high"}]'), (302, b""), (200, b"[" + b"1," * 3_000_000 + b"1]")],
    ids=["error", "no json", "no list", "no key", "no number", "elsewhere", "too long"],
)  # fmt: skip
def test_a_bad_answer_is_left_out_and_named(home, shelf, answer):
    shelf.answer = answer
    payload = home.recommender.answer(Request(user_id="100", n=3)).payload
    assert payload["degraded"] == ["source.shelf"]
    assert len(payload["items"]) == 3


def test_a_late_answer_is_not_waited_for(world, shelf):
    url = f"http://127.0.0.1:{shelf.server_address[1]}"
    home = world({"sources": {"shelf": {"type": "http", "url": url, "deadline_ms": 30}}})
    shelf.go.clear()
    payload = home.recommender.answer(Request(user_id="100", n=3)).payload
    assert payload["degraded"] == ["source.shelf"]
    assert len(payload["items"]) == 3
