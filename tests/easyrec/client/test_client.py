"""The client against a made-up service: requests as the contract has them, answers, errors, and what is tried again."""

from __future__ import annotations

import asyncio
import inspect
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import easyrec.client
from easyrec.client import (
    AsyncClient,
    Client,
    Event,
    InvalidRequestError,
    NoAnswerError,
    NotAllowedError,
    NotFoundError,
    ProblemError,
    Retries,
    TooManyRequestsError,
    UnavailableError,
    UnexpectedAnswerError,
)
from easyrec.client.retries import retry_after
from easyrec.errors import EasyRecError

AT_ONCE = Retries(attempts=3, first=0.0)
LIST = {
    "request_id": "r1",
    "scene": "home",
    "model": {"name": "films", "version": "7"},
    "experiments": [{"layer": "rank", "experiment": "e", "variant": "b"}],
    "items": [{"item_id": "m1", "score": 0.5, "position": 1, "sources": ["popular"]}],
    "degraded": ["history"],
    "took_ms": 3.5,
    "of_a_newer_service": True,
}


class Service:
    """Answers from a list, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def client(self, **options) -> Client:
        return Client(
            "http://service", transport=httpx.MockTransport(self), **{"retries": AT_ONCE, **options}
        )

    @property
    def bodies(self) -> list:
        return [json.loads(request.content) for request in self.requests]


def answer(body=None, status=200, **headers) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=body, headers=names)


def test_recommend_sends_what_is_given_and_nothing_else():
    service = Service(answer(LIST))
    with service.client(api_key="secret") as client:
        shown = client.recommend(42, n=10, context={"device": "tv"}, exclude_ids=["m9"])
    [request] = service.requests
    assert (request.method, request.url.path) == ("POST", "/v1/recommend")
    assert request.headers["Authorization"] == "Bearer secret"
    assert service.bodies == [{"user_id": 42, "n": 10, "context": {"device": "tv"}, "exclude_ids": ["m9"]}]
    assert shown.items[0].item_id == "m1"
    assert shown.items[0].sources == ["popular"]
    assert shown.model.version == "7"
    assert shown.experiments[0].variant == "b"
    assert shown.degraded == ["history"]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda client: client.rank(1, ["a"]), "POST /v1/rank"),
        (lambda client: client.similar("a/b ü", n=3), "GET /v1/items/a%2Fb%20%C3%BC/similar?n=3"),
        (lambda client: client.popular(n=3, user_id=7), "GET /v1/popular?n=3&user_id=7"),
        (lambda client: client.get_item(5), "GET /v1/items/5"),
        (lambda client: client.merge_session(5, "s"), "POST /v1/users/5/merge"),
        (lambda client: client.put_item(5, {"title": "x"}), "PUT /v1/items/5"),
        (lambda client: client.patch_item(5, {"title": "x"}), "PATCH /v1/items/5"),
        (lambda client: client.delete_item(5), "DELETE /v1/items/5"),
        (lambda client: client.put_user("u?", {}), "PUT /v1/users/u%3F"),
        (lambda client: client.patch_user(5, {}), "PATCH /v1/users/5"),
        (lambda client: client.delete_user(5), "DELETE /v1/users/5"),
        (lambda client: client.models(), "GET /v1/models"),
        (lambda client: client.activate("films", "7"), "POST /v1/models/films/versions/7:activate"),
        (lambda client: client.rollback("films"), "POST /v1/models/films:rollback"),
        (lambda client: client.predict("films", [{"user_id": 1}]), "POST /v1/models/films:predict"),
        (lambda client: client.experiments(), "GET /v1/experiments"),
        (lambda client: client.assignment("u&"), "GET /v1/experiments/assignment?user_id=u%26"),
        (lambda client: client.ready(), "GET /health/ready"),
    ],
)
def test_each_method_has_its_address(call, line):
    every_field = LIST | {
        "predictions": [0.5],
        "models": [],
        "item_id": 5,
        "user_id": "5",
        "properties": {},
        "available": True,
        "name": "films",
        "version": "7",
    }
    service = Service(answer(every_field))
    call(service.client())
    [request] = service.requests
    assert f"{request.method} {request.url.raw_path.decode()}" == line


def test_changes_of_items_and_users_are_sent_as_properties():
    service = Service(answer({"item_id": 5, "user_id": 5, "properties": {"title": "x"}, "available": False}))
    client = service.client()
    assert client.put_item(5, {"title": "x"}).properties == {"title": "x"}
    assert client.patch_item(5, available=False).available is False
    client.patch_user(5, {"age": None})
    assert service.bodies == [
        {"properties": {"title": "x"}},
        {"properties": {}, "available": False},
        {"properties": {"age": None}},
    ]


def test_an_empty_answer_is_an_answer():
    assert Service(httpx.Response(204)).client().delete_user(5) is None


def test_events_get_ids_before_they_are_sent_and_keep_them_when_sent_again():
    accepted = answer({"accepted": 1, "duplicates": 0, "rejected": []})
    service = Service(httpx.ReadTimeout("too slow"), accepted)
    assert service.client().post_events([{"type": "click", "user_id": 1, "item_id": 2}]).accepted == 1
    [first], [second] = service.bodies
    assert first["event_id"]
    assert first == second


def test_many_events_travel_in_batches_and_rejections_keep_their_index():
    def reply(request: httpx.Request) -> httpx.Response:
        batch = json.loads(request.content)
        return answer(
            {"accepted": len(batch) - 1, "duplicates": 0, "rejected": [{"index": 0, "reason": "no"}]}
        )

    client = Client("http://service", transport=httpx.MockTransport(reply))
    found = client.post_events(Event(type="view", user_id=n) for n in range(1001))
    assert found.accepted == 998
    assert [one.index for one in found.rejected] == [0, 500, 1000]


def test_a_wrong_event_is_named_with_its_place_and_the_nearest_field():
    service = Service(answer({}))
    with pytest.raises(EasyRecError, match=r"event 1: itemid: .* Did you mean 'item_id'\?"):
        service.client().post_events([{"type": "a"}, {"type": "b", "itemid": 3}])
    assert not service.requests


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, NotAllowedError),
        (403, NotAllowedError),
        (404, NotFoundError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (429, TooManyRequestsError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_a_problem_becomes_an_error_of_its_class_with_all_that_is_known(status, kind):
    problem = {
        "title": "wrong",
        "detail": "n is too large",
        "errors": [{"pointer": "/n", "detail": "at most 500"}],
    }
    service = Service(answer(problem, status, X_Request_Id="r9"))
    with pytest.raises(kind) as caught:
        service.client().rank(1, [2])
    assert caught.value.status == status
    assert caught.value.problem == problem
    assert caught.value.request_id == "r9"
    for part in ("POST http://service/v1/rank", "n is too large", "/n: at most 500", "r9"):
        assert part in str(caught.value)


def test_an_answer_of_something_else_is_told_from_an_answer_of_the_service():
    for strange in (httpx.Response(200, text="<html>"), answer({"hello": 1}), answer([])):
        with pytest.raises(UnexpectedAnswerError, match="Is this the address of the service"):
            Service(strange).client().recommend(1)
    with pytest.raises(UnavailableError, match="Bad Gateway"):
        Service(httpx.Response(502, text="<html>")).client().recommend(1)


def attempts_until_given_up(failure, call) -> int:
    service = Service(failure)
    with pytest.raises((NoAnswerError, ProblemError)):
        call(service.client())
    return len(service.requests)


def recommend(client: Client) -> object:
    return client.recommend(1)


def post_events(client: Client) -> object:
    return client.post_events([{"type": "a", "user_id": 1}])


@pytest.mark.parametrize(
    ("failure", "recommending", "posting_events"),
    [
        (httpx.ConnectError("refused"), 3, 3),  # never sent: always tried again
        (answer({}, 429), 3, 3),  # refused before anything was done
        (answer({}, 503), 3, 3),
        (httpx.ReadTimeout("late"), 1, 3),  # perhaps carried out: only what may be done twice
        (httpx.RemoteProtocolError("broken"), 1, 3),
        (httpx.DecodingError("no gzip"), 1, 3),
        (answer({}, 500), 1, 3),
        (answer({}, 502), 1, 3),
        (answer({}, 400), 1, 1),  # would fail again
        (answer({}, 401), 1, 1),
    ],
)
def test_what_is_tried_again(failure, recommending, posting_events):
    assert attempts_until_given_up(failure, recommend) == recommending
    assert attempts_until_given_up(failure, post_events) == posting_events


def test_an_attempt_that_succeeds_ends_the_matter():
    service = Service(answer({}, 503), answer({}, 429), answer(LIST))
    assert service.client().recommend(1).request_id == "r1"
    assert len(service.requests) == 3


def test_the_wait_is_what_the_service_asks_for_and_some_chance_on_top():
    retries = Retries(attempts=9, first=0.1, longest=2.0)
    assert retries.wait(1, None, lambda: 1.0) == pytest.approx(0.1)
    assert retries.wait(3, None, lambda: 1.0) == pytest.approx(0.4)
    assert retries.wait(8, None, lambda: 1.0) == 2.0
    assert retries.wait(1, 1.5, lambda: 0.5) == pytest.approx(1.55)
    assert retries.wait(9, None) is None


def test_a_wait_longer_than_allowed_is_an_error_at_once():
    service = Service(answer({}, 429, Retry_After="3600"))
    with pytest.raises(TooManyRequestsError) as caught:
        service.client().recommend(1)
    assert caught.value.retry_after == 3600
    assert len(service.requests) == 1


@given(attempt=st.integers(1, 60), chance=st.floats(0, 1), first=st.floats(0, 10), longest=st.floats(0, 10))
def test_waits_are_never_negative_and_never_too_long(attempt, chance, first, longest):
    wait = Retries(attempts=100, first=first, longest=longest).wait(attempt, None, lambda: chance)
    assert 0 <= wait <= longest


def test_retry_after_is_read_as_seconds_and_as_a_date():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after("7") == 7.0
    assert retry_after(format_datetime(now + timedelta(seconds=90), usegmt=True), lambda: now) == 90.0
    assert retry_after(format_datetime(now - timedelta(seconds=90), usegmt=True), lambda: now) == 0.0
    assert retry_after("soon") is None
    assert retry_after(None) is None


def test_no_connection_is_explained():
    client = Client("http://127.0.0.1:9", retries=Retries(attempts=1))  # nothing listens there
    with pytest.raises(NoAnswerError, match="Is the service running") as caught:
        client.recommend(1)
    assert not caught.value.reached


def test_a_key_is_in_no_message_and_no_repr():
    service = Service(answer({"title": "unknown key"}, 401))
    client = service.client(api_key="er_secret")
    with pytest.raises(NotAllowedError) as caught:
        client.recommend(1)
    for text in (repr(client), str(caught.value), repr(caught.value)):
        assert "er_secret" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "localhost:8000"}, "must begin with http"),
        ({"api_key": "key\n"}, "line feed"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(EasyRecError, match=message):
        Client(**arguments)
    with pytest.raises(EasyRecError, match="attempts"):
        Retries(attempts=0)


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"])
def test_what_json_cannot_say_is_refused_before_it_is_sent(value):
    service = Service(answer(LIST))
    with pytest.raises(EasyRecError, match="cannot be sent as JSON"):
        service.client().recommend(1, context={"x": value})
    assert not service.requests


def test_waiting_until_the_service_is_ready():
    service = Service(httpx.ConnectError("refused"), answer({}, 503), answer({"status": "ready"}))
    service.client(retries=Retries(attempts=1)).wait_until_ready(timeout=10)
    assert len(service.requests) == 3
    with pytest.raises(UnavailableError):
        Service(answer({}, 503)).client().wait_until_ready(timeout=0)


def public_methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in vars(kind).items()
        if not name.startswith("_") and callable(member)
    }


def test_both_clients_have_the_same_methods_and_each_says_what_it_does():
    blocking, awaited = public_methods(Client), public_methods(AsyncClient)
    assert blocking.keys() == awaited.keys()
    for name, signature in blocking.items():
        assert list(signature.parameters) == list(awaited[name].parameters), name
        assert inspect.getdoc(getattr(Client, name)), name
    assert list(inspect.signature(Client().similar).parameters) == ["item_id", "n", "user_id", "properties"]


def test_the_asynchronous_client_behaves_alike():
    async def run() -> None:
        service = Service(answer({}, 503), answer(LIST))
        async with AsyncClient(
            "http://service", transport=httpx.MockTransport(service), retries=AT_ONCE
        ) as client:
            assert (await client.recommend(1)).items[0].item_id == "m1"
        service = Service(
            httpx.ReadTimeout("late"), answer({"accepted": 2, "rejected": [{"index": 0, "reason": "no"}]})
        )
        client = AsyncClient("http://service", transport=httpx.MockTransport(service), retries=AT_ONCE)
        found = await client.post_events(Event(type="a", user_id=n) for n in range(600))
        assert found.accepted == 4
        assert [one.index for one in found.rejected] == [0, 500]
        assert len(service.requests) == 3
        service.answers = [httpx.ReadTimeout("late")]
        with pytest.raises(NoAnswerError) as caught:
            await client.recommend(1)
        assert caught.value.reached
        await client.close()

    asyncio.run(run())


def test_the_names_of_the_package():
    assert all(hasattr(easyrec.client, name) for name in easyrec.client.__all__)
