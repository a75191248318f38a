"""Metrics are read from the trace, agree with the answers, and are served as Prometheus reads them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.funnel.trace import Trace
from serving.operations.access import Access
from serving.operations.metrics import MULTIPROCESS, HttpRequest, Metrics
from serving.recommender import Request
from tests.serving.application import ROOT, known_keys, make_app, running
from tests.serving.world import World

HOME = {
    "sources": {"together": {"type": "item_to_item", "n": 20}, "popular": {"type": "popularity", "n": 30}},
    "filters": {"seen": {"type": "seen"}},
}


def samples(text: bytes | str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, in the order of their names."""
    found = {}
    decoded = text.decode() if isinstance(text, bytes) else text
    for family in text_string_to_metric_families(decoded):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found[sample.name, *labels] = sample.value
    return found


@pytest.fixture
def world(tmp_path) -> World:
    from serving.funnel.scene import SceneConfig

    return World(tmp_path, {"home": SceneConfig.model_validate(HOME)})


def observed(world: World, *requests: Request) -> tuple[Metrics, list]:
    metrics, answers = Metrics(), []
    world.recommender.observers += [answers.append, metrics.observe_answer]
    for request in requests:
        world.recommender.answer(request)
    return metrics, answers


def test_an_answer_is_counted_as_its_trace_tells(world):
    metrics, [answer] = observed(world, Request(user_id="100", n=5))
    found = samples(metrics.text())
    assert found["easyrec_answers_total", "home"] == 1
    for stage in answer.trace.stages:
        assert found["easyrec_stage_seconds_count", stage.name, "home", stage.kind] == 1
        assert found["easyrec_stage_seconds_sum", stage.name, "home", stage.kind] == pytest.approx(
            stage.milliseconds / 1000
        )
    together = next(stage for stage in answer.trace.stages if stage.name == "together")
    assert found["easyrec_source_candidates_sum", "home", "together"] == together.returned > 0
    dropped = next(stage for stage in answer.trace.stages if stage.name == "seen").dropped
    assert found["easyrec_dropped_candidates_total", "seen", "home", "filter"] == len(dropped) == 5
    assert found["easyrec_scores_count", "films", "home", "1"] == 5
    scores = [item["score"] for item in answer.payload["items"]]
    assert found["easyrec_scores_bucket", "0.5", "films", "home", "1"] == sum(
        score <= 0.5 for score in scores
    )
    by_source = sum(value for name, value in found.items() if name[0] == "easyrec_returned_items_total")
    assert by_source == sum(len(item["sources"]) for item in answer.payload["items"])
    assert ("easyrec_short_answers_total", "home") not in found


def test_short_degraded_and_fallback_answers_are_counted(world):
    world.model.failing = RuntimeError("broken")
    metrics, _ = observed(world, Request(user_id="100", n=1000), Request(user_id="nobody", n=3))
    found = samples(metrics.text())
    assert found["easyrec_answers_total", "home"] == 2
    assert found["easyrec_short_answers_total", "home"] == 1
    assert found["easyrec_degraded_answers_total", "ranking", "home"] >= 1
    assert found["easyrec_stage_problems_total", "films", "home", "ranking"] >= 1
    assert sum(value for name, value in found.items() if name[0] == "easyrec_fallback_answers_total") >= 1


def test_an_empty_list_is_counted(world):
    world.model.remove_items(range(60))
    metrics, [answer] = observed(world, Request(user_id="100", n=5))
    assert answer.payload["items"] == []
    assert samples(metrics.text())["easyrec_empty_answers_total", "home"] == 1


def test_scores_that_are_no_numbers_are_left_out():
    metrics = Metrics()
    items = [{"score": score, "sources": []} for score in (None, float("inf"), 0.5)]
    payload = {"items": items, "model": {"name": "m", "version": "1"}, "took_ms": 1.0, "experiments": []}
    query = SimpleNamespace(wanted=np.arange(3), n=9)
    metrics.observe_answer(SimpleNamespace(trace=Trace("r", "home"), payload=payload, query=query))
    found = samples(metrics.text())
    assert found["easyrec_scores_count", "m", "home", "1"] == 1
    assert ("easyrec_short_answers_total", "home") not in found  # the caller chose the items


def test_the_application_serves_them_with_the_state_of_its_parts(tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        shown = client.post("/v1/recommend", json={"user_id": 100}).json()
        events = [{"event_id": str(n), "type": "click", "user_id": 100, "item_id": n} for n in (1, 2, 2)]
        client.post("/v1/events", json=events)
        client.get("/v1/items/77")
        client.get("/v1/secret/../4711")
        answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    found = samples(answer.text)
    assert found["easyrec_requests_total", "POST", "/v1/recommend", "200"] == 1
    assert found["easyrec_requests_total", "GET", "/v1/items/{item_id}", "404"] == 1
    assert found["easyrec_requests_total", "GET", "unmatched", "404"] == 1
    assert found["easyrec_scores_count", "films", "home", "1"] == len(shown["items"])
    assert found["easyrec_events_total", "accepted"] == 2
    assert found["easyrec_model_info", "films", "known", "active", "1"] == 1
    assert found["easyrec_items", "films"] == 60
    assert found["easyrec_part_up", "store"] == 1
    assert found["easyrec_model_age_seconds", "films"] > 0
    assert "_created" not in answer.text
    assert "4711" not in answer.text  # anybody can make up paths


def test_a_caller_who_does_not_wait_is_counted_as_gone():
    metrics = Metrics()

    async def give_up() -> None:
        async def hang(scope, receive, send) -> None:
            await asyncio.sleep(60)

        scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Access(hang, metrics)(scope, None, None), 0.01)

    asyncio.run(give_up())
    assert samples(metrics.text())["easyrec_requests_total", "GET", "unmatched", "499"] == 1


def test_metrics_need_a_key_where_there_are_keys(tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"X-API-Key": "reader"}).status_code == 200


def test_an_observer_that_fails_costs_no_answer(tmp_path, monkeypatch, caplog):
    app = make_app(tmp_path, monkeypatch)
    monkeypatch.setattr(app.state.metrics, "_answers", None)
    with running(app) as client:
        assert client.post("/v1/recommend", json={"user_id": 100}).status_code == 200
    assert "an answer could not be observed" in caplog.text


def test_numbers_of_several_processes_are_added_up(tmp_path):
    counting = (
        "from serving.operations.metrics import *\n"
        "m = Metrics()\n"
        "m.observe_request(HttpRequest('GET', '/x', 200, 0.1))\n"
        "m.observe_events('accepted', 3)\n"
        "import sys; sys.stdout.write(m.text().decode())"
    )
    for expected in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", counting],
            cwd=ROOT,
            env={"PATH": "", MULTIPROCESS: str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found = samples(done.stdout)
        assert found["easyrec_requests_total", "GET", "/x", "200"] == expected
        assert found["easyrec_events_total", "accepted"] == 3 * expected
        assert found["easyrec_events_total", "failed"] == 0


def test_each_application_counts_for_itself():
    one, other = Metrics(), Metrics()
    one.observe_request(HttpRequest("GET", "/x", 200, 0.1))
    assert ("easyrec_requests_total", "GET", "/x", "200") not in samples(other.text())
