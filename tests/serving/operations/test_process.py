"""`easyrec serve` as a process: its log, its end, its refusals."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from easyrec.client import Client, Event, Retries, ServiceError
from serving.events.log import read_segment
from tests.serving.application import known_keys, serving_process
from tests.serving.conftest import free_port

CONFIG = """
scenes:
  home:
    sources: {popular: {type: popularity}}
"""


def log_lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")]


def test_a_public_address_without_keys_is_refused_before_a_model_is_loaded(tmp_path):
    with serving_process(tmp_path, "--host", "0.0.0.0") as process:
        assert process.wait(60) == 2
    text = (tmp_path / "log").read_text()
    assert "easyrec keys create" in text
    assert "loading" not in text


@pytest.mark.slow
def test_no_acknowledged_event_is_lost_when_the_service_is_told_to_stop(tmp_path):
    (tmp_path / "serve.yaml").write_text(CONFIG)
    port = free_port()
    arguments = ["--port", str(port), "--config", str(tmp_path / "serve.yaml")]
    keys = str(known_keys(tmp_path))
    acknowledged: list[str] = []

    def send(start: int) -> None:
        with Client(f"http://127.0.0.1:{port}", api_key="writer", retries=Retries(attempts=1)) as client:
            for number in range(start, start + 100_000):
                event = Event(event_id=f"e{number}", type="click", user_id=100, item_id=number % 60)
                try:
                    client.post_events([event])
                except ServiceError:
                    return
                acknowledged.append(event.event_id)

    with serving_process(tmp_path, *arguments, EASYREC_SECURITY__KEYS=keys) as process:
        with Client(f"http://127.0.0.1:{port}", api_key="reader") as client:
            client.wait_until_ready(60)
            shown = client.recommend(100, n=5, request_id="theirs")
        senders = [threading.Thread(target=send, args=(start,)) for start in (0, 100_000, 200_000)]
        for sender in senders:
            sender.start()
        while len(acknowledged) < 200 and process.poll() is None:
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
        for sender in senders:
            sender.join()
    records = [
        record
        for segment in sorted((tmp_path / "data").rglob("*.jsonl"))
        for record, _ in read_segment(segment)
    ]
    logged = [record["event_id"] for record in records if record["kind"] == "event"]
    assert len(acknowledged) >= 200
    assert set(acknowledged) <= set(logged)
    assert len(set(logged)) == len(logged)
    assert [record["request_id"] for record in records if record["kind"] == "impression"] == ["theirs"]
    assert len(shown.items) == 5
    lines = log_lines(tmp_path)
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    requests = [line for line in lines if line["message"] == "request"]
    assert requests[0]["caller"] == "reader"
    assert requests[0]["request_id"]
    text = (tmp_path / "log").read_text()
    assert "writer" in text
    assert "Bearer" not in text
