"""Mistakes in a scene that only show beside a bundle are told when the scene is loaded, not by its answers."""

from __future__ import annotations

from typing import Any

import pytest

from easyrec.errors import ConfigError
from serving.funnel.scene import SceneConfig
from serving.settings import load_settings

POPULAR = {"sources": {"popular": {"type": "popularity"}}}


@pytest.mark.parametrize("where", ["year", "year + 1", "genres", "5"])
@pytest.mark.parametrize("part", ["filters", "reranking"])
def test_what_is_no_condition_is_no_condition(world, part, where):
    stages = {
        "filters": {"one": {"type": "expression", "where": where}},
        "reranking": {"one": {"type": "boost", "where": where, "factor": 2}},
    }
    with pytest.raises(ConfigError, match=rf"home.{part}.one: where: expected a condition, .* gives"):
        world({**POPULAR, part: stages[part]})


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"ranking": {"score": "'x'"}}, "home.ranking: .*expected a number, but the formula gives string"),
        ({"properties": ["title", "yaer"]}, "home.properties: .*Did you mean 'year'"),
        ({"sources": {"here": {"type": "popularity", "by": "citty"}}}, "sources.here: .*Did you mean 'city'"),
        (
            {
                "sources": {
                    "far": {"type": "http", "url": "http://x", "headers": {"Authorization": "s\u00e9cret"}}
                }
            },
            "a header for http://x has characters that none can have",
        ),
    ],
)
def test_what_the_bundle_does_not_have_is_told(world, part, said):
    with pytest.raises(ConfigError, match=said) as caught:
        world({**POPULAR, **part})
    assert "s\u00e9cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "http:///path", "http://a b", "ftp://x"])
def test_an_address_without_a_host_is_refused(url):
    given = {"models": ["x"], "scenes": {"home": {"sources": {"far": {"type": "http", "url": url}}}}}
    with pytest.raises(ConfigError, match=r"scenes\.home\.sources\.far\.url"):
        load_settings(given=given, environment={})


def leaves(value: Any, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*path, str(name)))
    else:
        yield ".".join(path), value


def test_every_parameter_can_be_set_by_an_experiment():
    scene = SceneConfig.model_validate(
        {
            "sources": {
                "towers": {"type": "two_tower"}, "together": {"type": "item_to_item"}, "alike": {"type": "content"},
                "popular": {"type": "popularity", "by": "city"}, "trending": {"type": "trending"},
                "new": {"type": "fresh"}, "fixed": {"type": "fixed", "items": [1, "2"]},
                "far": {"type": "http", "url": "http://x", "headers": {"A": "b"}},
            },
            "filters": {
                "seen": {"type": "seen", "events": ["buy"], "days": 3}, "served": {"type": "served"},
                "old": {"type": "expression", "where": "year > 1980"}, "bad": {"type": "blocked", "items": [1]},
                "kinds": {"type": "categories", "column": "genres", "separator": "|", "allow": ["a"], "deny": ["b"]},
            },
            "ranking": {"score": "click + 2 * watch", "model": "films"},
            "reranking": {
                "mmr": {"type": "mmr"}, "dpp": {"type": "dpp"}, "cap": {"type": "cap", "column": "year", "window": 3},
                "slots": {"type": "slots", "sources": ["new"], "positions": [1]},
                "pin": {"type": "pin", "items": {1: 318, 2: "x"}},
                "boost": {"type": "boost", "where": "year > 1", "factor": 2}, "explore": {"type": "explore"},
            },
        }
    )  # fmt: skip
    found = list(leaves(scene.model_dump(mode="json")))
    assert len(found) > 100
    for path, value in found:
        assert scene.with_overrides({path: value}) == scene, path
