"""The OpenAPI document is complete, and whatever is made up from it gets an answer that it documents, never a 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serving.security.access import required_scope
from tests.serving.application import known_keys, make_app, running

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 8


@pytest.fixture
def app(tmp_path, monkeypatch):
    return make_app(tmp_path, monkeypatch, security={"keys": str(known_keys(tmp_path))})


def operations(app) -> dict[tuple[str, str], dict]:
    return {
        (method.upper(), path): operation
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_documented_with_what_it_needs_and_how_it_fails(app):
    documented = operations(app)
    routes = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }
    assert routes <= documented.keys()
    for (method, path), operation in documented.items():
        where = f"{method} {path}"
        assert operation["description"], where
        assert operation["tags"], where
        assert any(status.startswith("2") for status in operation["responses"]), where
        if required_scope(method, path) is None:
            assert "security" not in operation, where
            continue
        assert operation["security"] == [{"bearer": []}, {"header": []}], where
        assert {"401", "403", "429"} <= operation["responses"].keys(), where
        if "requestBody" in operation:
            assert {"400", "408", "413", "422"} <= operation["responses"].keys(), where
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], f"{where} {status}"


def test_no_api_route_falls_to_the_rule_for_what_is_not_known(app):
    admin = {(method, path) for method, path in operations(app) if required_scope(method, path) == "admin"}
    assert {path for method, path in admin if path.startswith("/v1/")} == {
        "/v1/experiments/reload",
        "/v1/models/{name}/versions/{version}:activate",
        "/v1/models/{name}/versions/{version}:shadow",
        "/v1/models/{name}:rollback",
    }


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_requests_made_up_from_the_document_get_answers_that_it_documents(app, mode):
    with running(app) as client:
        schema = schemathesis.openapi.from_dict(app.openapi())
        schema.config.update(base_url=str(client.base_url))
        for result in schema.get_all_operations():
            operation = result.ok()
            if mode is schemathesis.GenerationMode.NEGATIVE and operation.path.startswith("/health/"):
                continue  # nothing can be wrong with a request that takes nothing

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def answered(case) -> None:
                case.headers = {**(case.headers or {}), "X-API-Key": "boss"}
                case.headers.pop("Authorization", None)
                case.call_and_validate(checks=CHECKS)

            answered()
