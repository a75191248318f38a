"""Which web pages may call the service."""

from __future__ import annotations

import pytest

from easyrec.errors import ConfigError
from serving.settings import load_settings
from tests.serving.application import known_keys, make_app, running

SHOP = "https://shop.example"
ASKING = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}


def test_none_by_default(tmp_path, monkeypatch):
    with running(make_app(tmp_path, monkeypatch)) as client:
        asked = client.options("/v1/recommend", headers={"Origin": SHOP, **ASKING})
        answered = client.post("/v1/recommend", json={}, headers={"Origin": SHOP})
        as_text = client.post(
            "/v1/events", content="[]", headers={"Content-Type": "text/plain", "Origin": SHOP}
        )
    assert asked.status_code == 405
    for answer in (asked, answered, as_text):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert as_text.status_code == 422  # what a page may send without asking is not read as JSON
    assert "Content-Type: application/json" in as_text.json()["detail"]


def test_those_that_are_named(tmp_path, monkeypatch):
    security = {"origins": [SHOP], "keys": str(known_keys(tmp_path))}
    with running(make_app(tmp_path, monkeypatch, security=security)) as client:
        asked = client.options("/v1/recommend", headers={"Origin": SHOP, **ASKING})
        assert asked.status_code == 200  # a browser asks without a key
        assert asked.headers["Access-Control-Allow-Origin"] == SHOP
        assert client.post("/v1/recommend", json={}, headers={"Origin": SHOP}).status_code == 401
        answered = client.post("/v1/recommend", json={}, headers={"Origin": SHOP, "X-API-Key": "reader"})
        assert answered.headers["Access-Control-Allow-Origin"] == SHOP
        assert "X-Request-Id" in answered.headers["Access-Control-Expose-Headers"]
        other = client.options("/v1/recommend", headers={"Origin": "https://evil.example", **ASKING})
        assert "Access-Control-Allow-Origin" not in other.headers


def test_settings_come_from_the_environment_and_mistakes_are_named():
    environment = {"EASYREC_MODELS": "[runs/a]", "EASYREC_SECURITY__ORIGINS": "[https://shop.example]"}
    assert load_settings(environment=environment).security.origins == (SHOP,)
    with pytest.raises(ConfigError, match="origins"):
        load_settings(environment=environment | {"EASYREC_SECURITY__ORIGINS": "[shop.example]"})
    with pytest.raises(ConfigError, match=r"burts.*burst"):
        load_settings(environment=environment | {"EASYREC_SECURITY__BURTS": "3"})
