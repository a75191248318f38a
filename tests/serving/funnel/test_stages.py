"""Every source, filter and re-ranker keeps the promises of its family, for every kind of person."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.funnel.candidates import Candidates
from serving.funnel.filters import categories
from serving.funnel.stages import FILTERS, RERANKERS, SOURCES
from serving.funnel.trace import Trace
from serving.recommender import Request
from serving.stores.base import Behaviour, Entry, ItemChange, Served
from tests.serving.world import GENRES, NOW, World

SOURCES_HERE: dict[str, dict[str, Any]] = {
    "two_tower": {},
    "item_to_item": {},
    "content": {},
    "popularity": {},
    "popularity by city": {"type": "popularity", "by": "city"},
    "trending": {"least": 0},
    "fresh": {},
    "fixed": {"items": [7, "3", "unknown", 7]},
}
FILTERS_HERE: dict[str, dict[str, Any]] = {
    "seen": {},
    "served": {},
    "expression": {"where": "year >= 1990 and genres != 'drama'"},
    "blocked": {"items": [1, "2", "unknown"]},
    "categories": {"column": "genres", "separator": "|", "deny": ["horror"]},
}
RERANKERS_HERE: dict[str, dict[str, Any]] = {
    "mmr": {},
    "mmr by vectors": {"type": "mmr", "by": "vectors"},
    "dpp": {},
    "dpp by column": {"type": "dpp", "by": "genres", "separator": "|"},
    "boost": {"where": "year < 1970", "factor": 3},
    "cap": {"column": "genres", "most": 1},
    "slots": {"sources": ["popular"], "every": 2},
    "pin": {"items": {1: 7, 3: "9", 5: "unknown"}},
    "explore": {"position": 2, "epsilon": 1.0},
}
PEOPLE = [
    {},
    {"user_id": "nobody"},
    {"user_id": "100"},
    {"user_id": "active"},
    {"session_id": "visit"},
    {"user_id": "100", "context": {"city": "Lima", "unread": [1]}},
]


def test_every_registered_member_is_tested_here():
    here = (
        (SOURCES, SOURCES_HERE, {"http"}),
        (FILTERS, FILTERS_HERE, set()),
        (RERANKERS, RERANKERS_HERE, set()),
    )
    for registry, configured, elsewhere in here:
        types = {config.get("type", name) for name, config in configured.items()}
        built_in = {part.name for part in registry if part.config.__module__.startswith("serving.")}
        assert types | elsewhere == built_in


@pytest.fixture
def lively(world) -> World:
    """A world in which much has happened."""
    made = world(towers=True)
    made.model.put_items({700: {"title": "New", "genres": "comedy|drama", "year": 1961}})
    made.resources.new_items.put(made.model, [ItemChange("700", {}, True, NOW)])
    entries = [
        Entry(Behaviour(f"e{item}", "click", str(item), NOW - item), "active") for item in (3, 700, 12, 999)
    ]
    entries.append(Entry(Behaviour("s", "click", "5", NOW), None, "visit"))
    made.store.store.append(entries)
    made.resources.trends.add(entries)
    return made


def query_of(world: World, person: dict[str, Any], n: int = 10) -> Any:
    request = Request(**person, n=n, request_id="r")
    _, funnel = world.scenes.funnel(None)
    trace = Trace("r", "default")
    trace.notes["sources"] = ("popular", "other")
    return world.recommender._query(request, funnel, trace)


def member(registry: Any, name: str, config: dict[str, Any], world: World) -> Any:
    kind = config.get("type", name)
    return registry.build(registry[kind].config.model_validate({"type": kind, **config}), world.resources)


@pytest.mark.parametrize("person", PEOPLE, ids=str)
@pytest.mark.parametrize("name", SOURCES_HERE)
class TestSource:
    def test_finds_items_of_the_catalogue_best_first_within_its_quota(self, lively, name, person):
        source = member(SOURCES, name, {**SOURCES_HERE[name], "n": 7}, lively)
        found = source.find(query_of(lively, person))
        assert found.rows.dtype.kind == "i"
        assert len(found.rows) == len(found.scores)
        assert np.isfinite(found.scores).all()
        assert (found.rows < len(lively.model.catalogue)).all()
        assert (np.diff(found.scores) <= 1e-6).all()
        assert len(found.rows) <= 7 + len(query_of(lively, person).recent) + 10
        known = found.rows[found.rows >= 0]
        assert name == "fixed" or len(set(known.tolist())) == len(known)

    def test_finds_the_same_again(self, lively, name, person):
        source = member(SOURCES, name, SOURCES_HERE[name], lively)
        first, second = (source.find(query_of(lively, person)) for _ in range(2))
        np.testing.assert_array_equal(first.rows, second.rows)


@pytest.mark.parametrize("person", PEOPLE, ids=str)
@pytest.mark.parametrize("name", FILTERS_HERE)
def test_a_filter_judges_each_item_alone(lively, name, person):
    one = member(FILTERS, name, FILTERS_HERE[name], lively)
    query = query_of(lively, person)
    rows = np.arange(len(lively.model.catalogue))
    together = one.keep(query, rows)
    assert together.dtype == bool
    np.testing.assert_array_equal(one.keep(query, rows[::-1])[::-1], together)
    np.testing.assert_array_equal([one.keep(query, rows[[row]])[0] for row in rows], together)
    assert one.keep(query, rows[:0]).shape == (0,)


def ranked(size: int, scores: Any = None) -> Candidates:
    given = np.linspace(1, 0, size) if scores is None else np.asarray(scores)
    masks = np.where(np.arange(size) % 5 == 4, 1, 2).astype(np.uint64)
    return Candidates(np.arange(size), given.astype(np.float32), masks, np.zeros((2, size), np.float32))


@pytest.mark.parametrize("person", [PEOPLE[0], PEOPLE[2]], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 30, 61])
@pytest.mark.parametrize("name", RERANKERS_HERE)
def test_a_reranker_loses_and_doubles_nothing(lively, name, size, person):
    one = member(RERANKERS, name, RERANKERS_HERE[name], lively)
    for before in (ranked(size), ranked(size, np.zeros(size)), ranked(size, -np.arange(size))):
        after = one.rerank(query_of(lively, person), before)
        assert sorted(after.rows.tolist()) == list(range(size))
        assert after.found.shape == before.found.shape
        again = one.rerank(query_of(lively, person), before)
        np.testing.assert_array_equal(after.rows, again.rows)


def test_item_to_item_prefers_neighbours_of_the_latest_items(lively):
    source = member(SOURCES, "item_to_item", {"n": 3}, lively)
    lively.store.store.append(
        [Entry(Behaviour(f"x{item}", "click", str(item), NOW + item), "fan") for item in (20, 40)]
    )
    found = source.find(query_of(lively, {"user_id": "fan"}))
    assert found.rows.tolist() == [41, 21, 42]
    np.testing.assert_allclose(found.scores, [0.9, 0.9 * 0.85, 0.6], rtol=1e-6)


def test_trending_counts_what_happens_now(lively):
    source = member(SOURCES, "trending", {"n": 10, "least": 0.5}, lively)
    assert set(source.find(query_of(lively, {})).rows.tolist()) == {3, 12, 5, 60, -1}


def test_what_one_person_does_is_no_trend(lively):
    source = member(SOURCES, "trending", {"n": 10}, lively)
    assert len(source.find(query_of(lively, {})).rows) == 0
    lively.resources.trends.add([Entry(Behaviour(f"a{n}", "click", "12", NOW), "active") for n in range(9)])
    assert len(source.find(query_of(lively, {})).rows) == 0
    lively.resources.trends.add([Entry(Behaviour(f"b{n}", "click", "12", NOW), f"u{n}") for n in range(9)])
    lively.resources.trends._best = None  # the order is renewed once a second
    assert source.find(query_of(lively, {})).rows.tolist() == [12]


def test_fresh_items_are_drawn_with_a_known_chance(lively):
    for number in range(701, 711):
        lively.model.put_items({number: {"genres": "drama"}})
    changes = [ItemChange(str(number), {}, True, NOW - 10) for number in range(701, 711)]
    lively.resources.new_items.put(lively.model, changes)
    source = member(SOURCES, "fresh", {"n": 5}, lively)
    query = query_of(lively, {})
    found = source.find(query)
    assert len(set(found.rows.tolist())) == 5
    assert query.trace.notes["fresh_propensity"] == pytest.approx(5 / 11)
    old = query_of(lively, {})
    old.now += 8 * 86_400
    assert len(source.find(old).rows) == 0


def test_filters_keep_what_they_say(lively):
    query, rows = query_of(lively, {"user_id": "active"}), np.arange(61)
    keep = {
        name: member(FILTERS, name, config, lively).keep(query, rows) for name, config in FILTERS_HERE.items()
    }
    assert np.flatnonzero(~keep["seen"]).tolist() == [3, 12, 60]
    assert np.flatnonzero(~keep["blocked"]).tolist() == [1, 2]
    table = lively.model.catalogue.table(rows).to_pylist()
    assert keep["expression"].tolist() == [row["year"] >= 1990 and row["genres"] != "drama" for row in table]
    assert keep["categories"].tolist() == ["horror" not in row["genres"] for row in table]
    only = member(FILTERS, "categories", {"column": "genres", "separator": "|", "allow": ["horror"]}, lively)
    assert only.keep(query, rows).tolist() == ["horror" in row["genres"] for row in table]


def test_seen_may_look_at_some_events_and_days_only(lively):
    lively.store.store.append([Entry(Behaviour("p", "purchase", "30", NOW - 10 * 86_400), "active")])
    query, rows = query_of(lively, {"user_id": "active"}), np.arange(61)
    bought = member(FILTERS, "seen", {"events": ["purchase"]}, lively)
    assert np.flatnonzero(~bought.keep(query, rows)).tolist() == [30]
    lately = member(FILTERS, "seen", {"days": 1}, lively)
    assert np.flatnonzero(~lately.keep(query, rows)).tolist() == [3, 12, 60]
    known = query_of(lively, {"user_id": "100"})
    assert member(FILTERS, "seen", {"bundle": False}, lively).keep(known, rows).all()


def test_what_was_served_while_the_clock_was_ahead_does_not_count_for_ever(lively):
    lively.store.store.add_served([Served(["1"], NOW + 1e8, "active"), Served(["2"], NOW - 60, "active")])
    served = member(FILTERS, "served", {"minutes": 10}, lively)
    kept = served.keep(query_of(lively, {"user_id": "active"}), np.arange(61))
    assert np.flatnonzero(~kept).tolist() == [2]


def test_soft_filters_give_way_when_too_few_would_be_left(world):
    def found(soft: bool) -> int:
        scene = {
            "sources": {"popular": {"type": "popularity"}},
            "filters": {"old": {"type": "expression", "where": "year < 1963", "soft": soft}},
            "fallback": {},
        }
        return len(world(scene).recommender.answer(Request(n=10)).payload["items"])

    assert (found(False), found(True)) == (3, 10)


def test_categories_of_texts_lists_and_missing_values(lively):
    column = lively.model.catalogue.column("genres", np.array([0, 1, 60]))
    owner, values = categories(column, "|")
    assert list(zip(owner.tolist(), values.to_pylist(), strict=True)) == [
        (0, GENRES[0]), (0, GENRES[1]), (1, GENRES[1]), (2, "comedy"), (2, "drama"),
    ]  # fmt: skip
