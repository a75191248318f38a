"""Request ids, log lines, faults that get out, and traces."""

from __future__ import annotations

import io
import json
import logging
import sys
from types import SimpleNamespace

import pytest

from easyrec.errors import ConfigError
from serving.funnel.trace import Stage, Trace
from serving.operations import tracing
from serving.operations.logs import FIELDS, JsonFormatter, TextFormatter, configure_logs
from serving.operations.request_ids import HEADER, current_request_id, new_request_id, request_named
from serving.operations.settings import OperationSettings
from tests.serving.application import known_keys, make_app, running


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("serving.x", logging.WARNING, "x.py", 1, message, arguments, None)
    vars(made).update(extra)
    return made


def test_a_line_is_one_json_object_whatever_it_says():
    text = JsonFormatter().format(
        record("a %s\nb\u2028", "\x1b[31m", **{FIELDS: {"status": 200, "odd": object()}})
    )
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "a \x1b[31m\nb\u2028"
    assert (line["level"], line["logger"], line["status"]) == ("warning", "serving.x", 200)
    assert line["time"].endswith("+00:00")


def test_a_line_to_read_cannot_be_made_up_by_a_value():
    text = TextFormatter().format(record("user %s", "x\n12:00:00 error   made up"))
    assert "\n" not in text


def test_an_exception_is_part_of_its_line():
    try:
        raise RuntimeError("no")
    except RuntimeError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    assert "RuntimeError: no" in json.loads(JsonFormatter().format(made))["exception"]
    assert "RuntimeError: no" in TextFormatter().format(made)


@pytest.fixture
def root_logger(monkeypatch):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_logs_are_json_where_no_terminal_watches(root_logger, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(OperationSettings(log_level="warning"))
    logging.getLogger("a").info("left out")
    logging.getLogger("a").warning("kept")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "kept"
    configure_logs(OperationSettings(log_format="text"))
    logging.getLogger("a").warning("to read")
    assert stream.getvalue().splitlines()[-1].endswith("warning to read")


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, 'a"b', "a\nb", "é"])
def test_a_request_id_that_could_confuse_a_log_is_replaced(given):
    with request_named(given) as request_id:
        assert request_id != given
        assert len(request_id) == 24


def test_what_is_shown_gets_a_name_of_its_own_where_the_caller_names_requests():
    with request_named("theirs-1") as request_id:
        assert request_id == "theirs-1"
        assert new_request_id() != "theirs-1"
        assert new_request_id() != new_request_id()
    with request_named(None) as own:
        assert new_request_id() == own


def test_the_name_of_a_request_ends_with_it():
    with request_named(None) as outer:
        with request_named("theirs-1"):
            assert current_request_id() == "theirs-1"
        assert current_request_id() == new_request_id() == outer
    assert current_request_id() is None
    assert new_request_id() != new_request_id()


def access_lines(caplog) -> list[dict]:
    return [getattr(one, FIELDS) for one in caplog.records if one.name == "serving.access"]


