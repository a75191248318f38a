"""The gate in front of a small application of its own: keys, scopes, rates, concurrency, bodies."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from serving.security.access import required_scope
from serving.security.keys import KeyEntry, KeyRing, hash_key
from serving.security.limits import MAX_CALLERS, RateLimiter, shape
from serving.security.middleware import CALLER, Gate
from serving.security.settings import SecuritySettings

KEYS = KeyRing(
    [
        KeyEntry(name=name, scopes=(scope,), hash=hash_key(name), rate=rate)
        for name, scope, rate in [
            ("reader", "read", None),
            ("writer", "write", None),
            ("boss", "admin", None),
            ("slow", "read", 0.5),
        ]
    ]
)


async def echo(request: Request) -> JSONResponse:
    body = await request.body()
    return JSONResponse({"caller": getattr(request.state, CALLER).name, "bytes": len(body)})


def gate(settings: SecuritySettings | None = None, keys=KEYS, app=None) -> Gate:
    methods = ["GET", "POST", "PUT", "DELETE"]
    return Gate(
        app or Starlette(routes=[Route("/{path:path}", echo, methods=methods)]),
        settings or SecuritySettings(),
        keys,
    )


def ask(
    app, method="POST", path="/v1/recommend", key=None, client=("10.0.0.1", 1), **options
) -> httpx.Response:
    headers = options.pop("headers", {}) | ({"Authorization": f"Bearer {key}"} if key else {})

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=client)
        async with httpx.AsyncClient(
            transport=transport, base_url=options.pop("base_url", "http://service")
        ) as http:
            return await http.request(method, path, headers=headers, **options)

    return asyncio.run(run())


def assert_problem(response: httpx.Response, status: int) -> dict:
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/health/live", None),
        ("GET", "/docs", None),
        ("GET", "/ui", None),
        ("GET", "/ui/page.js", None),
        ("GET", "/ui/data/users", "admin"),
        ("GET", "/metrics", "read"),
        ("POST", "/v1/recommend", "read"),
        ("GET", "/v1/recommend/42", "read"),
        ("POST", "/v1/rank", "read"),
        ("POST", "/v1/models/films:predict", "read"),
        ("POST", "/v1/events", "write"),
        ("PUT", "/v1/items/5", "write"),
        ("DELETE", "/v1/users/5", "write"),
        ("POST", "/v1/models/films/versions/7:activate", "admin"),
        ("POST", "/v1/models/films:rollback", "admin"),
        ("POST", "/v1/something/new", "admin"),
        ("GET", "/something/new", "admin"),
        ("GET", "/healthy", "admin"),
        ("POST", "/v1/recommend/", "admin"),
    ],
)
def test_what_a_request_needs(method, path, scope):
    assert required_scope(method, path) == scope


def test_a_key_travels_as_bearer_or_in_its_own_header():
    assert ask(gate(), key="reader").json()["caller"] == "reader"
    assert ask(gate(), headers={"X-API-Key": "reader"}).json()["caller"] == "reader"
    assert ask(gate(), headers={"X-API-Key": "reader"}, key="reader").status_code == 200
    assert_problem(ask(gate(), headers={"X-API-Key": "boss"}, key="reader"), 401)
    assert_problem(ask(gate(), path="/v1/recommend?api_key=reader"), 401)


def test_without_a_key_or_with_a_wrong_one():
    missing, wrong = ask(gate()), ask(gate(), key="er_nobody")
    assert "an API key is missing" in assert_problem(missing, 401)["detail"]
    assert "unknown or has expired" in assert_problem(wrong, 401)["detail"]
    assert missing.headers["WWW-Authenticate"] == "Bearer"
    assert "er_nobody" not in wrong.text
    assert ask(gate(), "GET", "/health/live").status_code == 200


def test_a_scope_is_asked_for():
    problem = assert_problem(ask(gate(), path="/v1/events", key="reader"), 403)
    assert "'write'" in problem["detail"]
    assert_problem(ask(gate(), key="writer"), 403)
    for path in ("/v1/events", "/v1/recommend", "/v1/models/a:rollback", "/new"):
        assert ask(gate(), path=path, key="boss").status_code == 200


def test_where_there_are_no_keys_everybody_may():
    local, behind_gateway = gate(keys=None), gate(SecuritySettings(open=True), keys=None)
    here = {"client": ("127.0.0.1", 1), "base_url": "http://localhost"}
    assert ask(local, path="/v1/models/a:rollback", **here).json()["caller"] is None
    assert ask(behind_gateway, path="/v1/models/a:rollback").json()["caller"] is None


@pytest.mark.parametrize(
    "client", [("10.0.0.1", 1), ("::ffff:10.0.0.1", 1), ("fe80::1", 1), ("somewhere", 1)]
)
def test_another_machine_is_refused_without_keys_whatever_server_listens(client):
    problem = assert_problem(ask(gate(keys=None), client=client, base_url="http://10.0.0.2:8000"), 403)
    assert "easyrec keys create" in problem["detail"]


def test_metrics_may_be_open():
    assert_problem(ask(gate(), "GET", "/metrics"), 401)
    assert ask(gate(SecuritySettings(open_metrics=True)), "GET", "/metrics").status_code == 200


def test_a_web_page_cannot_pass_for_this_machine():
    local = ("127.0.0.1", 1)
    for name in ("http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"):
        assert ask(gate(keys=None), client=local, base_url=name).status_code == 200
    assert_problem(ask(gate(keys=None), client=local, base_url="http://evil.example:8000"), 403)
    assert ask(gate(), client=local, base_url="http://evil.example:8000", key="reader").status_code == 200
    behind_gateway = gate(SecuritySettings(open=True), keys=None)
    assert ask(behind_gateway, client=local, base_url="http://shop.example").status_code == 200


def test_a_rate_is_kept_for_each_key_and_says_when_to_come_back():
    app = gate(SecuritySettings(requests_per_second=0.1, burst=2))
    statuses = [ask(app, key="reader").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    refused = ask(app, key="reader")
    assert_problem(refused, 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 10
    assert ask(app, key="boss").status_code == 200
    assert ask(app, "GET", "/health/live", key="reader").status_code == 200


def test_a_key_may_have_a_rate_of_its_own():
    app = gate(SecuritySettings(burst=1))
    assert [ask(app, key="slow").status_code for _ in range(2)] == [200, 429]
    assert [ask(app, key="reader").status_code for _ in range(5)] == [200] * 5


def test_without_keys_the_address_is_what_is_limited():
    app = gate(SecuritySettings(requests_per_second=0.1, burst=1, open=True), keys=None)
    assert [ask(app, client=("10.0.0.1", port)).status_code for port in (1, 2)] == [200, 429]
    assert ask(app, client=("10.0.0.2", 1)).status_code == 200


def test_a_bucket_fills_with_time_and_never_beyond_its_size():
    times = iter([0.0, 0.0, 0.0, 0.25, 0.5, 100.0, 100.0, 100.0])
    limiter = RateLimiter(2.0, 2, lambda: next(times))
    assert [limiter.wait("a") for _ in range(3)] == [0, 0, 0.5]
    assert limiter.wait("a") == pytest.approx(0.25)
    assert limiter.wait("a") == 0
    assert [bool(limiter.wait("a")) for _ in range(3)] == [False, False, True]


def test_buckets_of_strangers_do_not_pile_up():
    limiter = RateLimiter(1.0, 1)
    for caller in range(MAX_CALLERS + 50):
        limiter.wait(str(caller))
    assert len(limiter._buckets) == MAX_CALLERS


def test_requests_at_once_are_limited_and_room_comes_back():
    inside, leave = asyncio.Event(), asyncio.Event()

    async def slow(scope, receive, send) -> None:
        inside.set()
        await leave.wait()
        await JSONResponse({})(scope, receive, send)

    async def run() -> None:
        app = gate(SecuritySettings(concurrent=1), keys=None, app=slow)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            first = asyncio.create_task(http.post("/v1/recommend"))
            await inside.wait()
            refused = await http.post("/v1/recommend")
            assert_problem(refused, 429)
            assert refused.headers["Retry-After"] == "1"
            leave.set()
            assert (await first).status_code == 200
            assert (await http.post("/v1/recommend")).status_code == 200

    asyncio.run(run())


def test_a_body_is_refused_by_its_announced_and_by_its_true_length():
    app = gate(SecuritySettings(body_kib=1))
    assert ask(app, key="reader", content=b"1" * 1024).json()["bytes"] == 1024
    assert_problem(ask(app, key="reader", content=b"1" * 1025), 413)

    async def endless():
        while True:
            yield b"1" * 100

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
            return await http.post("/v1/recommend", content=endless(), headers={"X-API-Key": "reader"})

    assert_problem(asyncio.run(run()), 413)


def test_what_the_page_asks_for_is_limited_like_all_else():
    app = gate(SecuritySettings(body_kib=1, depth=3))
    assert_problem(ask(app, path="/ui/data/titles", key="boss", content=b"1" * 1025), 413)
    assert_problem(ask(app, path="/ui/data/titles", key="boss", content=b"[" * 1000), 422)


def test_a_body_that_does_not_arrive_is_given_up():
    async def run() -> list:
        sent = []

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/recommend",
            "headers": [(b"x-api-key", b"reader")],
        }
        await gate(SecuritySettings(body_seconds=0.01))(scope, receive, send)
        return sent

    assert asyncio.run(run())[0]["status"] == 408


def test_a_body_is_refused_for_its_depth_and_its_values():
    app = gate(SecuritySettings(depth=3, values=10))
    assert ask(app, key="reader", content=b'[[{"a": "[[[[[,,,,,,,,,,,,"}]]').status_code == 200
    assert "nested 3 deep" in assert_problem(ask(app, key="reader", content=b"[[[[]]]]"), 422)["detail"]
    assert_problem(ask(app, key="reader", content=b"[" * 100_000), 422)
    assert "several requests" in assert_problem(ask(app, key="reader", json=list(range(20))), 422)["detail"]


def depth_of(value) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth_of, children), default=0)


def values_of(value) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_of, children))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=JSON_VALUES, ascii_only=st.booleans())
def test_the_shape_is_that_of_the_parsed_value(value, ascii_only):
    depth, values = shape(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
    assert depth == depth_of(value)
    assert values_of(value) <= values <= 2 * values_of(value)


@given(body=st.binary(max_size=200))
def test_any_bytes_have_a_shape(body):
    depth, values = shape(body)
    assert 0 <= depth <= len(body)
    assert values >= 1