def test_each_request_has_an_id_in_its_answer_and_a_line_in_the_log(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as client:
        key = {"Authorization": "Bearer reader"}
        shown = client.post("/v1/recommend", json={"user_id": 100}, headers=key)
        assert shown.json()["request_id"] == shown.headers[HEADER]
        named = client.post("/v1/recommend", json={"user_id": 100}, headers=key | {HEADER: "theirs"})
        assert named.headers[HEADER] == "theirs" != named.json()["request_id"]
        refused = client.post("/v1/recommend", json={})
        assert refused.headers[HEADER]
        client.post("/v1/events", json=[], headers=key)
        client.get("/health/live")
    lines = access_lines(caplog)
    assert [(line["route"], line["status"], line["caller"]) for line in lines] == [
        ("/v1/recommend", 200, "reader"),
        ("/v1/recommend", 200, "reader"),
        ("unmatched", 401, None),
        ("unmatched", 403, "reader"),
    ]
    assert "Bearer" not in caplog.text


def test_a_fault_is_an_answer_that_says_nothing_of_the_inside(tmp_path, monkeypatch, caplog):
    app = make_app(tmp_path, monkeypatch)
    service = app.state.service

    def broken(request: object) -> None:
        raise RuntimeError("/secret/path")

    service.recommender.answer = broken
    with running(app) as client:
        answer = client.post("/v1/recommend", json={"user_id": 100})
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers[HEADER]
    assert "/secret/path" not in answer.text
    assert "/secret/path" in caplog.text


def test_a_caller_without_the_scope_gets_no_explanation(tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})
    with running(app) as client:
        for method, path, options in [
            ("POST", "/v1/recommend", {"json": {"user_id": 100, "debug": True}}),
            ("POST", "/v1/rank", {"json": {"item_ids": [1], "debug": True}}),
            ("GET", "/v1/recommend/100?debug=true", {}),
            ("GET", "/v1/popular?debug=true", {}),
            ("GET", "/v1/items/1/similar?debug=true", {}),
        ]:
            answers = {
                key: client.request(method, path, headers={"X-API-Key": key}, **options)
                for key in ("reader", "boss")
            }
            assert answers["reader"].status_code == 403, path
            assert answers["boss"].json()["debug"]["stages"], path


class Tracer:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[SimpleNamespace] = []

    def start_span(self, name, context=None, start_time=None, attributes=None):
        span = SimpleNamespace(name=name, context=context, start=start_time, attributes=attributes, events=[])
        span.add_event = lambda *event, **options: span.events.append(event)
        span.end = lambda end_time: setattr(span, "end", end_time)
        self.spans.append(span)
        return span


def test_spans_follow_the_trace(monkeypatch):
    fake = SimpleNamespace(set_span_in_context=lambda span: span, get_tracer=lambda name: Tracer())
    monkeypatch.setattr(tracing.importlib, "import_module", lambda name: fake)
    tracer = Tracer()
    stages = [
        Stage("source", "towers", 2.0, received=0, returned=7),
        Stage("ranking", "films", 5.0, problem="no"),
    ]
    payload = {"took_ms": 9.0, "items": [1], "model": {"name": "films", "version": "1"}}
    answer = SimpleNamespace(trace=Trace("r", "home", stages, ["ranking"]), payload=payload)
    tracing.SpanWriter(tracer, lambda: 1_000_000_000)(answer)
    whole, first, second = tracer.spans
    assert (whole.name, whole.end - whole.start) == ("recommend", 9_000_000)
    assert whole.attributes["easyrec.degraded"] == ["ranking"]
    assert (first.name, first.context, first.end - first.start) == ("source towers", whole, 2_000_000)
    assert second.events == [("problem", {"message": "no"})]


def test_tracing_without_opentelemetry_says_what_to_install(monkeypatch):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tracing.importlib, "import_module", absent)
    with pytest.raises(ConfigError, match=r"easyrec\[tracing\]"):
        tracing.open_tracer()


def test_a_service_with_tracing_hands_its_spans_to_opentelemetry(tmp_path, monkeypatch, caplog):
    trace = pytest.importorskip("opentelemetry.trace", reason="it comes with the extra `tracing`")
    tracer = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracer)
    monkeypatch.setattr(trace, "set_span_in_context", lambda span: span)
    app = make_app(tmp_path, monkeypatch, operations={"tracing": True})
    with running(app) as client:
        shown = client.post("/v1/recommend", json={"user_id": 100}).json()
    assert "could not be observed" not in caplog.text
    [whole] = [span for span in tracer.spans if span.name == "recommend"]
    assert whole.attributes["easyrec.request_id"] == shown["request_id"]
    inner = [span for span in tracer.spans if span is not whole]
    assert {"source popular", "ranking films"} <= {span.name for span in inner}
    assert all(whole.start <= span.start <= span.end <= whole.end for span in inner)
